"""A captured function stays what it is, for every kind of function, and its call is a run."""

import asyncio
import functools
import inspect
import json
import threading

import numpy as np
import pytest
from hostile_objects import HOSTILE, Unspeakable
from notebook import line, run_of

from kp_middleware.recording import current_recorder, current_trace, shield


def plain(question: str, *, times: int = 1) -> str:
    """Answer."""
    current_trace().thought(f"about {question}")
    return question * times


async def coroutine(question: str, *, times: int = 1) -> str:
    """Answer."""
    await asyncio.sleep(0)
    current_trace().thought(f"about {question}")
    return question * times


def generator(question: str, *, times: int = 1):
    """Answer."""
    current_trace().thought(f"about {question}")
    for _ in range(times):
        yield question
    return "returned"


async def async_generator(question: str, *, times: int = 1):
    """Answer."""
    current_trace().thought(f"about {question}")
    for _ in range(times):
        yield question


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


@pytest.fixture
def capture(notebook):
    return notebook.capture


@pytest.fixture
def tool(notebook):
    return notebook.tool


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
    before = sum(shield.failures.values())

    with pytest.raises(TypeError) as of_function:
        call(function, 1, 2, 3)
    with pytest.raises(TypeError) as of_captured:
        call(capture(function), 1, 2, 3)
    with pytest.raises(TypeError) as of_tool:
        call(tool(function), 1, 2, 3)

    assert str(of_captured.value) == str(of_tool.value) == str(of_function.value)
    assert sum(shield.failures.values()) == before


def fails():
    raise ERROR


async def fails_async():
    raise ERROR


def fails_yielding():
    yield "a"
    raise ERROR


async def fails_yielding_async():
    yield "a"
    raise ERROR


ERROR = ValueError("no")
FAILING = {
    "plain": (fails, call_plain),
    "coroutine": (fails_async, call_coroutine),
    "generator": (fails_yielding, call_generator),
    "async generator": (fails_yielding_async, call_async_generator),
}


@pytest.mark.parametrize(("function", "call"), FAILING.values(), ids=FAILING)
def test_an_error_is_the_same_object_and_ends_the_run(notebook, capture, function, call):
    with pytest.raises(ValueError, match="no") as raised:
        call(capture(function))

    assert raised.value is ERROR
    assert notebook.story == [f"thought {function.__name__}({{}})", "observation ValueError: no"]
    assert (notebook.run.error_type, notebook.run.trace.metadata.success) == ("ValueError", False)
    assert notebook.run.complete


def surviving(function, call):
    def agent(_question):
        try:
            call(function)
        except ValueError:
            return "all the same"

    return agent


@pytest.mark.parametrize(("function", "call"), FAILING.values(), ids=FAILING)
def test_an_error_of_a_tool_that_the_run_survives_is_a_recovery(
    notebook, capture, tool, function, call
):
    capture(surviving(tool(function, name="search"), call))("why")

    assert notebook.story == ["tool_call search {}", "error_recovery search ValueError: no"]
    assert notebook.run.trace.steps[1].latency_ms >= 0
    assert notebook.run.trace.metadata.success


@pytest.mark.parametrize(("function", "call"), FAILING.values(), ids=FAILING)
def test_an_error_of_a_tool_that_ends_the_run_is_one_observation(
    notebook, capture, tool, function, call
):
    used = tool(function, name="search")

    with pytest.raises(ValueError, match="no"):
        capture(capture(lambda _question: call(used)))("why")

    assert notebook.story == ["tool_call search {}", "observation search ValueError: no"]


def test_every_failed_attempt_is_a_recovery(notebook, capture, tool):
    @tool
    def search(attempt):
        raise ValueError(f"busy {attempt}")

    @capture
    def agent(_question):
        [surviving(functools.partial(search, attempt), call_plain)("") for attempt in range(5)]

    agent("why")

    assert notebook.run.shape.recoveries == 5
    assert notebook.run.shape.steps == 10


def test_a_survived_error_is_not_taken_for_the_one_that_ends_the_run(notebook, capture, tool):
    @capture
    def agent(_question):
        surviving(tool(fails_anew), call_plain)("")
        fails_anew()

    with pytest.raises(ValueError, match="no"):
        agent("why")

    assert [step.type for step in notebook.run.trace.steps] == [
        *("tool_call", "error_recovery", "observation")
    ]


def fails_anew():
    raise ValueError("no")


def test_a_function_that_records_nothing_is_told_by_its_arguments_and_result(notebook, capture):
    capture(lambda _question, depth: {"found": depth}, name="researcher")("why", depth=3)

    assert notebook.story == [
        'thought <lambda>({"_question": "why", "depth": 3})',
        'observation {"found": 3}',
    ]
    assert notebook.run.agent_name == "researcher"
    assert notebook.run.trace.outcome.result_summary == '{"found": 3}'


