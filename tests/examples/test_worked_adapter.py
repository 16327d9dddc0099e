"""The tests of every adapter: copy them, with your framework's agents in place of these."""

import asyncio
from threading import Thread

import pytest
from kp_little_agents import KPListener
from little_agents import Agent, Call, Turn

from kp_middleware import KnowledgePulse, current_trace
from kp_middleware.recording import shield

ADD = Call("add", {"a": 1, "b": 2})


def model(*turns):
    """A model that says these, one after the other."""
    said = iter(turns)

    async def say(_):
        return next(said)

    return say


async def add(a, b):
    current_trace().thought("inside of the tool")
    return a + b


@pytest.fixture
def listener(kp):
    return KPListener(kp, domain="code")


@pytest.fixture
def runs(kp):
    """Reads what is recorded, the oldest run first."""
    return lambda: [kp.run(run.id) for run in reversed(kp.runs())]


def steps(run):
    return [
        (step.type, step.tool, step.content or step.output_summary or step.input)
        for step in run.steps
    ]


def test_a_run_is_a_trace_with_its_steps_in_order(listener, runs):
    turns = model(Turn("I add.", [ADD], tokens=(9, 4)), Turn("3", tokens=(12, 1)))

    answer = asyncio.run(Agent("adder", turns, {"add": add}, [listener]).run("1 + 2?"))

    [run] = runs()
    assert steps(run) == [
        ("thought", None, "I add."),
        ("tool_call", "add", {"a": 1, "b": 2}),
        ("thought", None, "inside of the tool"),
        ("observation", "add", "3"),
        ("thought", None, "3"),
    ]
    assert (run.framework, run.agent_name, run.domain) == ("little_agents", "adder", "code")
    assert (run.objective, run.result_summary, answer) == ("1 + 2?", "3", "3")
    assert (run.success, run.state) == (True, "scored")
    assert (run.input_tokens, run.output_tokens) == (21, 5)


def test_an_error_that_the_agent_survives_is_a_recovery(listener, runs):
    turns = model(Turn("I look.", [Call("look", {})]), Turn("I do without."))

    asyncio.run(Agent("looker", turns, {}, [listener]).run("What is there?"))

    [run] = runs()
    assert steps(run)[2] == ("error_recovery", "look", "KeyError: 'look'")
    assert (run.success, run.error_type) == (True, None)


def test_an_error_that_ends_the_run_is_reported_once_and_reaches_the_program(listener, runs):
    async def fail():
        raise PermissionError("not you")

    inner = Agent("inner", model(Turn("I try.", [Call("fail", {})])), {"fail": fail}, [listener])
    asks = Turn("I ask.", [Call("inner", {"task": "Open it."})])
    outer = Agent("outer", model(asks), {"inner": inner.run}, [listener])

    with pytest.raises(PermissionError):
        asyncio.run(outer.run("Have it opened."))

    [run] = runs()
    assert [step for step in steps(run) if "not you" in step[2]] == [
        ("observation", "fail", "PermissionError: not you")
    ]
    assert (run.success, run.error_type) == (False, "PermissionError")


def test_a_cancelled_run_is_incomplete_and_not_scored(listener, runs):
    async def wait():
        await asyncio.Event().wait()

    agent = Agent("waiting", model(Turn("I wait.", [Call("wait", {})])), {"wait": wait}, [listener])

    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(agent.run("Wait."), timeout=0.05))

    assert [(run.state, run.error_type) for run in runs()] == [("incomplete", "CancelledError")]


def test_an_agent_inside_another_is_a_part_of_its_trace(listener, runs):
    inner = Agent("inner", model(Turn("42")), {}, [listener])
    asks = Turn("I ask.", [Call("inner", {"task": "What is it?"})])
    outer = Agent("outer", model(asks, Turn("It is 42.")), {"inner": inner.run}, [listener])

    asyncio.run(outer.run("Find out."))

    [run] = runs()
    assert (run.agent_name, run.result_summary) == ("outer", "It is 42.")
    assert [(step.agent, step.content) for step in run.steps if step.agent] == [("inner", "42")]


def test_an_event_from_another_thread_belongs_to_the_run_that_it_names(listener, runs):
    listener.on_start("1", None, "outer", "Find out.")
    inner = Thread(target=listener.on_start, args=("2", "1", "inner", "What is it?"))
    inner.start()
    inner.join()
    listener.on_model("2", "42", (1, 1))
    listener.on_end("2", "42", None)
    listener.on_end("1", "It is 42.", None)

    [run] = runs()
    assert [(step.agent, step.content) for step in run.steps] == [("inner", "42")]


def test_a_run_in_a_captured_function_is_a_part_of_its_trace_and_what_follows_is_not(
    kp, listener, runs
):
    @kp.capture
    async def answer(question):
        return await Agent("adder", model(Turn("3")), {}, [listener]).run(question)

    async def both():
        await answer("1 + 2?")
        await Agent("first", model(Turn("3")), {}, [listener]).run("1 + 2?")
        return kp.capture(str.upper, name="afterwards")("And then?")

    asyncio.run(both())

    assert [(run.agent_name, run.framework) for run in runs()] == [
        ("answer", "python"),
        ("first", "little_agents"),
        ("afterwards", "python"),
    ]


def test_runs_at_the_same_time_do_not_mix(listener, runs):
    async def several():
        turns = [model(Turn("I add.", [ADD]), Turn(str(number))) for number in range(5)]
        agents = [Agent("adder", turn, {"add": add}, [listener]) for turn in turns]
        await asyncio.gather(*[agent.run(f"{number}?") for number, agent in enumerate(agents)])

    asyncio.run(several())

    told = sorted((run.objective, run.result_summary, run.step_count) for run in runs())
    assert told == [(f"{number}?", str(number), 5) for number in range(5)]


def test_what_goes_wrong_in_the_adapter_never_reaches_the_agent(listener):
    answer = asyncio.run(Agent("odd", model(Turn("3", tokens=(1,))), {}, [listener]).run("1 + 2?"))

    assert answer == "3"
    assert shield.failures.total() == 1


def test_long_values_are_cut_and_odd_ones_are_told_as_they_are(listener, runs):
    async def read(pages):
        return [*pages, "x" * 1_000_000]

    turns = model(Turn("I read.", [Call("read", {"pages": {1, 2}})]), Turn("Long."))

    asyncio.run(Agent("reader", turns, {"read": read}, [listener]).run("Read it."))

    [run] = runs()
    assert max(len(step.output_summary or "") for step in run.steps) <= 64 * 1024


def test_a_run_whose_end_is_never_told_is_given_up(listener, runs):
    for number in range(2049):
        listener.on_start(str(number), None, "lost", "Go.")
        listener.on_model(str(number), "on my way", (1, 1))

    assert [run.state for run in runs()] == ["incomplete"]


def test_nothing_is_recorded_where_that_is_switched_off(db):
    with KnowledgePulse(enabled=False, db=db) as kp:
        agent = Agent("adder", model(Turn("3")), {}, [KPListener(kp)])

        asyncio.run(agent.run("1 + 2?"))

    assert shield.failures.total() == 0
    assert not db.exists()
