"""The steps of a trace and their facts, for agents, graphs, chains and models."""

import time

import pytest
from langchain_core.language_models.fake import FakeListLLM
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import tool
from pydantic import BaseModel
from scripted_agents import Shelf, add, agent, graph_of, speaking
from scripted_models import ScriptedModel, answer_of, calls
from versions import ToolStrategy, needs

from kp_middleware import current_trace


def test_a_react_run_is_thoughts_calls_and_observations_in_order(adding, config, notebook):
    adding.invoke({"messages": [("user", "What is 1 + 2?")]}, config)

    trace = notebook.trace
    assert notebook.story == [
        "thought: I need to add.",
        "tool_call add(a=1, b=2)",
        "observation add: 3",
        "thought: The answer is 3.",
    ]
    assert trace.task.objective == "What is 1 + 2?"
    assert (trace.outcome.result_summary, trace.outcome.confidence) == ("The answer is 3.", 0.8)
    assert 0 < trace.steps[2].latency_ms < 5000
    assert trace.steps[2].content is None  # contents are embedded


class Sum(BaseModel):
    value: int
    confidence: float = 0.93


def test_case_05_a_structured_outputs_pseudo_tool_is_called_and_its_answer_the_result(
    config, notebook
):
    summing = agent(calls(Sum={"value": 3}), tools=(), response_format=ToolStrategy(Sum))

    summing.invoke({"messages": "1 + 2?"}, config)

    outcome = notebook.trace.outcome
    assert notebook.story == [
        "tool_call Sum(value=3)",
        "observation Sum: Returning structured response: value=3 confidence=0.93",
    ]
    assert outcome.result_summary == '{"value": 3, "confidence": 0.93}'
    assert outcome.confidence == 0.93


def test_a_later_human_turn_is_an_observation_with_content(config, notebook):
    speak = speaking(answer_of("For what?"), answer_of("Booked."))
    human = {"human": lambda _: {"messages": [HumanMessage("For lunch.")]}}

    graph_of({"ask": speak, **human, "book": speak}, in_turn=True).invoke(
        {"messages": [("user", "Book a table.")]}, config
    )

    assert notebook.story == ["thought: For what?", "observation: For lunch.", "thought: Booked."]
    assert notebook.trace.steps[1].content == "For lunch."
    assert notebook.trace.task.objective == "Book a table."


PROMPT = ChatPromptTemplate.from_messages([("system", "Be short."), ("human", "On {topic}!")])
CATS = ScriptedModel(turns=[answer_of("Cats purr.")])


@pytest.mark.parametrize(
    ("runnable", "given", "story", "objective", "result"),
    [
        (CATS, "cats?", ["thought: Cats purr."], "cats?", "Cats purr."),
        (FakeListLLM(responses=["hi"]), "hello", ["thought: hi"], "hello", "hi"),
        (
            PROMPT | CATS | StrOutputParser(),
            {"topic": "cats"},
            ["thought: Cats purr."],
            "cats",
            "Cats purr.",
        ),
        (
            ScriptedModel(turns=[answer_of("-"), answer_of("3")]),
            [("user", "Hello"), ("ai", "Hi"), ("user", "What is 1 + 2?")],
            ["thought: 3"],
            "What is 1 + 2?",
            "3",
        ),
        (
            add,
            {"a": 1, "b": 2},
            ["tool_call add(a=1, b=2)", "observation add: 3"],
            "add {'a': 1, 'b': 2}",
            "3",
        ),
        (
            Shelf(),
            "books",
            ["tool_call Shelf(query='books')", "observation Shelf: on books\n\nits index"],
            "books",
            "on books\n\nits index",
        ),
    ],
    ids=["model", "completion", "chain", "conversation", "tool", "retriever"],
)
def test_case_13_a_root_of_any_kind_is_a_run(
    config, notebook, runnable, given, story, objective, result
):
    runnable.invoke(given, config)

    assert notebook.story == story
    assert notebook.trace.task.objective == objective
    assert notebook.trace.outcome.result_summary == result
    assert notebook.trace.metadata.framework == "langchain"


def test_a_run_without_model_or_tool_is_no_trace(config, notebook):
    ChatPromptTemplate.from_template("{x}").invoke({"x": "y"}, config)

    assert notebook.runs == []


