"""An answer that a graph does not take leaves it waiting, and its run as well."""

from contextlib import closing

import pytest
from langchain_core.tools import tool
from langchain_notebook import line_of_row
from pydantic import BaseModel
from scripted_agents import add, agent
from scripted_models import calls, says
from versions import (
    START,
    Command,
    HumanInTheLoopMiddleware,
    InMemorySaver,
    MessagesState,
    StateGraph,
    interrupt,
    needs,
)

from kp_langchain import KPCallbackHandler
from kp_middleware import KnowledgePulse
from kp_middleware.database import connect
from kp_middleware.storage import History
from kp_middleware.views.trace import run_as_json

pytestmark = needs("answers that are refused")

GO = {"messages": "go"}
YES = {"ok": True}


class Consent(BaseModel):
    ok: bool


@tool
def risk(amount: int) -> str:
    """Ask a human first."""
    return f"risked {amount}: {interrupt('may I?', response_schema=Consent)}"


@tool
def risk_in_words(amount: int) -> str:
    """Ask a human first, and complain."""
    try:
        return f"risked {amount}: {interrupt('may I?', response_schema=Consent)}"
    except ValueError as error:
        raise RuntimeError("say yes or no") from error


def risking(tool=risk, **options):
    turns = calls(**{tool.name: {"amount": 5}}), says("done")
    return agent(*turns, tools=[tool], checkpointer=InMemorySaver(), **options)


def reviewed():
    """An agent whose every sum a human allows."""
    each = HumanInTheLoopMiddleware(
        interrupt_on={"add": {"allowed_decisions": ["approve"]}}, interrupt_mode="per_call"
    )
    turns = calls(add={"a": 1, "b": 2}), says("done")
    return agent(*turns, tools=[add], middleware=[each], checkpointer=InMemorySaver())


def asking_in_a_node():
    def ask(_):
        return {"messages": [("ai", f"{interrupt('may I?', response_schema=Consent)}")]}

    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    return graph.compile(checkpointer=InMemorySaver())


@pytest.fixture
def kp(tmp_path):
    with KnowledgePulse(db=tmp_path / "kp.db", embedder=None, sync=True) as kp:
        yield kp


@pytest.fixture
def traces(tmp_path):
    """Reads what is in the file, and the lines of each story."""

    def read():
        with closing(connect(tmp_path / "kp.db", read_only=True)) as connection:
            history = History(connection)
            rows = [
                run_as_json(history.run(history.find(row.id))) for row in history.runs(limit=100)
            ][::-1]
        return [(row, [line_of_row(step).split("\n")[0] for step in row["steps"]]) for row in rows]

    return read


@pytest.fixture
def config(kp):
    return {"callbacks": [KPCallbackHandler(kp)], "configurable": {"thread_id": "T"}}


def refuse(graph, decision, config):
    with pytest.raises((ValueError, RuntimeError)):
        graph.invoke(Command(resume=decision), config)


KINDS = pytest.mark.parametrize(
    ("make", "taken"),
    [
        (risking, YES),
        (lambda: risking(risk_in_words), YES),
        (reviewed, {"type": "approve"}),
        (asking_in_a_node, YES),
    ],
    ids=["a tool", "a tool that says it otherwise", "a middleware", "a node"],
)


@KINDS
@pytest.mark.usefixtures("taken")
def test_a_refused_answer_leaves_the_run_waiting_with_the_answer_in_it(config, traces, make):
    graph = make()
    graph.invoke(GO, config)
    [(_, asked)] = traces()

    refuse(graph, "perhaps", config)

    [(trace, story)] = traces()
    assert (trace["state"], trace["error_type"], trace["objective"]) == ("paused", None, "go")
    assert story[: len(asked) + 1] == [*asked, "observation: perhaps"]


@KINDS
def test_the_answer_that_is_taken_then_ends_the_one_run(config, traces, make, taken):
    graph = make()
    graph.invoke(GO, config)
    refuse(graph, "perhaps", config)
    refuse(graph, "never", config)
    [(_, refused)] = traces()

    graph.invoke(Command(resume=taken), config)

    [(trace, story)] = traces()
    assert (trace["state"], trace["success"], trace["error_type"]) == ("scored", None, None)
    assert story[: len(refused)] == refused
    assert [line for line in story if line.startswith("tool_call")] == [
        line for line in refused if line.startswith("tool_call")
    ]
    assert trace["recovery_count"] == 2


def test_a_question_that_was_answered_wrongly_is_still_found_by_its_id(config, traces):
    asked, other = risking(), risking()
    [question] = asked.invoke(GO, config)["__interrupt__"]
    refuse(asked, {question.id: "perhaps"}, config)
    other.invoke(GO, config)

    asked.invoke(Command(resume={question.id: YES}), config)

    (first, story), (second, _) = traces()
    assert (first["state"], second["state"]) == ("scored", "paused")
    assert story[-2:] == ["observation risk: risked 5: ok=True", "thought: done"]


def test_a_captured_function_may_ask_again_itself(kp, config, traces):
    graph = risking()

    @kp.capture
    def answer(question):
        graph.invoke({"messages": question}, config)
        refuse(graph, "perhaps", config)
        return graph.invoke(Command(resume=YES), config)["messages"][-1].text

    answer("go")

    [(trace, story)] = traces()
    assert (trace["state"], trace["result_summary"]) == ("scored", "done")
    assert story[2] == "observation: perhaps"
    assert [line for line in story if line.startswith("tool_call")] == ["tool_call risk(amount=5)"]


def test_a_run_whose_answer_was_refused_may_end_there(kp, config, traces):
    graph = risking()
    graph.invoke(GO, config)
    refuse(graph, "perhaps", config)

    kp.end_thread("T")

    [(trace, _)] = traces()
    assert (trace["state"], trace["score"]) == ("incomplete", None)
