"""What recording LangChain costs the agent: beside no handler, an empty one, and other tracers.

    make bench          beside LangSmith's tracer, which comes with LangChain
    make bench-peers    beside Langfuse, OpenInference, MLflow and Opik as well, in an environment
                        of their own

All take turns in one run. Times are the fastest round: what is slower is the neighbours. After each
turn, what waits in the background is waited for; the last column has what that costs as well.
"""

import asyncio
import gc
import logging
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
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
EVENTS: Final = 200  # in a round
ENDS: Final = 100  # in a round
PAUSE_S: Final = 0.005  # the worker comes to rest, as it does between two runs of an agent
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
    """A handler to measure, or none; and how it is made to do what it does in the background."""

    name: str
    handlers: list[BaseCallbackHandler]
    flush: Callable[[], object] = lambda: None


class Turn(NamedTuple):
    """What is measured, again and again, and what is done after each measurement."""

    run: Callable[[], object]
    flush: Callable[[], object]


class Cost(NamedTuple):
    """Microseconds a call: until it returns, and of all processors until all is done."""

    wall_us: float
    cpu_us: float


def fastest(turns: Sequence[Turn], repeat: int = 1) -> list[Cost]:
    """Each one's fastest rounds; they take turns."""
    best = [Cost(float("inf"), float("inf"))] * len(turns)
    for _ in range(ROUNDS):
        for number, turn in enumerate(turns):
            gc.collect()
            cost, least = _cost(turn, repeat), best[number]
            best[number] = Cost(min(least.wall_us, cost.wall_us), min(least.cpu_us, cost.cpu_us))
    return best


def _cost(turn: Turn, repeat: int) -> Cost:
    spent, started = time.process_time(), time.perf_counter()
    for _ in range(repeat):
        turn.run()
    took = time.perf_counter() - started
    turn.flush()
    return Cost(took / repeat * 1e6, (time.process_time() - spent) / repeat * 1e6)


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
    took = {}
    for kind, event in events.items():
        turns = [
            Turn(partial(event, parent), candidate.flush)
            for parent, candidate in zip(parents, candidates, strict=True)
        ]
        took[kind] = [cost.wall_us for cost in fastest(turns, repeat=EVENTS)]
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
            for _ in range(EVENTS):
                await run_async_tool(parent)
            best[number] = min(best[number], (time.perf_counter() - started) / EVENTS * 1e6)
            candidates[number].flush()
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
    """An agent run of twenty turns, 166 events, in microseconds: sync, async, and all it costs."""
    agent, async_agent = (
        create_agent(Scripted(), [look_up]),
        create_agent(Scripted(), [look_up_async]),
    )
    inputs, limit = {"messages": "go"}, {"recursion_limit": 100}

    def sync_run(candidate: Candidate) -> None:
        agent.invoke(inputs, {"callbacks": candidate.handlers, **limit})

    def async_run(candidate: Candidate) -> None:
        asyncio.run(async_agent.ainvoke(inputs, {"callbacks": candidate.handlers, **limit}))

    costs, async_costs = (
        fastest([Turn(partial(run, c), c.flush) for c in candidates])
        for run in (sync_run, async_run)
    )
    return {
        "sync run, x": [cost.wall_us for cost in costs],
        "async run, x": [cost.wall_us for cost in async_costs],
        "CPU, all threads, x": [cost.cpu_us for cost in costs],
    }


def special_cases(kp: KnowledgePulse) -> Table:
    """A huge result, a very long run, and the end of a run."""
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

    table = Table("what", "took", "target", box=None)
    (cost,) = fastest([Turn(huge_result, lambda: None)])
    table.add_row("a tool result of 10 MB", f"{cost.wall_us / 1e3:.3f} ms", "< 1 ms")
    steps = [thousand_steps() for _ in range(10)]
    for number in (0, 4, 9):
        table.add_row(
            f"steps {number * 1000:,} to {number * 1000 + 999:,}", f"{steps[number]:.1f} ms", "even"
        )
    for name, handlers in (("no handler", []), ("kp-middleware", [handler])):
        ends_us = _ends_of_runs(handlers, kp)
        took = f"{ends_us[ENDS // 2]:.1f}, {ends_us[ENDS * 99 // 100]:.1f} µs"
        target = "p99 < 50 µs" if handlers else ""
        table.add_row(f"end of a run, p50 and p99, {name}", took, target)
    return table


def _ends_of_runs(handlers: list[BaseCallbackHandler], kp: KnowledgePulse) -> list[float]:
    """What the end of an agent's run takes on its own thread, sorted; the best of some rounds."""
    rounds = [sorted(_end_of_run_us(handlers, kp) for _ in range(ENDS)) for _ in range(5)]
    return [min(at) for at in zip(*rounds, strict=True)]


def _end_of_run_us(handlers: list[BaseCallbackHandler], kp: KnowledgePulse) -> float:
    agent = CallbackManager(handlers, inheritable_handlers=handlers).on_chain_start(
        None, {"messages": HISTORY[:1]}, name="agent"
    )
    children = agent.get_child()
    for _ in range(TURNS):
        run_tool(children)
    started = time.perf_counter()
    agent.on_chain_end({"messages": HISTORY})
    took = time.perf_counter() - started
    kp.flush()
    time.sleep(PAUSE_S)
    return took * 1e6


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
            Candidate("kp-middleware", [KPCallbackHandler(kp)], kp.flush),
            *(Candidate(peer.name, [peer.handler], peer.flush) for peer in installed_peers()),
        ]
        console = Console(width=120)
        console.print(peers_table(candidates))
        console.print(special_cases(kp))
        console.file.flush()
    os._exit(0)  # peers wait for servers that are not there


def peers_table(candidates: Sequence[Candidate]) -> Table:
    """Each handler beside none."""
    added, runs = added_per_event(candidates), whole_runs(candidates)
    table = Table("added per event, µs", *added, *runs, box=None)
    for number, candidate in enumerate(candidates):
        table.add_row(
            candidate.name,
            *(f"{us[number]:.1f}" for us in added.values()),
            *(f"{us[number] / us[0]:.2f}" for us in runs.values()),
        )
    table.add_row("target", *(f"≤ {TARGETS[kind]}" for kind in added), *["≤ 1.10"] * 2)
    return table


if __name__ == "__main__":
    main()
