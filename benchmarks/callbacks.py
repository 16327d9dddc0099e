"""What recording LangChain costs the agent: beside no handler, an empty one, and other tracers.

    make bench          beside LangSmith's tracer, which comes with LangChain
    make bench-peers    beside Langfuse and OpenInference as well, in an environment of their own

All take turns in one run. The fastest round is reported: what is slower is the neighbours.
"""

import asyncio
import gc
import logging
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from langchain.agents import create_agent
from langchain_core.callbacks import AsyncCallbackManager, BaseCallbackHandler, CallbackManager
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult, LLMResult
from langchain_core.tools import tool
from peers import installed_peers
from rich.console import Console
from rich.table import Table

from kp_langchain import KPCallbackHandler
from kp_middleware import KnowledgePulse

ROUNDS: Final = 15
TURNS: Final = 20
TARGETS: Final = {"chain": 5, "model": 15, "tool": 5, "async tool": 12}

CALL: Final = {"name": "look_up", "args": {"query": "item " * 16}, "id": "c1", "type": "tool_call"}
SAID: Final = AIMessage("I should look the next item up. " * 10, tool_calls=[CALL])
RESULT: Final = ToolMessage("row " * 200, tool_call_id="c1")
HISTORY: Final[list[BaseMessage]] = [HumanMessage("What is the answer?"), *[SAID, RESULT] * 10]
ANSWER: Final = LLMResult(generations=[[ChatGeneration(message=SAID)]])


class Empty(BaseCallbackHandler):
    """Does nothing, inline: what any handler costs."""

    run_inline = True

    def on_chain_start(self, *args: Any, **kwargs: Any) -> None: ...
    def on_chain_end(self, *args: Any, **kwargs: Any) -> None: ...
    def on_chat_model_start(self, *args: Any, **kwargs: Any) -> None: ...
    def on_llm_end(self, *args: Any, **kwargs: Any) -> None: ...
    def on_tool_start(self, *args: Any, **kwargs: Any) -> None: ...
    def on_tool_end(self, *args: Any, **kwargs: Any) -> None: ...


class Candidate(NamedTuple):
    """A handler to measure, or none."""

    name: str
    handlers: list[BaseCallbackHandler]


def fastest_us(rounds: Sequence[Callable[[], object]], repeat: int = 1) -> list[float]:
    """Each one's fastest round, in microseconds a call; they take turns."""
    best = [float("inf")] * len(rounds)
    for _ in range(ROUNDS):
        for number, run in enumerate(rounds):
            gc.collect()
            started = time.perf_counter()
            for _ in range(repeat):
                run()
            best[number] = min(best[number], (time.perf_counter() - started) / repeat * 1e6)
    return best


def chain(parent: Any) -> None:
    """A node of a graph."""
    parent.on_chain_start(None, {"messages": HISTORY}, name="node").on_chain_end({})


def model(parent: Any) -> None:
    """A chat model that reads ten turns."""
    (run,) = parent.on_chat_model_start({"name": "model"}, [HISTORY])
    run.on_llm_end(ANSWER)


def run_tool(parent: Any) -> None:
    """A tool that a model called."""
    run = parent.on_tool_start({"name": "look_up"}, "", inputs=CALL["args"], tool_call_id="c1")
    run.on_tool_end(RESULT)


async def run_async_tool(parent: Any) -> None:
    """The same in an event loop."""
    run = await parent.on_tool_start({"name": "look_up"}, "", inputs=CALL["args"])
    await run.on_tool_end(RESULT)


def added_per_event(candidates: Sequence[Candidate]) -> dict[str, list[float]]:
    """Microseconds beside no handler, by kind of event, in the order of the candidates."""
    managers = [CallbackManager(c.handlers, inheritable_handlers=c.handlers) for c in candidates]
    parents = [m.on_chain_start(None, {}, name="agent").get_child() for m in managers]
    events = {"chain": chain, "model": model, "tool": run_tool}
    took = {
        kind: fastest_us([lambda p=p, e=event: e(p) for p in parents], repeat=200)
        for kind, event in events.items()
    }
    took["async tool"] = asyncio.run(_async_tools(candidates))
    return {kind: [(us - all_us[0]) / 2 for us in all_us] for kind, all_us in took.items()}


