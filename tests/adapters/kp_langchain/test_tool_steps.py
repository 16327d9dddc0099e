"""Steps of tools and retrievers, and their results."""

import threading

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import create_retriever_tool, tool
from scripted_agents import Shelf, add, agent, look_up
from scripted_models import ScriptedModel, answer_of, calls
from versions import AgentExecutor, Command, create_tool_calling_agent
from ways_to_run import ainvoke, astream, invoke, stream


def test_case_02_parallel_calls_are_announced_together_and_may_end_in_another_order(
    config, notebook
):
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

    agent(turn, answer_of("done"), tools=[slow, quick, release]).invoke({"messages": "go"}, config)

    assert notebook.story[:4] == [
        "thought: All.",
        "tool_call slow(name='a')",
        "tool_call quick(name='b')",
        "tool_call release(name='c')",
    ]
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


def test_case_06_of_a_message_or_a_command_from_a_tool_its_text_is_kept(config, notebook):
    @tool(response_format="content_and_artifact")
    def fetch(url: str) -> tuple[str, dict]:
        """Fetch a page, and more than the model is told."""
        return f"page {url}", {"raw": "huge"}

    @tool
    def command(url: str) -> Command:
        """Fetch a page by a command."""
        message = ToolMessage(f"via command: {url}", tool_call_id='call-command-{"url": "v"}')
        return Command(update={"messages": [message]})

    turns = calls(fetch={"url": "u"}, command={"url": "v"}), answer_of("done")
    agent(*turns, tools=[fetch, command]).invoke({"messages": "go"}, config)

    assert "observation fetch: page u" in notebook.story
    assert "observation command: via command: v" in notebook.story
    assert "huge" not in notebook.trace.model_dump_json()


def test_a_tool_may_be_given_arguments_of_any_name(handler, notebook):
    add.run({"a": 1, "b": 2}, callbacks=[handler], given="by", outcome="of", serialized_as="ours")

    assert notebook.story == ["tool_call add(a=1, b=2)", "observation add: 3"]


def test_case_11_a_retriever_inside_a_tool_is_that_tool(config, notebook):
    search = create_retriever_tool(Shelf(), "search", "Search the shelf.")
    searching = agent(calls(search={"query": "books"}), answer_of("found"), tools=[search])

    searching.invoke({"messages": "find books"}, config)

    assert notebook.story == [
        "tool_call search(query='books')",
        "observation search: on books\n\nits index",
        "thought: found",
    ]


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


PROMPT = ChatPromptTemplate.from_messages(
    [("human", "{input}"), ("placeholder", "{agent_scratchpad}")]
)


def executor(*turns, tools=(add,)):
    tools = list(tools)
    agent = create_tool_calling_agent(ScriptedModel(turns=list(turns)), tools, PROMPT)
    return AgentExecutor(agent=agent, tools=tools)


@pytest.mark.parametrize("way", [invoke, ainvoke, stream, astream])
def test_case_12_its_actions_are_not_counted_twice(config, notebook, way):
    way(
        executor(calls("I add.", add={"a": 1, "b": 2}), answer_of("It is 3.")),
        {"input": "1+2"},
        config,
    )

    assert notebook.story == [
        "thought: I add.",
        "tool_call add(a=1, b=2)",
        "observation add: 3",
        "thought: It is 3.",
    ]
    assert notebook.trace.task.objective == "1+2"
    assert notebook.trace.outcome.result_summary == "It is 3."


def test_case_03_tool_runs_that_do_not_say_their_call_are_matched_by_tool(config, notebook):
    both = calls("Both.", add={"a": 1, "b": 2}, look_up={"word": "kp"})

    executor(both, answer_of("done"), tools=[add, look_up]).invoke({"input": "1+2"}, config)

    assert sorted(notebook.story) == sorted(
        [
            "thought: Both.",
            "tool_call add(a=1, b=2)",
            "tool_call look_up(word='kp')",
            "observation add: 3",
            "observation look_up: Error: kp is not in the book",
            "thought: done",
        ]
    )
