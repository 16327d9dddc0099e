"""What a trace says of tools, retrievers and what they give back."""

import threading

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import create_retriever_tool, tool
from scripted_agents import add, agent, divide
from scripted_models import ScriptedModel, calls, says
from versions import Command


def test_an_observation_says_how_long_the_tool_took(adding, config, notebook):
    adding.invoke({"messages": [("user", "What is 1 + 2?")]}, config)

    [observation] = [step for step in notebook.trace.steps if step.type == "observation"]
    assert 0 < observation.latency_ms < 5000


def test_a_tool_result_is_a_summary_because_contents_are_embedded(adding, config, notebook):
    adding.invoke({"messages": [("user", "What is 1 + 2?")]}, config)

    [observation] = [step for step in notebook.trace.steps if step.type == "observation"]
    assert observation.content is None


def test_case_02_parallel_calls_are_announced_together_and_observed_as_they_end(config, notebook):
    both = agent(
        calls("Both.", add={"a": 1, "b": 2}, divide={"a": 1, "b": 2}),
        says("3 and a half"),
        tools=(add, divide),
    )

    both.invoke({"messages": "add and divide"}, config)

    assert notebook.story[:3] == [
        "thought: Both.",
        "tool_call add(a=1, b=2)",
        "tool_call divide(a=1, b=2)",
    ]
    assert sorted(notebook.story[3:5]) == ["observation add: 3", "observation divide: 0.5"]


def test_case_02_parallel_calls_may_end_in_another_order(config, notebook):
    first_may_end = threading.Event()

    @tool
    def slow(name: str) -> str:
        """Take long."""
        first_may_end.wait(5)
        return f"slow {name}"

    @tool
    def quick(name: str) -> str:
        """Take no time."""
        return f"quick {name}"

    @tool
    def release(name: str) -> str:
        """Let the slow one end."""
        first_may_end.set()
        return name

    turn = calls("All.", slow={"name": "a"}, quick={"name": "b"}, release={"name": "c"})

    agent(turn, says("done"), tools=[slow, quick, release]).invoke({"messages": "go"}, config)

    assert sorted(notebook.story[4:7]) == [
        "observation quick: quick b",
        "observation release: c",
        "observation slow: slow a",
    ]
    assert len(notebook.story) == 8


def test_case_03_a_call_that_is_made_without_its_id_is_not_noted_twice(config, notebook):
    model = ScriptedModel(turns=[calls("I add.", add={"a": 1, "b": 2})])
    chain = model | RunnableLambda(lambda said: add.invoke(said.tool_calls[0]["args"]))

    chain.invoke("1 + 2?", config)

    assert notebook.story == ["thought: I add.", "tool_call add(a=1, b=2)", "observation add: 3"]


def test_a_tool_that_no_model_called_is_a_call_of_its_own(config, notebook):
    chain = ScriptedModel(turns=[says("Hm.")]) | RunnableLambda(
        lambda _: add.invoke({"a": 1, "b": 2})
    )

    chain.invoke("1 + 2?", config)

    assert notebook.story == ["thought: Hm.", "tool_call add(a=1, b=2)", "observation add: 3"]


def test_case_08_tools_of_the_models_provider_are_steps(config, notebook):
    said = AIMessage(
        [
            {"type": "server_tool_call", "name": "web_search", "id": "s1", "args": {"q": "x"}},
            {"type": "server_tool_result", "tool_call_id": "s1", "output": "found"},
            {"type": "text", "text": "It is x."},
        ]
    )

    agent(said).invoke({"messages": "What is it?"}, config)

    assert notebook.story == [
        "tool_call web_search(q='x')",
        "observation web_search: found",
        "thought: It is x.",
    ]


