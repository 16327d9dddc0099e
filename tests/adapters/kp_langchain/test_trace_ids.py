"""Whoever ran an agent can say later how it went: the id of its trace is at hand."""

import asyncio
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from conversations_in_a_file import risking, save
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from scripted_agents import agent
from scripted_models import ScriptedModel, calls, says
from versions import Command, InMemorySaver, interrupt

from kp_langchain import KPCallbackHandler, recording_runs
from kp_middleware import KnowledgePulse, current_trace
from kp_middleware.database import connect
from kp_middleware.storage import History

GO = {"messages": "go"}
THREAD = {"configurable": {"thread_id": "T"}}


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


@pytest.fixture
def led_to(kp):
    """Tells of an id that the run failed; the id of the trace that says so, of those in the file.

    Commands find the same trace by it.
    """

    def tell(trace_id):
        kp.feedback(trace_id, success=False)
        with closing(connect(kp.settings.db)) as connection:
            found = connection.execute(
                "SELECT t.seq, t.id FROM traces t JOIN feedback f ON f.trace_seq = t.seq"
                " WHERE NOT t.success"
            ).fetchall()
            connection.execute("DELETE FROM feedback")
            connection.execute("UPDATE traces SET success = 1")
            [(seq, named)] = found
            assert History(connection).find(trace_id) == seq
        return named

    return tell


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


def test_each_turn_of_a_conversation_tells_an_id_that_leads_to_its_trace(kp, led_to):
    ids = []
    for text in ("one", "two", "three"):
        handler = KPCallbackHandler(kp, scope="thread")
        agent(says(text)).invoke(GO, {"callbacks": [handler], **THREAD})
        ids.append(handler.trace_id())
    kp.end_thread("T", success=True)

    assert len(set(ids)) == 3
    assert [led_to(trace_id) for trace_id in ids] == [ids[0]] * 3


def test_a_run_that_was_resumed_with_another_handler_is_led_to_by_both_ids(kp, led_to):
    first, second, run_id = KPCallbackHandler(kp), KPCallbackHandler(kp), uuid.uuid4()
    graph = risking(InMemorySaver())

    graph.invoke(GO, {"callbacks": [first], **THREAD})
    graph.invoke(Command(resume="yes"), {"callbacks": [second], "run_id": run_id, **THREAD})

    ids = [first.trace_id(), second.trace_id(), second.trace_id(run_id)]
    assert [led_to(trace_id) for trace_id in ids] == [first.trace_id()] * 3


def test_what_a_resumed_node_reads_of_the_current_trace_leads_to_it(kp, led_to):
    read, handler = [], KPCallbackHandler(kp)

    @tool
    def ask() -> str:
        """Ask a human."""
        answer = interrupt("may I?")
        read.append(current_trace().trace_id)
        return answer

    graph = agent(calls(ask={}), says("done"), tools=[ask], checkpointer=InMemorySaver())
    graph.invoke(GO, {"callbacks": [handler], **THREAD})
    first = handler.trace_id()
    graph.invoke(Command(resume="yes"), {"callbacks": [handler], **THREAD})

    assert [led_to(trace_id) for trace_id in read] == [first]


GO_ON = """
import sys
from pathlib import Path
from conversations_in_a_file import load, risking
from versions import Command
from kp_langchain import KPCallbackHandler
from kp_middleware import KnowledgePulse

with KnowledgePulse(db=sys.argv[1], embedder=None) as kp:
    handler = KPCallbackHandler(kp)
    config = {"callbacks": [handler], "configurable": {"thread_id": "T"}}
    risking(load(Path(sys.argv[2]))).invoke(Command(resume="yes"), config)
print(handler.trace_id())
"""


def test_an_id_that_the_resuming_process_told_leads_to_the_trace(kp, led_to, tmp_path):
    saver, handler = InMemorySaver(), KPCallbackHandler(kp)
    risking(saver).invoke(GO, {"callbacks": [handler], **THREAD})
    save(saver, tmp_path / "saver")

    resumed = subprocess.run(
        [sys.executable, "-c", GO_ON, kp.settings.db, tmp_path / "saver"],
        check=True,
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
        text=True,
    )

    assert resumed.stdout.strip() != handler.trace_id()
    assert led_to(resumed.stdout.strip()) == handler.trace_id()


def test_an_unknown_run_and_one_of_long_ago_have_none(kp):
    handler, early = KPCallbackHandler(kp), uuid.uuid4()
    handler.on_chain_start({}, {}, run_id=early)
    for _ in range(4096):
        handler.on_chain_start({}, {}, run_id=uuid.uuid4())

    assert (handler.trace_id(early), handler.trace_id(uuid.uuid4())) == (None, None)
