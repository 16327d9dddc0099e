"""A captured function stays what it is, for every kind of function, and its call is a run."""

import asyncio
import functools
import inspect

import pytest
from captured_functions import ERROR, async_generator, coroutine, generator, plain
from hostile_objects import HOSTILE

from kp_middleware.recording import current_recorder, current_trace, shield


def call_plain(function, *args, **kwargs):
    return function(*args, **kwargs)


def call_coroutine(function, *args, **kwargs):
    return asyncio.run(function(*args, **kwargs))


def call_generator(function, *args, **kwargs):
    return "".join(function(*args, **kwargs))


def call_async_generator(function, *args, **kwargs):
    return asyncio.run(joined(function(*args, **kwargs)))


async def joined(items):
    return "".join([item async for item in items])


KINDS = {
    "plain": (plain, call_plain),
    "coroutine": (coroutine, call_coroutine),
    "generator": (generator, call_generator),
    "async generator": (async_generator, call_async_generator),
}
every_kind = pytest.mark.parametrize(("function", "call"), KINDS.values(), ids=KINDS)
KIND_TESTS = (
    inspect.iscoroutinefunction,
    inspect.isgeneratorfunction,
    inspect.isasyncgenfunction,
)


@pytest.mark.parametrize("function", [function for function, _ in KINDS.values()], ids=KINDS)
def test_a_captured_function_stays_of_its_kind(capture, tool, function):
    captured, used = capture(function), tool(function)

    kinds = [[is_kind(f) for is_kind in KIND_TESTS] for f in (function, captured, used)]
    assert kinds[0] == kinds[1] == kinds[2]
    assert inspect.signature(captured) == inspect.signature(used) == inspect.signature(function)
    assert (captured.__name__, captured.__doc__) == (function.__name__, "Answer.")
    assert captured.__wrapped__ is function


@every_kind
def test_a_call_gives_what_it_gave_and_is_a_run(notebook, capture, function, call):
    assert call(capture(function), "why", times=2) == "whywhy"

    run = notebook.run
    assert notebook.story == ["thought about why"]
    assert (run.trace.task.objective, run.trace.outcome.result_summary) == ("why", "whywhy")
    assert (run.agent_name, run.complete, run.trace.metadata.success) == (
        function.__name__,
        True,
        True,
    )
    assert current_recorder() is None


@every_kind
def test_a_tool_outside_of_any_run_is_called_and_that_is_all(notebook, tool, function, call):
    assert call(tool(function), "why") == "why"

    assert notebook.ended == []


@every_kind
def test_wrong_arguments_give_the_user_s_own_error(capture, tool, function, call):
    messages = set()

    for called in (function, capture(function), tool(function)):
        with pytest.raises(TypeError) as raised:
            call(called, 1, 2, 3)
        messages.add(str(raised.value))

    assert len(messages) == 1
    assert shield.failures.total() == 0


@every_kind
def test_an_error_is_the_same_object_and_ends_the_run(notebook, capture, function, call):
    with pytest.raises(ValueError, match="no") as raised:
        call(capture(function), "fail")

    assert raised.value is ERROR
    assert notebook.story == ["thought about fail", "observation ValueError: no"]
    assert (notebook.run.error_type, notebook.run.trace.metadata.success) == ("ValueError", False)
    assert notebook.run.complete


def surviving(function, call):
    def agent(question):
        try:
            call(function, question)
        except ValueError:
            return "all the same"

    return agent


@every_kind
def test_an_error_of_a_tool_that_the_run_survives_is_a_recovery(
    notebook, capture, tool, function, call
):
    capture(surviving(tool(function, name="search"), call))("fail")

    assert notebook.story == [
        "tool_call search {'question': 'fail'}",
        "thought about fail",
        "error_recovery search ValueError: no",
    ]
    assert notebook.run.trace.steps[-1].latency_ms >= 0
    assert notebook.run.trace.metadata.success


