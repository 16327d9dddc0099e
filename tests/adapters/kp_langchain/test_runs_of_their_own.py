"""Separate runs that begin inside a run: forked processes, and tasks that outlive it."""

import asyncio
import os
import subprocess
import sys
import uuid
from contextlib import closing
from pathlib import Path

import pytest
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langchain_notebook import Notebook, agents_of, story
from scripted_agents import add, agent
from scripted_models import ScriptedModel, answer_of, calls
from versions import create_agent, needs

import kp_langchain
from kp_langchain import KPCallbackHandler
from kp_middleware.database import connect

SPREADING = """
import multiprocessing, os
import kp_langchain
from concurrent.futures import ProcessPoolExecutor
from langchain_core.tools import tool
from kp_langchain import KPCallbackHandler
from kp_middleware import KnowledgePulse
from scripted_agents import agent
from scripted_models import ScriptedModel, calls, answer_of

kp = KnowledgePulse(embedder=None)
kp.capture(lambda question: question)("first")  # so that no child has to load what keeps a run
kp.flush(60)
fork = multiprocessing.get_context("fork")

def ask(number):
    agent(answer_of(f"answer {number}")).invoke({"messages": f"question {number}"})

def ask_a_model(number):
    ScriptedModel(turns=[answer_of(f"answer {number}")]).invoke(f"question {number}")

@kp.capture
def ask_captured(number):
    return f"question {number}"

def in_a_pool(job):
    with fork.Pool(2) as pool:
        pool.map(job, range(3))

def in_an_executor(job):
    with ProcessPoolExecutor(2, fork) as pool:
        list(pool.map(job, range(3)))

def in_processes(job):
    workers = [fork.Process(target=job, args=(number,)) for number in range(3)]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]

def in_forks(job):
    for number in range(3):
        if os.fork() == 0:
            job(number)
            kp.close()
            os._exit(0)
    [os.wait() for _ in range(3)]

def spreading(way, job):
    @tool
    def spread(what: str) -> str:
        '''Let several processes do it.'''
        way(job)
        return "done"

    return agent(calls(spread={"what": "all"}), answer_of("outer answer"), tools=[spread])

def ask_outside(way, job):
    spreading(way, job).invoke({"messages": "outer"}, {"callbacks": [KPCallbackHandler(kp)]})
"""

GO_ON = {
    "an executor": "ask_outside(in_an_executor, ask)",
    "processes": "ask_outside(in_processes, ask)",
    "forks": "ask_outside(in_forks, ask)",
    "processes that ask a model alone": "ask_outside(in_processes, ask_a_model)",
    "processes, all of it switched on": """
kp_langchain.enable(kp)
spreading(in_processes, ask).invoke({"messages": "outer"})
""",
}
IN_A_RUN_IN_NONE_AND_IN_A_CAPTURED_FUNCTION = """
ask_outside(in_a_pool, ask)

kp_langchain.enable(kp)
in_a_pool(ask)

@kp.capture
def outer(question):
    in_processes(ask_captured)
    in_processes(ask)
    return "outer answer"

outer("outer")
"""


@pytest.fixture
def run_program(tmp_path):
    """Runs a program; the objective and the result of each of its runs."""

    def run(program):
        (tmp_path / "program.py").write_text(SPREADING + program)
        modules = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
        db = tmp_path / "kp.db"
        subprocess.run(
            [sys.executable, "-W", "ignore:This process", tmp_path / "program.py"],
            check=True,
            env={**os.environ, "KP_DB": str(db), "PYTHONPATH": modules},
        )
        with closing(connect(db, read_only=True)) as connection:
            rows = connection.execute("SELECT objective, result_summary FROM traces WHERE seq > 1")
            return sorted(tuple(row) for row in rows)

    return run


@needs("create_agent")
def test_runs_in_forked_processes_are_runs_of_their_own_and_kept_though_a_pool_kills_it(
    run_program,
):
    runs = run_program(IN_A_RUN_IN_NONE_AND_IN_A_CAPTURED_FUNCTION)

    answers = [(f"question {number}", f"answer {number}") for number in range(3)] * 3
    outer = [("outer", "outer answer")] * 2
    captured = [
        (f'ask_captured({{"number": {number}}})', f"question {number}") for number in range(3)
    ]
    assert runs == sorted([*outer, *answers, *captured])


@pytest.mark.slow
@needs("create_agent")
@pytest.mark.parametrize("way", GO_ON)
def test_runs_in_processes_that_a_run_forks_are_runs_of_their_own(run_program, way):
    answers = [(f"question {number}", f"answer {number}") for number in range(3)]

    assert run_program(GO_ON[way]) == [("outer", "outer answer"), *answers]


class WaitingModel(ScriptedModel):
    """Answers when it may."""

    async def _agenerate(self, messages, *args, **kwargs):
        await self.metadata["may"].wait()
        return self._generate(messages, *args, **kwargs)


def waiting_adder(may, **options):
    model = WaitingModel(
        turns=[calls("I add.", add={"a": 1, "b": 2}), answer_of("3")], metadata={"may": may}
    )
    return create_agent(model, [add], **options)


async def run_outlived_by(begin, config, *, started=True, times=1):
    """A run whose tool begins something in the background, which ends after the run.

    Args:
        begin: Makes what the tool begins, of an event that lets it go on.
        config: Of the run.
        started: Whether it has begun when the run ends, or begins only then.
        times: How many of these the tool begins.
    """
    may, tasks = asyncio.Event(), []
    inner = begin(may)

    async def ask(what):
        if not started:
            await may.wait()
        return await inner.ainvoke(what)

    @tool
    async def later(what: str) -> str:
        """Do it later."""
        tasks.extend(asyncio.create_task(ask({"messages": what})) for _ in range(times))
        for _ in range(50):
            await asyncio.sleep(0)
        return "it will be done"

    outer = agent(calls(later={"what": "1 + 2?"}), answer_of("soon"), tools=[later], name="outer")
    await outer.ainvoke({"messages": "go"}, config)
    may.set()
    await asyncio.gather(*tasks, return_exceptions=True)


