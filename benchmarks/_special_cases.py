"""The handler's cost where it could be high: a huge result, a long run, a run's end."""

import time
from collections.abc import Iterator, Sequence
from typing import Final

from _agent_events import HISTORY, TURNS, run_tool
from langchain_core.callbacks import (
    BaseCallbackHandler,
    CallbackManager,
    CallbackManagerForChainRun,
)
from langchain_core.messages import ToolMessage
from rich.table import Table

from kp_langchain import KPCallbackHandler
from kp_middleware import KnowledgePulse

ROUNDS: Final = 5
ENDS: Final = 100  # in a round
END_ROUNDS: Final = 3
PAUSE_S: Final = 0.005  # the worker comes to rest, as it does between two runs of an agent


def special_cases(kp: KnowledgePulse) -> Table:
    """Return a table of the cases, with their targets."""
    table = Table("what", "took", "target", box=None)
    table.add_row("a tool result of 10 MB", f"{_huge_result_ms(kp):.3f} ms", "< 1 ms")
    for first, took_ms in [*enumerate(_thousands_of_steps_ms(kp))][::4]:
        steps = f"steps {first * 1000:,} to {first * 1000 + 999:,}"
        table.add_row(steps, f"{took_ms:.1f} ms", "even")
    for name, handlers, target in (
        ("no handler", [], ""),
        ("kp-middleware", [KPCallbackHandler(kp)], "p99 < 50 µs"),
    ):
        ends_us = _ends_us(handlers, kp)
        took = f"{ends_us[ENDS // 2]:.1f} and {ends_us[ENDS * 99 // 100]:.1f} µs"
        table.add_row(f"end of a run, CPU p50 and p99: {name}", took, target)
    return table


def _huge_result_ms(kp: KnowledgePulse) -> float:
    children = _agent([KPCallbackHandler(kp)]).get_child()
    huge = ToolMessage("x" * 10_000_000, tool_call_id="c1")

    def once() -> float:
        started = time.perf_counter()
        children.on_tool_start({"name": "t"}, "", inputs={}).on_tool_end(huge)
        return (time.perf_counter() - started) * 1e3

    return min(once() for _ in range(ROUNDS))


def _thousands_of_steps_ms(kp: KnowledgePulse) -> Iterator[float]:
    children = _agent([KPCallbackHandler(kp)]).get_child()
    for _ in range(9):
        started = time.perf_counter()
        for _ in range(500):
            run_tool(children)
        yield (time.perf_counter() - started) * 1e3


def _ends_us(handlers: Sequence[BaseCallbackHandler], kp: KnowledgePulse) -> list[float]:
    """Return the CPU of the agent's thread at the end of a run, each rank at its best round."""
    rounds = [sorted(_end_us(handlers, kp) for _ in range(ENDS)) for _ in range(END_ROUNDS)]
    return [min(rank) for rank in zip(*rounds, strict=True)]


def _end_us(handlers: Sequence[BaseCallbackHandler], kp: KnowledgePulse) -> float:
    agent = _agent(handlers)
    children = agent.get_child()
    for _ in range(TURNS):
        run_tool(children)
    started = time.thread_time()
    agent.on_chain_end({"messages": HISTORY})
    took = time.thread_time() - started
    kp.flush()
    time.sleep(PAUSE_S)
    return took * 1e6


def _agent(handlers: Sequence[BaseCallbackHandler]) -> CallbackManagerForChainRun:
    manager = CallbackManager([*handlers], inheritable_handlers=[*handlers])
    return manager.on_chain_start(None, {"messages": HISTORY[:1]}, name="agent")
