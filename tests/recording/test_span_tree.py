"""Spans of any framework, fed to the seam, become the steps of a run."""

import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from threading import Barrier

import pytest

from kp_middleware.recording import Message, RootSpan, SpanTree, ToolCall, Turn, shield

START_S = 1_700_000_000.0


@pytest.fixture
def spans(notebook):
    return SpanTree(notebook, "kitchen", domain="cooking")


def speak(spans, span_id, parent_id, turn, messages=(), **times):
    spans.start(span_id, parent_id, "model", "a model", messages=messages, **times)
    spans.finish(span_id, turn=turn)


def test_spans_of_the_past_keep_their_times(notebook, spans):
    call = ToolCall("boil", {"minutes": 6}, "c1")

    spans.start("a", None, "agent", "cook", input="Boil an egg.", at_s=START_S)
    speak(spans, "m", "a", Turn(text="I boil it.", calls=(call,)), at_s=START_S + 1)
    spans.start("t", "a", "tool", "boil", call_id="c1", at_s=START_S + 2)
    spans.finish("t", "done", at_s=START_S + 362)
    spans.finish("a", "Here it is.", at_s=START_S + 363)

    run = notebook.run
    assert notebook.story == [
        "thought I boil it.",
        "tool_call boil {'minutes': 6}",
        "observation boil done",
    ]
    assert [facts.started_at_s - START_S for facts in run.facts] == [1, 1, 2]
    assert (run.duration_ms, run.trace.steps[-1].latency_ms) == (363_000, 360_000)
    assert run.trace.metadata.created_at == "2023-11-14T22:13:20.000Z"
    assert (run.agent_name, run.trace.metadata.task_domain) == ("cook", "cooking")
    assert run.trace.outcome.result_summary == "Here it is."


def test_of_a_history_that_repeats_only_what_is_new_becomes_a_step(notebook, spans):
    first = [Message("user", "Boil an egg.")]
    call = ToolCall("boil", {}, "c1")
    second = [*first, Message("assistant", "I boil it."), Message("tool", "done", call_id="c1")]

    spans.start("a", None, "agent")
    speak(spans, "m1", "a", Turn(text="I boil it.", calls=(call,)), first)
    speak(spans, "m2", "a", Turn(text="Here it is."), second)
    third = [*second, Message("assistant", "Here it is."), Message("user", "Salt?")]
    speak(spans, "m3", "a", Turn(text="Enjoy."), third)
    spans.finish("a")

    assert notebook.story == [
        "observation Boil an egg.",
        "thought I boil it.",
        "tool_call boil {}",
        "observation boil done",
        "thought Here it is.",
        "observation Salt?",
        "thought Enjoy.",
    ]
    assert notebook.run.trace.task.objective == "Boil an egg."
    assert notebook.run.trace.outcome.result_summary == "Enjoy."


def test_tools_that_run_at_once_answer_their_own_calls(notebook, spans):
    calls = tuple(ToolCall("boil", {"eggs": number}, f"c{number}") for number in (1, 2))

    spans.start("a", None, "agent")
    speak(spans, "m", "a", Turn(calls=calls))
    for number in (1, 2):
        spans.start(number, "a", "tool", "boil", call_id=f"c{number}")
    spans.finish(2, "two")
    spans.finish(1, "one")
    spans.finish("a")

    facts = notebook.run.facts
    assert notebook.story[2:] == ["observation boil two", "observation boil one"]
    assert [facts[3].call_id, facts[2].call_id] == [facts[0].call_id, facts[1].call_id]


@pytest.mark.parametrize("tool", ["ask", ""], ids=["a name", "no name"])
def test_the_steps_of_an_agent_inside_a_tool_are_beside_its_name_and_inside_the_call(
    notebook, spans, tool
):
    spans.start("a", None, "agent", "cook")
    spans.start("t", "a", "tool", tool, call_id="1")
    spans.start("b", "t", "agent", "baker")
    speak(spans, "m", "b", Turn(text="Flour."))
    spans.finish("b", "Flour.")
    spans.finish("t", "Flour.")
    spans.finish("a", "Bread.")

    call, thought, result = notebook.run.facts
    assert (call.agent, thought.agent, result.agent) == (None, "baker", None)
    assert call.call_id == thought.parent == result.call_id
    assert notebook.run.trace.outcome.result_summary == "Bread."