@every_kind
def test_an_error_of_a_tool_that_ends_the_run_is_one_observation(
    notebook, capture, tool, function, call
):
    used = tool(function, name="search")

    with pytest.raises(ValueError, match="no"):
        capture(capture(lambda question: call(used, question)))("fail")

    assert notebook.story[2:] == ["observation search ValueError: no"]


def test_each_failed_attempt_is_a_recovery_and_none_is_taken_for_the_error_that_ends_the_run(
    notebook, capture, tool
):
    def search(attempt):
        raise ValueError(f"busy {attempt}")  # gone at once: another may have its place in memory

    @capture
    def agent(_question):
        [surviving(tool(search), call_plain)(attempt) for attempt in range(5)]
        search("still")

    with pytest.raises(ValueError, match="still"):
        agent("why")

    attempts = ["tool_call", "error_recovery"] * 5
    assert [step.type for step in notebook.run.trace.steps] == [*attempts, "observation"]


def test_a_function_that_records_nothing_has_its_call_and_result_as_steps(notebook, capture):
    capture(lambda _question, depth: {"found": depth}, name="researcher")("why", depth=3)

    assert notebook.story == [
        'thought <lambda>({"_question": "why", "depth": 3})',
        'observation {"found": 3}',
    ]
    assert notebook.run.agent_name == "researcher"
    assert notebook.run.trace.outcome.result_summary == '{"found": 3}'


def test_a_result_of_none_is_a_step_too(notebook, capture):
    capture(lambda _question: None)("why")

    assert notebook.story[1] == "observation None"
    assert notebook.run.trace.outcome.result_summary == ""


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_argument_costs_neither_the_call_nor_the_run(notebook, capture, tool, make):
    hostile = make()

    @capture
    def agent(_question, thing):
        return tool(lambda thing: thing)(thing)

    assert agent("why", hostile) is hostile
    assert notebook.run.trace.task.objective == "why"
    assert notebook.run.shape.steps == 2


def test_arguments_are_recorded_as_they_were_before_the_body_changed_them(notebook, capture, tool):
    @tool
    def search(places):
        places.append("Oslo")
        return [*places]

    capture(lambda places: search(places)[:1])(["Rome"])

    assert notebook.story[0] == "tool_call search {'places': ['Rome']}"
    assert notebook.run.trace.steps[1].latency_ms >= 0


def test_a_task_and_an_argument_are_kept_up_to_the_limit_of_a_field(notebook, capture, tool):
    text = "word " * 13_000

    capture(tool(len))(text)

    assert notebook.run.trace.task.objective == text
    assert notebook.run.trace.steps[0].input == {"obj": text}


@pytest.mark.parametrize(
    ("naming", "objective"),
    [
        ({}, "why"),
        ({"objective": "topic"}, "fish"),
        ({"objective": "depth"}, "3"),
        ({"objective": "missing"}, 'agent({"depth": 3, "question": "why", "topic": "fish"})'),
    ],
    ids=["first text", "named", "a number", "not there"],
)
def test_the_objective_is_the_named_argument_or_the_first_text(
    notebook, capture, naming, objective
):
    def agent(depth, question, topic=""):
        return depth, question, topic

    capture(agent, **naming)(3, "why", topic="fish")

    assert notebook.run.trace.task.objective == objective


def test_a_call_without_texts_is_its_own_objective(notebook, capture):
    capture(lambda a, b: a + b, domain="code")(1, b=2)

    assert notebook.run.trace.task.objective == '<lambda>({"a": 1, "b": 2})'
    assert notebook.run.trace.metadata.task_domain == "code"


def test_a_captured_function_inside_another_is_a_part_of_it(notebook, capture):
    inner = capture(lambda topic: topic.upper())

    @capture
    def outer(question):
        current_trace().thought("first")
        return inner(question)

    assert outer("why") == "WHY"
    assert notebook.story == [
        "thought first",
        'thought <lambda>({"topic": "why"})',
        "observation WHY",
    ]
    places = [(facts.agent, facts.parent) for facts in notebook.run.facts]
    assert places == [(None, None), ("<lambda>", "<lambda>"), ("<lambda>", "<lambda>")]


