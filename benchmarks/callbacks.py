"""The agent's cost of recording LangChain, beside no handler, an empty one, and other tracers.

    make bench          beside LangSmith's tracer, which comes with LangChain
    make bench-peers    beside Langfuse, OpenInference, MLflow and Opik as well, in an environment
                        of their own

All take turns in one run. Times are the fastest round: what is slower is the neighbors. After each
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

from _agent_events import Scripted, chain, look_up, look_up_async, model, run_async_tool, run_tool
from _special_cases import special_cases
from langchain.agents import create_agent
from langchain_core.callbacks import AsyncCallbackManager, BaseCallbackHandler, CallbackManager
from peers import installed_peers
from rich.console import Console
from rich.table import Table

from kp_langchain import KPCallbackHandler
from kp_middleware import KnowledgePulse

ROUNDS: Final = 10
EVENTS: Final = 20  # in a round
TARGETS: Final = {"chain": 5, "model": 15, "tool": 5, "async tool": 12}


class EmptyHandler(BaseCallbackHandler):
    """An inline handler that does nothing: the least that any handler costs."""

    run_inline = True

    def on_chain_start(self, *args: Any, **kwargs: Any) -> None: ...
    def on_chain_end(self, *args: Any, **kwargs: Any) -> None: ...
    def on_chat_model_start(self, *args: Any, **kwargs: Any) -> None: ...
    def on_llm_end(self, *args: Any, **kwargs: Any) -> None: ...
    def on_tool_start(self, *args: Any, **kwargs: Any) -> None: ...
    def on_tool_end(self, *args: Any, **kwargs: Any) -> None: ...


class Candidate(NamedTuple):
    """A handler to measure, or none; and how its background work is waited for."""

    name: str
    handlers: list[BaseCallbackHandler]
    flush: Callable[[], object] = lambda: None


class Turn(NamedTuple):
    """A function to measure again and again, and one to call after each measurement."""

    run: Callable[[], object]
    flush: Callable[[], object]


class Cost(NamedTuple):
    """Microseconds a call: until it returns, and of all processors until all is done."""

    wall_us: float
    cpu_us: float


def fastest(turns: Sequence[Turn], repeat: int = 1) -> list[Cost]:
    """Return each one's fastest rounds; they take turns."""
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


def added_per_event(candidates: Sequence[Candidate]) -> dict[str, list[float]]:
    """Return microseconds beside no handler, by kind of event, for each candidate."""
    managers = [CallbackManager(c.handlers, inheritable_handlers=c.handlers) for c in candidates]
    agents = [manager.on_chain_start(None, {}, name="agent") for manager in managers]
    took = {}
    for kind, event in {"chain": chain, "model": model, "tool": run_tool}.items():
        turns = [
            Turn(partial(event, agent.get_child()), candidate.flush)
            for agent, candidate in zip(agents, candidates, strict=True)
        ]
        took[kind] = [cost.wall_us for cost in fastest(turns, repeat=EVENTS)]
    for agent in agents:
        agent.on_chain_end({})
    took["async tool"] = asyncio.run(_async_tools(candidates))
    return {kind: [(us - all_us[0]) / 2 for us in all_us] for kind, all_us in took.items()}


async def _async_tools(candidates: Sequence[Candidate]) -> list[float]:
    best = [float("inf")] * len(candidates)
    agents = []
    for candidate in candidates:
        manager = AsyncCallbackManager(candidate.handlers, inheritable_handlers=candidate.handlers)
        agents.append(await manager.on_chain_start(None, {}, name="agent"))
    for _ in range(ROUNDS):
        for number, (agent, candidate) in enumerate(zip(agents, candidates, strict=True)):
            children, started = agent.get_child(), time.perf_counter()
            for _ in range(EVENTS):
                await run_async_tool(children)
            best[number] = min(best[number], (time.perf_counter() - started) / EVENTS * 1e6)
            candidate.flush()
    for agent in agents:
        await agent.on_chain_end({})
    return best


def whole_runs(candidates: Sequence[Candidate]) -> dict[str, list[float]]:
    """Measure an agent run of 166 events, in microseconds: sync, async, and in all."""
    agent, async_agent = (
        create_agent(Scripted(), [look_up]),
        create_agent(Scripted(), [look_up_async]),
    )
    inputs, limit = {"messages": [("user", "go")]}, {"recursion_limit": 100}

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
            Candidate("an empty handler", [EmptyHandler()]),
            Candidate("kp-middleware", [KPCallbackHandler(kp)], kp.flush),
            *(Candidate(peer.name, [peer.handler], peer.flush) for peer in installed_peers()),
        ]
        console = Console(width=120)
        console.print(peers_table(candidates))
        console.print(special_cases(kp))
        console.file.flush()
    os._exit(0)  # peers wait for servers that are not there


def peers_table(candidates: Sequence[Candidate]) -> Table:
    """Return a table of each handler beside none."""
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
