"""Whoever ran an agent can say later how it went: the id of its trace is at hand."""

import asyncio
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from langchain_core.runnables import RunnableLambda
from scripted_agents import agent
from scripted_models import ScriptedModel, says

from kp_langchain import KPCallbackHandler, recording_runs
from kp_langchain._runs import _REMEMBERED
from kp_middleware import KnowledgePulse
from kp_middleware.database import connect

GO = {"messages": "go"}


@pytest.fixture
def kp(tmp_path):
    with KnowledgePulse(db=tmp_path / "kp.db", embedder=None, sync=True) as kp:
        yield kp


@pytest.fixture
def stored(kp):
    """The id and the objective of each trace, in order."""

    def read(columns="id"):
        with closing(connect(kp.settings.db)) as connection:
            return connection.execute(f"SELECT {columns} FROM traces ORDER BY seq").fetchall()

    return read


def test_a_run_s_trace_is_found_by_the_run_id_of_its_config(kp, stored):
    handler, first, second = KPCallbackHandler(kp), uuid.uuid4(), uuid.uuid4()

    for run_id in (first, second):
        agent(says("done")).invoke(GO, {"callbacks": [handler], "run_id": run_id})

    assert [(handler.trace_id(first),), (handler.trace_id(second),)] == stored()


def test_without_a_run_id_it_is_the_one_that_began_last(kp, stored):
    handler = KPCallbackHandler(kp)
    before = handler.trace_id()

    agent(says("done")).invoke(GO, {"callbacks": [handler]})
    agent(says("done")).invoke(GO, {"callbacks": [handler]})

    assert (before, handler.trace_id()) == (None, stored()[-1][0])


def test_runs_at_once_are_told_apart_by_their_run_ids(kp, stored):
    handler = KPCallbackHandler(kp)
    ids = {f"task {number}": uuid.uuid4() for number in range(20)}

    def run(task):
        config = {"callbacks": [handler], "run_id": ids[task]}
        agent(says("done")).invoke({"messages": task}, config)

    async def run_all():
        await asyncio.gather(
            *(
                agent(says("done")).ainvoke(
                    {"messages": task}, {"callbacks": [handler], "run_id": run_id}
                )
                for task, run_id in [*ids.items()][10:]
            )
        )

    with ThreadPoolExecutor(max_workers=5) as pool:
        [*pool.map(run, [*ids][:10])]
    asyncio.run(run_all())

    assert sorted(stored("objective, id")) == sorted(
        (task, handler.trace_id(run_id)) for task, run_id in ids.items()
    )


def test_each_run_of_a_batch_has_its_own(kp, stored):
    handler, ids = KPCallbackHandler(kp), [uuid.uuid4() for _ in range(3)]
    chain = RunnableLambda(str) | ScriptedModel(turns=[says("done")] * 3)

    chain.batch([1, 2, 3], [{"callbacks": [handler], "run_id": run_id} for run_id in ids])

    assert {handler.trace_id(run_id) for run_id in ids} == {trace for (trace,) in stored()}


def test_in_a_captured_function_it_is_that_function_s(kp, stored):
    handler = KPCallbackHandler(kp)

    kp.capture(lambda text: agent(says(text)).invoke(GO, {"callbacks": [handler]}))("done")

    assert [(handler.trace_id(),)] == stored()


def test_a_block_has_a_handler_that_knows(kp, stored):
    with recording_runs(kp) as handler:
        agent(says("done")).invoke(GO)

    assert [(handler.trace_id(),)] == stored()


def test_feedback_reaches_the_run_whether_it_is_recorded_or_not(kp, stored, monkeypatch):
    with recording_runs(kp) as handler:
        agent(says("done")).invoke(GO)
    kp.feedback(handler.trace_id(), success=False)

    monkeypatch.setenv("KP_ENABLED", "false")
    with recording_runs(kp) as nobody:
        agent(says("done")).invoke(GO)
    kp.feedback(nobody.trace_id(), success=False)

    assert (stored("success"), nobody.trace_id()) == ([(0,)], None)


def test_an_unknown_run_and_one_of_long_ago_have_none(kp):
    handler, early = KPCallbackHandler(kp), uuid.uuid4()
    handler.on_chain_start({}, {}, run_id=early)
    for _ in range(_REMEMBERED):
        handler.on_chain_start({}, {}, run_id=uuid.uuid4())

    assert (handler.trace_id(early), handler.trace_id(uuid.uuid4())) == (None, None)
