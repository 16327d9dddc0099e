"""Agents whose models follow a script, and the tools that they use."""

import asyncio
from contextlib import suppress
from contextvars import ContextVar

from langchain_core.documents import Document
from langchain_core.messages import convert_to_messages
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import StructuredTool, ToolException, tool
from pydantic import Field
from scripted_models import ScriptedModel
from versions import START, MessagesState, StateGraph, create_agent

GO = {"messages": "go"}
ADDED = [  # by the agent of the fixture `adding`
    "thought: I need to add.",
    "tool_call add(a=1, b=2)",
    "observation add: 3",
    "thought: The answer is 3.",
]


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def _look_up(word: str) -> str:
    """Look a word up."""
    raise ToolException(f"Error: {word} is not in the book")


look_up = StructuredTool.from_function(_look_up, name="look_up", handle_tool_error=True)
"""It fails softly: its error goes to the model."""


@tool
async def wait(seconds: float) -> str:  # noqa: ARG001 - tools have arguments
    """Wait."""
    await hang()


class Shelf(BaseRetriever):
    """Always finds the same book."""

    def _get_relevant_documents(self, query, *, run_manager):  # noqa: ARG002 - LangChain's
        return [Document(f"on {query}"), Document("its index")]


def agent(*turns, tools=(add,), **options):
    """An agent whose model says these turns."""
    return create_agent(ScriptedModel(turns=list(turns)), list(tools), **options)


def chain(*turns, tools=(add,)):
    """Build an agent of langchain-core alone."""
    model, by_name = ScriptedModel(turns=list(turns)), {tool.name: tool for tool in tools}

    def run(state):
        messages = _conversation(state)
        while (said := model.invoke(messages)).tool_calls:
            results = [by_name[call["name"]].invoke(call) for call in said.tool_calls]
            messages += [said, *results]
        return {"messages": [*messages, said]}

    async def arun(state):
        messages = _conversation(state)
        while (said := await model.ainvoke(messages)).tool_calls:
            results = [await by_name[call["name"]].ainvoke(call) for call in said.tool_calls]
            messages += [said, *results]
        return {"messages": [*messages, said]}

    return RunnableLambda(run, arun)


def _conversation(state):
    given = state["messages"]
    return convert_to_messages([given] if isinstance(given, str) else given)


_hangs: ContextVar[asyncio.Event] = ContextVar("hangs")


async def hang():
    """Never end."""
    if hangs := _hangs.get(None):
        hangs.set()
    await asyncio.Event().wait()


async def within_limit(awaitable):
    """Give it up as soon as it hangs, as ``wait_for`` does when its time is over."""
    _hangs.set(hangs := asyncio.Event())
    async with asyncio.timeout(60) as limit:
        waiting = asyncio.create_task(hangs.wait())
        waiting.add_done_callback(lambda _: limit.reschedule(0))
        return await awaitable


async def cancelled(runnable, config):
    """Run it, and cancel it as soon as it hangs."""
    with suppress(TimeoutError):
        await within_limit(runnable.ainvoke(GO, config))


class HangingModel(ScriptedModel):
    """Says nothing, ever."""

    turns: list = Field(default_factory=list)
    model_name: str = "m-hangs"

    async def _agenerate(self, *_, **__):
        await hang()


def graph_of(nodes, *, state=None, in_turn=False, checkpointer=None, **each):
    """A graph of these nodes, by name: all at once, or each after the one before.

    Args:
        nodes: The functions, by the names of their nodes.
        state: Its state; None means messages.
        in_turn: Whether each begins when the one before has ended.
        checkpointer: Where it keeps its threads.
        each: What else is said of each node.
    """
    graph, before = StateGraph(state or MessagesState), START
    for name, node in nodes.items():
        graph.add_node(name, node, **each)
        graph.add_edge(before, name)
        before = name if in_turn else START
    return graph.compile(checkpointer=checkpointer)


def speaking(*turns):
    """A node whose model says the next of these turns, each time that it runs."""
    model = ScriptedModel(turns=list(turns))
    return lambda state: {"messages": [model.invoke(state["messages"])]}
