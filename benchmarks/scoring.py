"""What kp-middleware costs: each figure beside its floor, measured in turns in one run.

    make bench

The figures of a shared machine differ from run to run; the ratios hardly do. The fastest of many
rounds is reported: what is slower than that is the neighbours.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from langchain_core.callbacks import BaseCallbackHandler, CallbackManager
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from rich.console import Console
from rich.table import Table

from kp_langchain import KPCallbackHandler
from kp_middleware import KnowledgePulse, MiniLMEmbedder, ReasoningTrace, Scorer, Step, VectorCache
from kp_middleware.scoring import embedded_text

ROUNDS = 30


class Row(NamedTuple):
    """One line of the table, in microseconds."""

    what: str
    ours_us: float
    floor_us: float
    floor: str
    target: str


class Empty(BaseCallbackHandler):
    """Does nothing, inline: what any handler costs."""

    run_inline = True

    def on_chain_start(self, *args: Any, **kwargs: Any) -> None: ...
    def on_chain_end(self, *args: Any, **kwargs: Any) -> None: ...
    def on_chat_model_start(self, *args: Any, **kwargs: Any) -> None: ...
    def on_llm_end(self, *args: Any, **kwargs: Any) -> None: ...
    def on_tool_start(self, *args: Any, **kwargs: Any) -> None: ...
    def on_tool_end(self, *args: Any, **kwargs: Any) -> None: ...


def fastest_us(*candidates: Callable[[], object], repeat: int = 1) -> list[float]:
    """Each candidate's fastest round, in microseconds a call; they take turns."""
    best = [float("inf")] * len(candidates)
    for _ in range(ROUNDS):
        for number, candidate in enumerate(candidates):
            started = time.perf_counter()
            for _ in range(repeat):
                candidate()
            best[number] = min(best[number], (time.perf_counter() - started) / repeat * 1e6)
    return best


def callback_rows(kp: KnowledgePulse) -> Iterator[Row]:
    """What each kind of event costs beside the same event for an empty handler."""
    call = {"name": "look_up", "args": {"query": "item " * 20, "limit": 3}, "id": "c1"}
    message = AIMessage("I should look the next item up. " * 10, tool_calls=[call])
    history: list[BaseMessage] = [HumanMessage("What is the answer?"), *[message] * 20]
    answer = LLMResult(generations=[[ChatGeneration(message=message)]])

    def chain(parent: Any) -> None:
        parent.on_chain_start(None, {"messages": history}, name="node").on_chain_end({})

    def model(parent: Any) -> None:
        (run,) = parent.on_chat_model_start({"name": "model"}, [history])
        run.on_llm_end(answer)

    def tool(parent: Any) -> None:
        run = parent.on_tool_start({"name": "look_up"}, "", inputs=call["args"], tool_call_id="c1")
        run.on_tool_end("row: " + "lorem ipsum " * 60)

    for name, events, target in (("chain", chain, 5), ("model", model, 15), ("tool", tool, 5)):
        none, empty, ours = (
            _in_a_root(handlers, events) for handlers in ([], [Empty()], [KPCallbackHandler(kp)])
        )
        bare, floor, cost = fastest_us(none, empty, ours, repeat=20)
        added, least = (cost - bare) / 2, (floor - bare) / 2
        yield Row(f"one {name} event", added, least, "an empty handler", f"≤ {target} µs")


def _in_a_root(
    handlers: list[BaseCallbackHandler], events: Callable[[Any], None]
) -> Callable[[], None]:
    manager = CallbackManager(handlers, inheritable_handlers=handlers)
    root = manager.on_chain_start(None, {"messages": []}, name="agent")
    children = root.get_child()
    return lambda: events(children)


def scan_row() -> Row:
    """Find the nearest of 1,000 vectors, beside reading them once."""
    generator = np.random.default_rng(0)
    vectors = generator.standard_normal((1000, 384)).astype(np.float32)
    cache = VectorCache()
    for vector in vectors:
        cache.add(vector)
    flat, query = vectors.ravel(), vectors[7]
    read, nearest = fastest_us(lambda: np.dot(flat, flat), lambda: cache.nearest(query), repeat=50)
    return Row("nearest of 1,000 x 384", nearest, read, "reading them", "≤ 30 µs")


def scoring_rows() -> Iterator[Row]:
    """Score a trace of 40 steps without a model; and a long one with it, beside the bare model."""
    trace = _trace()
    scorer = Scorer()
    (alone,) = fastest_us(lambda: scorer.score(trace), repeat=20)
    yield Row("score without embedder", alone, 0, "", "")
    embedder = MiniLMEmbedder()
    with_model = Scorer(embedder=embedder, cache=VectorCache())
    text = embedded_text(trace)
    bare, whole = fastest_us(lambda: embedder.embed(text), lambda: with_model.score(trace))
    yield Row("whole evaluation, 256 tokens", whole, bare, "the bare model", "≤ 1.10 x")


def _trace() -> ReasoningTrace:
    steps = [
        Step(step_id=number, type="thought", content="I look at the next item of the list.")
        for number in range(40)
    ]
    return ReasoningTrace.of("Find the cheapest flight and book it for me, please.", steps)


def main() -> None:
    """Print the table."""
    table = Table("what", "ours µs", "floor µs", "ratio", "floor", "target", box=None)
    with (
        tempfile.TemporaryDirectory() as folder,
        KnowledgePulse(db=Path(folder) / "kp.db", embedder=None) as kp,
    ):
        for row in (*callback_rows(kp), scan_row(), *scoring_rows()):
            ratio = f"{row.ours_us / row.floor_us:.2f}" if row.floor_us else ""
            floor_us = f"{row.floor_us:.1f}" if row.floor_us else ""
            table.add_row(row.what, f"{row.ours_us:.1f}", floor_us, ratio, row.floor, row.target)
    Console().print(table)


if __name__ == "__main__":
    main()