def test_an_error_of_an_inner_function_that_the_outer_survives_is_a_recovery(notebook, capture):
    capture(surviving(capture(plain), call_plain))("fail")

    assert notebook.story == ["thought about fail", "error_recovery ValueError: no"]
    assert [facts.agent for facts in notebook.run.facts] == ["plain", "plain"]
    assert notebook.run.trace.metadata.success


def agent_class(capture):
    class Agent:
        @capture
        def method(self, question):
            return (self, question)

        @capture
        @classmethod
        def above_classmethod(cls, question):
            return (cls, question)

        @classmethod
        @capture
        def below_classmethod(cls, question):
            return (cls, question)

        @capture
        @staticmethod
        def above_staticmethod(kind, question):
            return (kind, question)

        @staticmethod
        @capture
        def below_staticmethod(kind, question):
            return (kind, question)

        @capture
        def __call__(self, question):
            return (self, question)

    return Agent


@pytest.mark.parametrize("name", ["method", "__call__", "above_classmethod", "below_classmethod"])
def test_a_method_is_recorded_without_its_object_or_class(notebook, capture, name):
    agent = agent_class(capture)()
    owner = type(agent) if "class" in name else agent

    assert getattr(agent, name)("why") == (owner, "why")
    assert notebook.story[0] == f'thought {name}({{"question": "why"}})'


def test_a_parameter_may_be_called_cls(notebook, capture):
    capture(lambda cls, number: cls * number)("invoices ", 3)

    assert notebook.story[0] == 'thought <lambda>({"cls": "invoices ", "number": 3})'


@pytest.mark.parametrize("name", ["above_staticmethod", "below_staticmethod"])
def test_a_static_method_is_recorded_with_all_its_arguments(notebook, capture, name):
    agent = agent_class(capture)

    assert getattr(agent, name)(agent, question="why") == (agent, "why")
    assert notebook.story[0] == f'thought {name}({{"kind": "<type>", "question": "why"}})'


def test_a_bound_method_is_recorded_with_all_its_arguments(notebook, capture):
    agent = agent_class(lambda function: function)()

    assert capture(agent.method)(agent) == (agent, agent)
    assert notebook.story[0].startswith('thought method({"question": "<test_capture.')


def test_a_partial_has_its_functions_name_and_the_remaining_arguments(notebook, capture, tool):
    def add(a, b):
        return a + b

    assert capture(lambda _question: tool(functools.partial(add, 1))(2))("why") == 3
    assert notebook.story == ["tool_call add {'b': 2}", "observation add 3"]


class AsyncCallable:
    """Called as a function is, and awaited."""

    async def __call__(self, question):
        await asyncio.sleep(0)
        return question


def test_an_object_that_can_be_awaited_when_called_is_captured(notebook, capture):
    captured = capture(AsyncCallable())

    assert asyncio.run(captured("why")) == "why"
    assert inspect.iscoroutinefunction(captured)
    assert notebook.story == ['thought AsyncCallable({"question": "why"})', "observation why"]


@pytest.mark.parametrize("builtin", [len, sorted], ids=["function", "with keywords"])
def test_a_builtin_is_captured(notebook, capture, builtin):
    assert capture(builtin)("why") == builtin("why")
    assert notebook.story[0].startswith(f"thought {builtin.__name__}(")


@pytest.mark.parametrize(
    ("function", "call"), [*KINDS.values()][1:], ids=["coroutine", "generator", "async generator"]
)
def test_a_plain_function_that_returns_what_runs_later_ends_with_that(
    notebook, capture, function, call
):
    captured = capture(lambda question: function(question, times=2))

    assert call(captured, "why") == "whywhy"
    assert notebook.story == ["thought about why"]
    assert notebook.run.trace.outcome.result_summary == "whywhy"