def test_a_result_of_none_is_told_too(notebook, capture):
    capture(lambda _question: None)("why")

    assert notebook.story[1] == "observation None"
    assert notebook.run.trace.outcome.result_summary == ""


def test_the_agent_s_own_outcome_is_kept(notebook, capture):
    @capture
    def agent(_question):
        current_trace().outcome("short", confidence=0.4)
        return {"long": "answer", "confidence": 0.9}

    agent("why")

    outcome = notebook.run.trace.outcome
    assert (outcome.result_summary, outcome.confidence) == ("short", 0.4)


@pytest.mark.parametrize(
    ("result", "confidence"),
    [
        ({"confidence": 0.9}, 0.9),
        ({"confidence": 1}, 1.0),
        ({"confidence": True}, 0.8),
        ({"confidence": 90}, 0.8),
        ({"confidence": "0.9"}, 0.8),
        ({"confidence": float("nan")}, 0.8),
        (ValueError("x"), 0.8),
        (np.float64(0.5), 0.8),
        (Unspeakable(), 0.8),
    ],
    ids=["half", "whole", "bool", "percent", "text", "NaN", "error", "number", "hostile"],
)
def test_the_confidence_of_a_result_is_the_run_s(notebook, capture, result, confidence):
    assert capture(lambda _question: result)("why") is result

    assert notebook.run.trace.outcome.confidence == confidence


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


def test_an_error_of_an_inner_function_that_the_outer_survives_is_a_recovery(notebook, capture):
    capture(surviving(capture(fails), call_plain))("why")

    assert notebook.story == ["thought fails({})", "error_recovery ValueError: no"]
    assert notebook.run.trace.metadata.success


def test_where_nothing_is_recorded_now_the_function_is_called(notebook):
    notebook.start = lambda: None

    assert notebook.capture(plain)("why") == "why"
    assert notebook.ended == []


def agent_class(capture):
    class Base:
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

    class Derived(Base):
        @capture
        def method(self, question):
            return super().method(question)

    return Derived


@pytest.mark.parametrize("name", ["method", "__call__"])
def test_a_method_is_told_without_its_object(notebook, capture, name):
    agent = agent_class(capture)()

    assert getattr(agent, name)("why") == (agent, "why")
    assert notebook.story[0] == f'thought {name}({{"question": "why"}})'


@pytest.mark.parametrize("name", ["above_classmethod", "below_classmethod"])
def test_a_class_method_is_told_without_its_class(notebook, capture, name):
    agent = agent_class(capture)

    assert agent.__dict__.get(name) is None
    assert agent().__getattribute__(name)("why") == getattr(agent, name)("why") == (agent, "why")
    assert [line(run.trace.steps[0]) for run in notebook.runs] == [
        f'thought {name}({{"question": "why"}})'
    ] * 2


def test_a_parameter_may_be_called_cls(notebook, capture):
    @capture
    def classify(cls, number):
        return cls * number

    classify("invoices ", 3)

    assert notebook.story[0] == 'thought classify({"cls": "invoices ", "number": 3})'


@pytest.mark.parametrize("name", ["above_staticmethod", "below_staticmethod"])
def test_a_static_method_is_told_with_all_its_arguments(notebook, capture, name):
    agent = agent_class(capture)

    assert getattr(agent, name)(agent, "why") == (agent, "why")
    assert getattr(agent(), name)("x", question="why") == ("x", "why")
    assert [line(run.trace.steps[0]) for run in notebook.runs] == [
        f'thought {name}({{"kind": "<type>", "question": "why"}})',
        f'thought {name}({{"kind": "x", "question": "why"}})',
    ]


def test_a_bound_method_is_told_with_all_its_arguments(notebook, capture):
    class Money:
        def add(self, other, note):
            return self, other, note

    one, other = Money(), Money()

    assert capture(one.add)(other, "thanks") == (one, other, "thanks")
    assert notebook.story[0].startswith('thought add({"other": "<test_capture.')
    assert notebook.story[0].endswith('Money>", "note": "thanks"})')


def test_a_partial_is_told_with_what_is_left_to_give(notebook, capture, tool):
    add = functools.partial(lambda a, b: a + b, 1)

    assert capture(lambda _question: tool(add, name="add")(2))("why") == 3
    assert notebook.story == ["tool_call add {'b': 2}", "observation add 3"]


class Callable:
    """Called as a function is."""

    def __call__(self, question):
        return question


class AsyncCallable:
    """Called as a function is, and awaited."""

    async def __call__(self, question):
        await asyncio.sleep(0)
        return question