def test_case_06_a_message_from_a_tool_is_its_content_without_the_artifact(config, notebook):
    @tool(response_format="content_and_artifact")
    def fetch(url: str) -> tuple[str, dict]:
        """Fetch a page."""
        return f"page {url}", {"raw": "huge"}

    agent(calls(fetch={"url": "u"}), says("done"), tools=[fetch]).invoke({"messages": "go"}, config)

    assert "observation fetch: page u" in notebook.story
    assert "huge" not in notebook.trace.model_dump_json()


def test_case_06_a_command_from_a_tool_is_the_message_inside(config, notebook):
    @tool
    def fetch(url: str) -> Command:
        """Fetch a page."""
        message = ToolMessage(f"via command: {url}", tool_call_id="call-1")
        return Command(update={"messages": [message]})

    turn = AIMessage("", tool_calls=[{"name": "fetch", "args": {"url": "u"}, "id": "call-1"}])

    agent(turn, says("done"), tools=[fetch]).invoke({"messages": "go"}, config)

    assert "observation fetch: via command: u" in notebook.story


def test_a_bare_tool_is_a_run(config, notebook):
    add.invoke({"a": 1, "b": 2}, config)

    assert notebook.story == ["tool_call add(a=1, b=2)", "observation add: 3"]
    assert notebook.trace.outcome.result_summary == "3"


class Shelf(BaseRetriever):
    """Always finds the same book."""

    def _get_relevant_documents(self, query, *, run_manager):  # noqa: ARG002 - LangChain's
        return [Document(f"on {query}"), Document("its index")]


def test_a_tool_may_be_given_arguments_of_any_name(handler, notebook):
    add.run({"a": 1, "b": 2}, callbacks=[handler], given="by", outcome="of", serialized_as="ours")

    assert notebook.story == ["tool_call add(a=1, b=2)", "observation add: 3"]


def test_case_11_a_retriever_is_a_tool(config, notebook):
    Shelf().invoke("books", config)

    assert notebook.story == [
        "tool_call Shelf(query='books')",
        "observation Shelf: on books\n\nits index",
    ]


def test_case_11_a_retriever_inside_a_tool_is_that_tool(config, notebook):
    search = create_retriever_tool(Shelf(), "search", "Search the shelf.")
    searching = agent(calls(search={"query": "books"}), says("found"), tools=[search])

    searching.invoke({"messages": "find books"}, config)

    assert notebook.story == [
        "tool_call search(query='books')",
        "observation search: on books\n\nits index",
        "thought: found",
    ]


def test_a_huge_result_is_cut_and_says_so(config, notebook):
    @tool
    def dump(table: str) -> str:
        """Dump a table."""
        return table * 10_000_000

    agent(calls(dump={"table": "t"}), says("done"), tools=[dump]).invoke({"messages": "go"}, config)

    [observation] = [step for step in notebook.trace.steps if step.type == "observation"]
    assert len(observation.output_summary) < 70_000
    assert observation.output_summary.endswith("[cut: 10000000 characters in all]")


def test_case_03_a_tool_that_a_node_calls_itself_is_another_call_than_the_model_s(config, notebook):
    model = ScriptedModel(turns=[calls(add={"a": 1, "b": 2})])

    def node(_):
        [call] = model.invoke("go").tool_calls
        add.invoke({"a": 5, "b": 5})
        add.invoke(call["args"])

    RunnableLambda(node).invoke("go", config)

    assert notebook.story == [
        "tool_call add(a=1, b=2)",
        "tool_call add(a=5, b=5)",
        "observation add: 10",
        "observation add: 3",
    ]


def test_calls_that_nobody_runs_take_no_more_and_more_memory(handler, config):
    model = ScriptedModel(turns=[calls(add={"a": 1, "b": 2})])

    def ask_for_nothing(_):
        for number in range(3000):
            model.turns[0].tool_calls[0]["id"] = f"call {number % 2000}"
            model.invoke("go")
        [root] = handler._runs._roots.values()
        waiting.append(len(handler._runs._live[root].conversation.pending_calls))

    waiting = []
    RunnableLambda(ask_for_nothing).invoke("go", config)

    assert waiting == [1024]
