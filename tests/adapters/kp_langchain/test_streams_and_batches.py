"""However a runnable is run, its trace is the same."""

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_notebook import comparable
from scripted_agents import add, graph_of, look_up
from scripted_models import ScriptedModel, StreamingModel, answer_of, calls
from versions import ToolNode, create_agent
from ways_to_run import WAYS, invoke

TURNS = [
    calls("Let me add.", add={"a": 1, "b": 2}),
    calls("And look it up.", look_up={"word": "three"}),
    answer_of("The answer is 3."),
]
TOOLS = [add, look_up]


def an_agent(model):
    return create_agent(model, TOOLS), {"messages": [("user", "What is 1 + 2?")]}


def a_graph(model):
    def ask(state):
        return {"messages": [model.invoke(state["messages"])]}

    tools = ToolNode(TOOLS)
    nodes = {"ask": ask, "add": tools, "ask again": ask, "look up": tools, "answer": ask}
    return graph_of(nodes, in_turn=True), {"messages": [HumanMessage("What is 1 + 2?")]}


def a_chain(model):
    prompt = ChatPromptTemplate.from_messages([("human", "Please say: {question}")])
    return prompt | model | StrOutputParser(), {"question": "What is 1 + 2?"}


def a_model(model):
    return model, "What is 1 + 2?"


@pytest.mark.parametrize(
    ("make", "model"),
    [
        (an_agent, ScriptedModel),
        (an_agent, StreamingModel),
        (a_graph, StreamingModel),
        (a_chain, StreamingModel),
        (a_model, StreamingModel),
    ],
)
@pytest.mark.parametrize("way", WAYS)
def test_case_01_every_way_to_run_gives_the_same_trace(config, notebook, way, make, model):
    runnable, given = make(model(turns=TURNS))
    invoke(runnable, given, config)

    way(runnable, given, config)

    invoked, other = notebook.runs
    assert comparable(other) == comparable(invoked)


def test_a_graph_tells_the_whole_story(config, notebook):
    invoke(*a_graph(StreamingModel(turns=TURNS)), config)

    assert notebook.story == [
        "thought: Let me add.",
        "tool_call add(a=1, b=2)",
        "observation add: 3",
        "thought: And look it up.",
        "tool_call look_up(word='three')",
        "error_recovery look_up: Error: three is not in the book",
        "thought: The answer is 3.",
    ]


@pytest.mark.parametrize("stream_mode", ["values", "updates", "messages", "debug"])
def test_case_01_every_stream_mode_gives_the_same_trace(config, notebook, stream_mode):
    agent, given = an_agent(StreamingModel(turns=TURNS))
    invoke(agent, given, config)

    list(agent.stream(given, config, stream_mode=stream_mode))

    invoked, streamed = notebook.runs
    assert comparable(streamed) == comparable(invoked)