def test_name_thread_and_tags_of_an_agent_are_kept_and_other_metadata_is_not(config, notebook):
    told = {"tags": ["t1"], "configurable": {"thread_id": "T-1"}, "metadata": {"api_key": "s3cret"}}

    agent(answer_of("hi"), name="greeter").invoke({"messages": "hello"}, config | told)

    run = notebook.run
    assert (run.agent_name, run.thread_id, run.tags) == ("greeter", "T-1", ("t1",))
    assert "s3cret" not in run.model_dump_json()


@needs("agents that say so")
def test_the_framework_is_langgraph_for_graphs_and_langchain_for_agents(adding, notebook, config):
    adding.invoke({"messages": "1 + 2?"}, config)
    graph_of({"say": speaking(answer_of("hi"))}).invoke({"messages": "hello"}, config)

    assert [run.trace.metadata.framework for run in notebook.runs] == ["langchain", "langgraph"]


def facts(notebook, *names):
    """Of each step its kind and these facts."""
    steps = zip(notebook.trace.steps, notebook.run.facts, strict=True)
    return [(step.type, *(getattr(fact, name) for name in names)) for step, fact in steps]


def test_parallel_calls_of_one_tool_are_told_apart_by_their_ids(config, notebook):
    both = AIMessage(
        "",
        tool_calls=[{"name": "add", "args": {"a": n, "b": 1}, "id": f"call {n}"} for n in (1, 2)],
    )

    agent(both, answer_of("fin"), tools=[add]).invoke({"messages": "go"}, config)

    ids = [call_id for kind, call_id in facts(notebook, "call_id") if kind != "thought"]
    assert ids[0] != ids[1]
    assert sorted(ids[:2]) == sorted(ids[2:])


@needs("agents that say their name")
def test_two_agents_of_one_name_are_told_apart_by_the_calls_they_run_in(config, notebook):
    @tool
    def ask(question: str) -> str:
        """Let another agent answer."""
        answer = agent(answer_of(f"{question}!"), name="helper").invoke({"messages": question})
        return answer["messages"][-1].text

    asked = calls(ask={"question": "a"}), calls(ask={"question": "b"})
    agent(*asked, answer_of("fin"), tools=[ask], name="outer").invoke({"messages": "go"}, config)

    told = facts(notebook, "agent", "call_id", "parent")
    called = [call_id for kind, _, call_id, _ in told if kind == "tool_call"]
    inside = [(name, parent) for _, name, _, parent in told if parent is not None]
    assert inside == [("helper", called[0]), ("helper", called[1])]


def test_steps_begin_in_their_order_and_a_result_when_its_tool_began(config, notebook):
    @tool
    def wait(seconds: float) -> str:
        """Wait, and think inside the call."""
        current_trace().thought("waiting")
        time.sleep(seconds)
        return "done"

    before = time.time()
    agent(calls("I wait.", wait={"seconds": 0.02}), answer_of("fin"), tools=[wait]).invoke(
        {"messages": "go"}, config
    )

    began = [fact.started_at_s for fact in notebook.run.facts]
    _, (_, call_id, _), (_, _, inside), *_ = facts(notebook, "call_id", "parent")
    assert before - 0.01 <= began[0] <= began[3] <= time.time() - 0.02
    assert began[4] - began[3] >= 0.019
    assert inside == call_id is not None


def test_each_model_call_tells_its_model_tokens_and_time_once(config, notebook):
    used = {"input_tokens": 9, "output_tokens": 4, "total_tokens": 13}
    turn = calls("I add.", add={"a": 1, "b": 2})
    turn.usage_metadata = used
    turn.response_metadata = {"model_name": "m-1"}
    answer = AIMessage("3", usage_metadata=used, response_metadata={"model_name": "m-2"})

    agent(turn, answer, tools=[add]).invoke({"messages": "go"}, config)

    assert facts(notebook, "model", "input_tokens", "output_tokens") == [
        ("thought", "m-1", 9, 4),
        ("tool_call", None, None, None),
        ("observation", None, None, None),
        ("thought", "m-2", 9, 4),
    ]
    took = [fact.model_latency_ms for fact in notebook.run.facts if fact.model]
    assert all(0 < ms < 10_000 for ms in took)
    assert (notebook.run.input_tokens, notebook.run.output_tokens) == (18, 8)
