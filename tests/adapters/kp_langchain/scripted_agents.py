"""Agents whose models follow a script, and the tools that they use."""

import asyncio
from contextvars import ContextVar

from langchain_core.messages import convert_to_messages
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import StructuredTool, ToolException, tool
from pydantic import Field
from scripted_models import ScriptedModel
from versions import create_agent


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def divide(a: int, b: int) -> float:
    """Divide a number by another."""
    return a / b


def _look_up(word: str) -> str:
    """Look a word up."""
    raise ToolException(f"Error: {word} is not in the book")


look_up = StructuredTool.from_function(_look_up, name="look_up", handle_tool_error=True)
"""It fails softly: its error goes to the model."""


_begun: ContextVar[asyncio.Event] = ContextVar("begun")


@tool
async def wait(seconds: float) -> str:
    """Wait."""
    _begun.get().set()
    await asyncio.sleep(seconds)
    return "waited"


def agent(*turns, tools=(add,), **options):
    """An agent whose model says these turns."""
    return create_agent(ScriptedModel(turns=list(turns)), list(tools), **options)


def chain(*turns, tools=(add,)):
    """What an agent does, made of langchain-core alone."""
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


class HangingModel(ScriptedModel):
    """Says nothing, ever."""

    turns: list = Field(default_factory=list)
    model_name: str = "m-hangs"

    async def _agenerate(self, *_, **__):
        await hang()


async def cancelled(runnable, config):
    """Run it, and cancel it as soon as its tool waits."""
    _begun.set(begun := asyncio.Event())
    running = asyncio.create_task(runnable.ainvoke({"messages": "go"}, config))
    await begun.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def timed_out(runnable, config):
    """Run it, and let its time be over as soon as its tool waits."""
    _begun.set(begun := asyncio.Event())
    async with asyncio.timeout(60) as limit:
        waiting = asyncio.create_task(begun.wait())
        waiting.add_done_callback(lambda _: limit.reschedule(0))
        await runnable.ainvoke({"messages": "go"}, config)
