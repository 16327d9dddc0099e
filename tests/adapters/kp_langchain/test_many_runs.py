"""Many runs, through one handler: apart, bounded, and never in the agent's way."""

import asyncio
import copy
import uuid
from concurrent.futures import ThreadPoolExecutor

from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableLambda
from scripted_agents import add, agent, cancelled, wait
from scripted_models import ScriptedModel, calls, says

from kp_langchain import KPCallbackHandler

GO = {"messages": "go"}
ADDS = [calls("I add.", add={"a": 1, "b": 2}), says("3")]


def test_after_a_thousand_cancelled_runs_the_handler_holds_nothing(handler, config, notebook):
    waiting = agent(calls(wait={"seconds": 60}), tools=[wait])

    async def cancel_many():
        await asyncio.gather(*[cancelled(waiting, config) for _ in range(1000)])

    asyncio.run(cancel_many())

    assert len(notebook.ended) == notebook.started
    assert len(handler._runs) == 0
    assert len(handler._runs._over) <= 4096


def test_a_run_id_may_be_used_again(config, notebook):
    with_id = config | {"run_id": uuid.uuid4()}

    agent(*ADDS).invoke(GO, with_id)
    agent(*ADDS).invoke(GO, with_id)

    assert [len(run.trace.steps) for run in notebook.runs] == [4, 4]


def test_where_too_many_runs_never_end_the_oldest_is_given_up(handler, notebook):
    questions = [f"question {number}" for number in range(2049)]

    _ = [handler.on_chain_start(None, text, run_id=uuid.uuid4()) for text in questions]

    [given_up] = notebook.ended
    assert given_up.objective == "question 0"
    assert given_up.complete is False
    assert len(handler._runs) == 2048


def test_a_thousand_runs_at_once_stay_apart(config, notebook):
    running = agent(*ADDS)

    async def run_many():
        questions = [{"messages": f"question {number}"} for number in range(1000)]
        await asyncio.gather(*[running.ainvoke(question, config) for question in questions])

    asyncio.run(run_many())

    assert len({run.trace.task.objective for run in notebook.runs}) == 1000
    assert {len(run.trace.steps) for run in notebook.runs} == {4}


def test_a_run_of_ten_thousand_steps_is_bounded(handler, config, notebook):
    def use_tools(_):
        for number in range(5000):
            add.invoke({"a": number, "b": 1})

    RunnableLambda(use_tools).invoke("go", config)

    assert notebook.run.shape.steps == 10_000
    assert len(notebook.trace.steps) == 1001
    assert len(handler._runs) == 0


def test_one_handler_serves_many_threads(handler, config, notebook):
    running = agent(*ADDS)

    with ThreadPoolExecutor(max_workers=20) as pool:
        pool.map(lambda _: running.invoke(GO, config), range(20))

    assert [len(run.trace.steps) for run in notebook.runs] == [4] * 20
    assert len(handler._runs) == 0


class SwitchedOff:
    """A pipeline that records nothing."""

    def __init__(self):
        self.asked = 0

    def start_recording(self, _framework):
        self.asked += 1


def test_where_recording_is_off_it_is_asked_once_a_run():
    off = SwitchedOff()
    handler = KPCallbackHandler(off)

    agent(*ADDS).invoke(GO, {"callbacks": [handler]})

    assert off.asked == 1
    assert len(handler._runs) == 0


class Broken:
    """A pipeline with a bug."""

    def start_recording(self, _framework):
        raise RuntimeError("a bug of ours")


def test_a_bug_of_ours_does_not_reach_the_agent():
    handler = KPCallbackHandler(Broken())

    result = agent(*ADDS).invoke(GO, {"callbacks": [handler]})

    assert result["messages"][-1].text == "3"


class Hostile:
    """Raises whenever it is asked for something that it does not have."""

    def __getattr__(self, name):
        raise RuntimeError("do not look")

    def __repr__(self):
        raise RuntimeError("do not look")


def test_hostile_inputs_and_outputs_do_not_cost_the_trace(config, notebook):
    model = ScriptedModel(turns=[says("hi")])

    RunnableLambda(lambda hostile: (model.invoke("go"), hostile)[1]).invoke(Hostile(), config)

    assert notebook.story == ["thought: hi"]


def test_the_agents_objects_are_not_changed(config):
    inputs = {"messages": [HumanMessage("go", id="1")]}
    before = copy.deepcopy(inputs)

    agent(*ADDS).invoke(inputs, config)

    assert inputs == before


def test_a_copied_config_reports_to_the_same_handler(config, notebook):
    agent(*ADDS).invoke(GO, copy.deepcopy(config))

    assert len(notebook.runs) == 1