@pytest.mark.parametrize(("name", "agent"), [("cook", None), ("", None), ("baker", "baker")])
def test_an_agent_directly_in_another_is_the_same_or_a_handoff(notebook, spans, name, agent):
    spans.start("a", None, "agent", "cook")
    spans.start("b", "a", "agent", name)
    speak(spans, "m", "b", Turn(text="Flour."))
    spans.finish("b")
    spans.finish("a")

    assert notebook.run.facts[0].agent == agent


def test_a_model_in_a_model_and_a_tool_in_the_same_tool_are_parts_of_it(notebook, spans):
    spans.start("a", None, "agent")
    spans.start("m", "a", "model")
    speak(spans, "inner m", "m", None)
    spans.finish("m", turn=Turn(text="Flour."))
    spans.start("t", "a", "tool", "ask")
    spans.start("inner t", "t", "tool", "ask")
    spans.finish("inner t", "Flour.")
    spans.finish("t", "Flour.")
    spans.finish("a")

    assert notebook.story == ["thought Flour.", "tool_call ask", "observation ask Flour."]


@pytest.mark.parametrize(("failed", "kind"), [(None, "observation"), ("a word", "error_recovery")])
def test_what_a_framework_says_of_a_failure_may_be_none_or_a_word(notebook, spans, failed, kind):
    spans.start("a", None, "agent")
    spans.start("t", "a", "tool", "boil")
    spans.finish("t", "raw", failed=failed)  # as MCP's ``isError``, which may be None
    spans.finish("a", "It is raw.")

    assert notebook.story[-1] == f"{kind} boil raw"


def test_what_goes_on_after_its_root_is_moved_once_whatever_ends_meanwhile(notebook, spans):
    over, asked = RootSpan(notebook.start(), owned=True), []

    def successor(_, span):
        asked.append(span)
        spans.end("m")  # as another thread may do now
        return RootSpan(notebook.start(), owned=True)

    over.successor = successor
    spans.open("a", over)
    chain = spans.join("b", "a")
    spans.start("m", "b", "model")
    spans.end("a")
    spans.end("b")

    assert asked == [chain]
    assert len(spans) == 0


@pytest.fixture
def frequent_switches():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("frequent_switches")
def test_a_root_and_the_spans_inside_it_may_end_in_several_threads_at_once(notebook, spans):
    started = []

    def begin_run(*_):
        started.append(notebook.start())
        root = RootSpan(started[-1], owned=True)
        root.successor = begin_run
        return root

    def end(span_ids):
        barrier.wait(10)
        return [span_id for span_id in span_ids if spans.finish(span_id) is not None]

    with ThreadPoolExecutor(4) as pool:
        for _ in range(200):
            spans.open("root", begin_run())
            for outer, model in (("b", "m"), ("c", "n")):
                spans.join(outer, "root")
                spans.start(model, outer, "model", "a model")
            barrier = Barrier(4)
            ended = [*chain.from_iterable(pool.map(end, [["root"], ["b"], ["c"], ["m", "n"]]))]

            assert len(spans) == 0
            assert {"root", "b", "c"} <= {*ended}

    assert sorted(map(id, notebook.ended)) == sorted(map(id, started))
    assert len(started) > 200  # some went on after their root
    assert shield.failures.total() == 0


def test_a_run_whose_tool_never_ends_is_recorded_when_its_root_ends(notebook, spans):
    spans.start("a", None, "agent")
    spans.start("t", "a", "tool", "boil")
    spans.finish("a", "It is raw.")

    assert notebook.story[0] == "tool_call boil"
    assert spans.finish("t", "late") is None
    assert len(spans) == 0


@pytest.mark.parametrize("kind", ["model", "tool", "chain"])
def test_a_span_without_an_agent_is_no_run(notebook, spans, kind):
    assert spans.start("x", None, kind, "x") is None
    assert spans.finish("x") is None
    assert notebook.ended == []