def test_an_object_that_can_be_called_is_captured(notebook, capture):
    assert capture(Callable())("why") == "why"
    assert notebook.story[0] == 'thought Callable({"question": "why"})'


def test_an_object_that_can_be_awaited_when_called_is_captured(notebook, capture):
    captured = capture(AsyncCallable())

    assert asyncio.run(captured("why")) == "why"
    assert inspect.iscoroutinefunction(captured)
    assert notebook.story[1] == "observation why"


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


async def nothing(_question):
    for item in ():
        yield item


def test_what_runs_later_and_yields_nothing_has_no_result(notebook, capture):
    captured = capture(lambda question, /: nothing(question))

    assert call_async_generator(captured, "why") == ""
    assert notebook.story[1] == "observation None"


def echo(_question):
    heard = []
    try:
        while len(heard) < 3:
            try:
                heard.append((yield f"heard {len(heard)}"))
            except KeyError as error:
                heard.append(str(error))
    finally:
        current_trace().thought(f"{heard}")
    return heard


def test_a_generator_is_sent_to_and_thrown_into_and_returns(notebook, capture):
    running = capture(echo)("why")

    said = [next(running), running.send("a"), running.throw(KeyError("b"))]
    with pytest.raises(StopIteration) as stop:
        running.send("c")

    assert said == ["heard 0", "heard 1", "heard 2"]
    assert stop.value.value == ["a", "'b'", "c"]
    assert notebook.run.trace.outcome.result_summary == "heard 0heard 1heard 2"


def test_a_generator_gives_its_value_to_who_yields_from_it(capture):
    inner = capture(generator)

    def outer():
        return (yield from inner("a"))

    running = outer()
    assert next(running) == "a"
    with pytest.raises(StopIteration, match="returned"):
        next(running)


def test_a_generator_that_is_closed_is_an_incomplete_run(notebook, capture):
    running = capture(echo)("why")
    next(running)

    running.close()

    assert notebook.story == ["thought []", "observation GeneratorExit"]
    assert (notebook.run.complete, notebook.run.trace.metadata.success) == (False, False)
    assert notebook.run.trace.outcome.result_summary == "heard 0"


def test_a_generator_that_is_dropped_is_an_incomplete_run(notebook, capture):
    running = capture(echo)("why")
    next(running)

    del running

    assert not notebook.run.complete


def test_a_generator_that_is_never_iterated_is_no_run(notebook, capture):
    capture(generator)("why").close()

    assert notebook.ended == []


def test_a_generator_that_yields_when_it_is_closed_is_told_off(capture):
    def stubborn():
        try:
            yield 1
        finally:
            yield 2

    running = capture(stubborn)()
    next(running)

    with pytest.raises(RuntimeError, match="ignored GeneratorExit"):
        running.close()


def test_a_tool_whose_caller_had_enough_did_not_fail(notebook, capture, tool):
    pages = tool(lambda: (f"page {number}" for number in range(9)), name="pages")

    capture(lambda _question: next(pages()))("why")

    assert notebook.story == ["tool_call pages {}", "observation pages page 0"]
    assert notebook.run.shape.recoveries == 0


def test_an_inner_generator_whose_caller_had_enough_did_not_fail(notebook, capture):
    inner = capture(generator)

    capture(lambda question: next(inner(question, times=5)))("why")

    assert notebook.story == ["thought about why"]
    assert notebook.run.shape.recoveries == 0


def test_the_run_is_current_only_while_the_generator_s_body_runs(capture):
    running = capture(generator)("why", times=2)

    next(running)

    assert current_recorder() is None
    running.close()


def test_generators_that_take_turns_do_not_mix(notebook, capture):
    one, other = capture(echo)("one"), capture(echo)("other")

    [(next(one), next(other)) for _ in range(3)]
    [running.close() for running in (one, other)]

    assert [run.trace.task.objective for run in notebook.runs] == ["one", "other"]
    assert [run.shape.steps for run in notebook.runs] == [2, 2]


def test_a_long_stream_of_tokens_is_kept_whole_as_text(notebook, capture):
    @capture
    def answer(_question):
        yield from ["word "] * 5000

    "".join(answer("why"))

    assert notebook.run.trace.outcome.result_summary == "word " * 5000


def test_an_endless_stream_is_kept_in_part_and_says_so(notebook, capture):
    @capture
    def answer(_question):
        yield from ["x" * 10_000] * 1000

    [*answer("why")]

    result = notebook.run.trace.outcome.result_summary
    assert len(result) < 70_000
    assert "… [cut: 1000 items in all]" in result