async def _async_tools(candidates: Sequence[Candidate]) -> list[float]:
    best = [float("inf")] * len(candidates)
    parents = []
    for candidate in candidates:
        manager = AsyncCallbackManager(candidate.handlers, inheritable_handlers=candidate.handlers)
        parents.append((await manager.on_chain_start(None, {}, name="agent")).get_child())
    for _ in range(ROUNDS):
        for number, parent in enumerate(parents):
            started = time.perf_counter()
            for _ in range(200):
                await run_async_tool(parent)
            best[number] = min(best[number], (time.perf_counter() - started) / 200 * 1e6)
    return best


class Scripted(BaseChatModel):
    """Calls its tool twenty times, then answers."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, *_: Any, **__: Any) -> "Scripted":
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        turn = len(messages) // 2
        call = {**CALL, "id": f"c{turn}"}
        said = AIMessage(SAID.text, tool_calls=[call]) if turn < TURNS else AIMessage("Done.")
        return ChatResult(generations=[ChatGeneration(message=said)])


@tool
def look_up(query: str) -> str:
    """Look something up."""
    return f"{query}: found " * 20


@tool("look_up")
async def look_up_async(query: str) -> str:
    """Look something up."""
    return f"{query}: found " * 20


def whole_runs(candidates: Sequence[Candidate]) -> dict[str, list[float]]:
    """The fastest whole agent run of twenty turns, in microseconds: sync and async."""
    agent, async_agent = (
        create_agent(Scripted(), [look_up]),
        create_agent(Scripted(), [look_up_async]),
    )
    inputs, limit = {"messages": "go"}, {"recursion_limit": 100}

    def sync_run(candidate: Candidate) -> None:
        agent.invoke(inputs, {"callbacks": candidate.handlers, **limit})

    def async_run(candidate: Candidate) -> None:
        asyncio.run(async_agent.ainvoke(inputs, {"callbacks": candidate.handlers, **limit}))

    return {
        kind: fastest_us([lambda c=c, r=run: r(c) for c in candidates])
        for kind, run in (("sync run", sync_run), ("async run", async_run))
    }


def special_cases(kp: KnowledgePulse) -> Table:
    """A huge result, and a very long run."""
    handler = KPCallbackHandler(kp)
    parent = CallbackManager([handler], inheritable_handlers=[handler])
    children = parent.on_chain_start(None, {}, name="agent").get_child()
    huge = ToolMessage("x" * 10_000_000, tool_call_id="c1")

    def huge_result() -> None:
        children.on_tool_start({"name": "t"}, "", inputs={}).on_tool_end(huge)

    def thousand_steps() -> float:
        started = time.perf_counter()
        for _ in range(500):
            run_tool(children)
        return (time.perf_counter() - started) * 1e3

    table = Table("what", "ms", "target", box=None)
    table.add_row("a tool result of 10 MB", f"{fastest_us([huge_result])[0] / 1e3:.3f}", "< 1")
    steps = [thousand_steps() for _ in range(10)]
    for number in (0, 4, 9):
        table.add_row(
            f"steps {number * 1000:,} to {number * 1000 + 999:,}", f"{steps[number]:.1f}", "even"
        )
    return table


def main() -> None:
    """Print the tables."""
    logging.disable(logging.CRITICAL)
    os.environ["LANGSMITH_TRACING"] = "false"
    with (
        tempfile.TemporaryDirectory() as folder,
        KnowledgePulse(db=Path(folder) / "kp.db", embedder=None) as kp,
    ):
        candidates = [
            Candidate("no handler", []),
            Candidate("an empty handler", [Empty()]),
            Candidate("kp-middleware", [KPCallbackHandler(kp)]),
            *(Candidate(peer.name, [peer.make()]) for peer in installed_peers()),
        ]
        added, runs = added_per_event(candidates), whole_runs(candidates)
        table = Table("added per event, µs", *added, *(f"{kind}, x" for kind in runs), box=None)
        for number, candidate in enumerate(candidates):
            table.add_row(
                candidate.name,
                *(f"{us[number]:.1f}" for us in added.values()),
                *(f"{us[number] / us[0]:.2f}" for us in runs.values()),
            )
        table.add_row("target", *(f"≤ {TARGETS[kind]}" for kind in added), *(["≤ 1.10"] * 2))
        console = Console()
        console.print(table)
        console.print(special_cases(kp))
    os._exit(0)  # peers wait for servers that are not there


if __name__ == "__main__":
    main()