ADDED = ["thought: I add.", "tool_call add(a=1, b=2)", "observation add: 3", "thought: 3"]
OUTER = ["tool_call later(what='1 + 2?')", "observation later: it will be done", "thought: soon"]


def runs_in(notebook):
    """Of each run what it was for, its steps and the inner agents that took them."""
    return [(run.trace.task.objective, story(run), agents_of(run)) for run in notebook.runs]


@pytest.mark.parametrize("started", [True, False], ids=["while it runs", "after its end"])
@pytest.mark.parametrize(
    "name", [None, pytest.param("helper", marks=needs("agents that say their name"))]
)
def test_a_background_agent_that_outlives_its_run_is_a_run_of_its_own(
    config, notebook, started, name, live_spans
):
    asyncio.run(run_outlived_by(lambda may: waiting_adder(may, name=name), config, started=started))

    assert runs_in(notebook) == [("go", OUTER, {}), ("1 + 2?", ADDED, {})]
    outer, inner = notebook.runs
    assert (inner.complete, inner.trace.outcome.result_summary) == (True, "3")
    assert outer.trace.id != inner.trace.id
    assert len(live_spans) == 0
    if name is not None:
        assert inner.agent_name == name


def test_a_background_agent_is_recorded_where_all_runs_are(notebook):
    kp_langchain.enable(notebook)
    try:
        asyncio.run(run_outlived_by(waiting_adder, {}))
        asyncio.run(run_outlived_by(waiting_adder, {}, started=False))
    finally:
        kp_langchain.disable()

    assert runs_in(notebook) == [("go", OUTER, {}), ("1 + 2?", ADDED, {})] * 2


def test_a_background_agent_that_fails_is_a_failed_run(config, notebook):
    def failing(may):
        async def fail(_):
            await may.wait()
            raise ValueError("no")

        return RunnableLambda(fail)

    asyncio.run(run_outlived_by(failing, config))

    _, failed = notebook.runs
    assert (failed.error_type, failed.trace.metadata.success) == ("ValueError", False)


@needs("create_agent")
def test_a_background_task_that_is_cancelled_with_its_program_is_no_run(config, notebook):
    def never(_):
        async def wait(_):
            await asyncio.Event().wait()

        return RunnableLambda(wait)

    async def run():
        task = asyncio.create_task(run_outlived_by(never, config))
        while not (notebook.ended or task.done()):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())

    assert [run.trace.task.objective for run in notebook.runs] == ["go"]


class FailsOnce(Notebook):
    """A pipeline that fails where a run of its own begins, in the background."""

    def start_recording(self, framework, /):
        recorder = super().start_recording(framework)
        if self.started == 2:
            raise RuntimeError("a bug of ours")
        return recorder


def began(handler, *, inside):
    """The id of a chain that has begun inside another."""
    run_id = uuid.uuid4()
    handler.on_chain_start(None, {"messages": "back"}, run_id=run_id, parent_run_id=inside)
    return run_id


def uses_slow(handler, *, inside):
    """The id of a tool that has begun, and may never end."""
    run_id = uuid.uuid4()
    handler.on_tool_start({"name": "slow"}, "x", run_id=run_id, parent_run_id=inside)
    return run_id


def test_a_background_run_has_the_result_of_a_tool_whose_call_the_outer_run_has(handler, notebook):
    outer = began(handler, inside=None)
    background = began(handler, inside=outer)
    tool = uses_slow(handler, inside=background)

    handler.on_chain_end({}, run_id=outer)
    handler.on_tool_end("done", run_id=tool)
    handler.on_chain_end({}, run_id=background)

    calls, results = map(story, notebook.runs)
    assert calls == ["tool_call slow(input='x')"]
    assert results == ["observation slow: done"]


def test_each_of_two_agents_that_a_tool_begins_in_the_background_is_its_own(config, notebook):
    asyncio.run(run_outlived_by(waiting_adder, config, times=2))

    assert [agents_of(run) for run in notebook.runs] == [{}, {}, {}]
    assert [run.agent_name for run in notebook.runs[1:]] == ["later", "later"]


def test_thousands_of_background_runs_are_bounded_and_the_oldest_is_given_up(handler, notebook):
    outer = began(handler, inside=None)
    oldest, *_, latest = [began(handler, inside=outer) for _ in range(4200)]

    handler.on_chain_end({}, run_id=outer)

    assert notebook.started - len(notebook.ended) == 2048
    assert len([ended for ended in notebook.ended if not ended.complete]) == 4200 - 2048
    assert handler.trace_id(oldest) is None
    assert handler.trace_id(latest) is not None


@pytest.mark.parametrize("kind", ["chain", "tool", "retriever"])
def test_a_run_is_recorded_though_one_in_the_background_cannot_be(kind):
    notebook = FailsOnce()
    handler, outer = KPCallbackHandler(notebook), uuid.uuid4()
    begin, end = (getattr(handler, f"on_{kind}_{what}") for what in ("start", "end"))
    begin({"name": "outer"}, "go", run_id=outer)
    background = began(handler, inside=outer)

    end([], run_id=outer)
    handler.on_chain_end({}, run_id=background)

    assert [(ended.objective.split()[-1], ended.complete) for ended in notebook.ended] == [
        ("go", True)
    ]
    assert len(handler._runs) == 0