def test_items_that_are_no_texts_are_kept_as_a_list(notebook, capture):
    @capture
    def answer(_question):
        yield from ["a", {"b": 1}]

    [*answer("why")]

    assert json.loads(notebook.run.trace.outcome.result_summary) == ["a", {"b": 1}]


async def async_echo(_question):
    heard = []
    try:
        while len(heard) < 3:
            try:
                heard.append((yield f"heard {len(heard)}"))
            except KeyError as error:
                heard.append(str(error))
    finally:
        await asyncio.sleep(0)
        current_trace().thought(f"{heard}")


async def talk_to(running):
    said = [await anext(running), await running.asend("a"), await running.athrow(KeyError("b"))]
    with pytest.raises(StopAsyncIteration):
        await running.asend("c")
    return said


def test_an_async_generator_is_sent_to_and_thrown_into(notebook, capture):
    said = asyncio.run(talk_to(capture(async_echo)("why")))

    assert said == ["heard 0", "heard 1", "heard 2"]
    assert notebook.story == ["thought ['a', \"'b'\", 'c']"]


async def leave_early(running):
    await anext(running)
    await running.aclose()
    return current_recorder()


def test_an_async_generator_that_is_left_early_is_an_incomplete_run(notebook, capture):
    assert asyncio.run(leave_early(capture(async_echo)("why"))) is None

    assert notebook.story == ["thought []", "observation GeneratorExit"]
    assert not notebook.run.complete


async def break_out(running):
    async for _ in running:
        break


def test_an_async_generator_whose_loop_is_broken_is_an_incomplete_run(notebook, capture):
    asyncio.run(break_out(capture(async_echo)("why")))

    assert not notebook.run.complete


async def cancelled(coroutine):
    task = asyncio.create_task(coroutine)
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def forever(_question):
    current_trace().thought("waiting")
    await asyncio.sleep(60)


async def forever_yielding(question):
    yield await forever(question)


@pytest.mark.parametrize(
    "start",
    [
        lambda capture: capture(forever)("why"),
        lambda capture: break_out(capture(forever_yielding)("why")),
    ],
    ids=["coroutine", "async generator"],
)
def test_a_cancelled_run_is_incomplete(notebook, capture, start):
    asyncio.run(cancelled(start(capture)))

    assert notebook.story == ["thought waiting", "observation CancelledError"]
    assert (notebook.run.complete, notebook.run.error_type) == (False, "CancelledError")


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_run_is_incomplete(notebook, capture, kind):
    def stop(_question):
        raise kind

    with pytest.raises(kind):
        capture(stop)("why")

    assert (notebook.run.complete, notebook.run.error_type) == (False, kind.__name__)


def test_a_stop_iteration_of_the_user_s_passes_as_it_is(capture):
    error = StopIteration("mine")

    def stop(_question):
        raise error

    with pytest.raises(StopIteration) as raised:
        capture(stop)("why")

    assert raised.value is error


async def at_once(*coroutines):
    return await asyncio.gather(*coroutines)


def test_runs_at_the_same_time_do_not_mix(notebook, capture):
    captured = capture(coroutine)

    asyncio.run(at_once(*(captured(name) for name in "abc")))

    assert [(run.trace.task.objective, line(run.trace.steps[0])) for run in notebook.runs] == [
        (name, f"thought about {name}") for name in "abc"
    ]


def test_runs_in_threads_do_not_mix(notebook, capture):
    captured = capture(plain)
    threads = [threading.Thread(target=captured, args=(name,)) for name in "abc"]

    [thread.start() for thread in threads]
    [thread.join() for thread in threads]

    assert {(r.trace.task.objective, line(r.trace.steps[0])) for r in notebook.runs} == {
        (name, f"thought about {name}") for name in "abc"
    }


def test_a_tool_may_be_used_by_several_tasks_of_one_run(notebook, capture, tool):
    search = tool(coroutine, name="search")

    @capture
    async def agent(_question):
        return await at_once(*(search(name) for name in "ab"))

    asyncio.run(agent("why"))

    assert notebook.run.shape.steps == 6
    assert notebook.run.shape.tools == 1


def test_a_tool_is_told_with_its_time(notebook, capture, tool):
    capture(lambda _question: tool(lambda: None, name="wait")())("why")

    call, seen = notebook.run.trace.steps
    assert (call.tool.name, call.input, seen.output_summary) == ("wait", {}, "None")
    assert 0 <= seen.latency_ms < 1000


def test_a_tool_that_outlives_its_run_disturbs_nobody(notebook, capture, tool):
    left = []
    capture(lambda question: left.append(tool(generator)(question)) or next(left[0]))("why")

    rest = [*left[0]]

    assert rest == []
    assert run_of(notebook.ended[0]).shape.steps == 2
