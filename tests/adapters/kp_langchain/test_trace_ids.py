"""Whoever ran an agent can say later how it went: the id of its trace is at hand."""

import asyncio
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from langchain_core.tools import tool
from langchain_notebook import stored_run, stored_runs, story
from scripted_agents import GO, agent
from scripted_models import answer_of, calls
from versions import Command, InMemorySaver, interrupt
from waiting_agents import risking, save

from kp_langchain import KPCallbackHandler, recording_runs
from kp_middleware import current_trace

THREAD = {"configurable": {"thread_id": "T"}}


@pytest.fixture
def leads_to(kp, connection):
    """The id of the trace that commands find by an id, and that feedback with it reaches."""

    def lead(trace_id):
        kp.feedback(trace_id, success=False)
        found = kp.run(trace_id)
        assert [run.id for run in kp.runs() if not run.success] == [found.id]
        connection.execute("UPDATE traces SET success = 1")
        return found.id

    return lead


def test_a_trace_is_found_by_the_run_id_of_its_config_or_is_the_one_that_began_last(kp):
    handler, first, second = KPCallbackHandler(kp), uuid.uuid4(), uuid.uuid4()
    before = handler.trace_id()

    for run_id in (first, second):
        agent(answer_of("done")).invoke(GO, {"callbacks": [handler], "run_id": run_id})

    assert [handler.trace_id(first), handler.trace_id(second)] == [
        run.id for run in stored_runs(kp)
    ]
    assert (before, handler.trace_id()) == (None, handler.trace_id(second))


def test_runs_at_once_are_told_apart_by_their_run_ids(kp):
    handler = KPCallbackHandler(kp)
    ids = {f"task {number}": uuid.uuid4() for number in range(20)}
    threaded, awaited, batched = [*ids][:8], [*ids][8:16], [*ids][16:]

    def given(tasks):
        configs = [{"callbacks": [handler], "run_id": ids[task]} for task in tasks]
        return [{"messages": task} for task in tasks], configs

    async def run_all():
        await asyncio.gather(*map(agent(answer_of("done")).ainvoke, *given(awaited)))

    with ThreadPoolExecutor(max_workers=5) as pool:
        [*pool.map(agent(answer_of("done")).invoke, *given(threaded))]
    asyncio.run(run_all())
    agent(answer_of("done")).batch(*given(batched))

    assert {run.objective: run.id for run in stored_runs(kp)} == {
        task: handler.trace_id(run_id) for task, run_id in ids.items()
    }


def test_in_a_captured_function_it_is_that_function_s(kp):
    handler = KPCallbackHandler(kp)

    kp.capture(lambda text: agent(answer_of(text)).invoke(GO, {"callbacks": [handler]}))("done")

    assert handler.trace_id() == stored_run(kp).id


def test_a_block_has_a_handler_that_knows_whether_it_records_or_not(kp, monkeypatch):
    with recording_runs(kp) as handler:
        agent(answer_of("done")).invoke(GO)
    kp.feedback(handler.trace_id(), success=False)

    monkeypatch.setenv("KP_ENABLED", "false")
    with recording_runs(kp) as nobody:
        agent(answer_of("done")).invoke(GO)
    kp.feedback(nobody.trace_id(), success=False)

    assert (stored_run(kp).id, stored_run(kp).success) == (handler.trace_id(), False)
    assert nobody.trace_id() is None


def test_each_turn_of_a_conversation_tells_an_id_that_leads_to_its_trace(kp, leads_to):
    ids = []
    for text in ("one", "two", "three"):
        handler = KPCallbackHandler(kp, scope="thread")
        agent(answer_of(text)).invoke(GO, {"callbacks": [handler], **THREAD})
        ids.append(handler.trace_id())
    kp.end_thread("T", success=True)

    assert len(set(ids)) == 3
    assert [leads_to(trace_id) for trace_id in ids] == [ids[0]] * 3


def test_all_ids_of_a_run_that_was_resumed_with_another_handler_lead_to_it(kp, leads_to):
    first, second, run_id, read = KPCallbackHandler(kp), KPCallbackHandler(kp), uuid.uuid4(), []

    @tool
    def ask() -> str:
        """Ask a human."""
        answer = interrupt("may I?")
        read.append(current_trace().trace_id)
        return answer

    graph = risking(calls(ask={}), answer_of("done"), tools=[ask])
    graph.invoke(GO, {"callbacks": [first], **THREAD})
    graph.invoke(Command(resume="yes"), {"callbacks": [second], "run_id": run_id, **THREAD})

    ids = [first.trace_id(), second.trace_id(), second.trace_id(run_id), *read]
    assert [leads_to(trace_id) for trace_id in ids] == [first.trace_id()] * 4


GO_ON = """
import sys
from pathlib import Path
from waiting_agents import load, on_thread, risking
from versions import Command
from kp_middleware import KnowledgePulse

dead = {"api_key": "kp_x", "registry_url": "http://127.0.0.1:9"}
config = on_thread(KnowledgePulse(db=sys.argv[1], embedder=None, threshold=0, **dead))
risking(saver=load(Path(sys.argv[2]))).invoke(Command(resume="yes"), config)
print(config["callbacks"][0].trace_id())
"""


def test_case_32_another_process_may_resume_a_run_and_end_while_the_registry_is_dead(
    kp, leads_to, tmp_path
):
    saver, handler = InMemorySaver(), KPCallbackHandler(kp)
    risking(saver=saver).invoke(GO, {"callbacks": [handler], **THREAD})
    save(saver, tmp_path / "saver")

    resumed = subprocess.run(
        [sys.executable, "-c", GO_ON, kp.settings.db, tmp_path / "saver"],
        check=True,
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
        text=True,
    )

    run = stored_run(kp)
    assert (run.state, run.outbox.state in {"pending", "sending"}) == ("scored", True)
    assert story(run)[-2:] == ["observation risk: risked 5: yes", "thought: done"]
    assert resumed.stdout.strip() != handler.trace_id()
    assert leads_to(resumed.stdout.strip()) == handler.trace_id()
