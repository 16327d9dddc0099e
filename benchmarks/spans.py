"""Measure a span on the agent's thread, beside an empty processor and an exporter in memory.

    python benchmarks/spans.py

A run has 16 spans, five of them models that were given 20 KB. All take turns; medians of the
rounds, and of what each adds to the empty processor of its round. The clock has in it what scores
the runs meanwhile, which wants the same interpreter; the thread's own time has not. Between two
rounds, what waits in the background is waited for.
"""

import gc
import json
import logging
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Final

from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kp_middleware import KnowledgePulse
from kp_otel import KPSpanProcessor

ROUNDS: Final = 15
RUNS: Final = 60
SPANS: Final = 16
TARGET_US: Final = 30
ASKED: Final = json.dumps(
    [{"role": "user", "parts": [{"type": "text", "content": "An egg, please. " * 1280}]}]
)


def model_messages(number: int) -> str:
    """Return the messages of a model that calls two tools, or answers."""
    calls = [
        {"type": "tool_call", "id": f"{number} {which}", "name": "boil", "arguments": {"a": 1}}
        for which in "ab"
    ]
    text = {"type": "text", "content": "I boil an egg."}
    return json.dumps([{"role": "assistant", "parts": [text, *(calls if number < 4 else [])]}])


SAID: Final = [model_messages(number) for number in range(5)]


def run(tracer) -> None:
    """Run an agent, five models, ten tools."""
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "cook"}
    with tracer.start_as_current_span("invoke_agent cook", attributes=agent):
        for number in range(5):
            operation = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
            with tracer.start_as_current_span("chat m", attributes=operation) as span:
                span.set_attribute("gen_ai.input.messages", ASKED)
                span.set_attribute("gen_ai.output.messages", SAID[number])
                span.set_attribute("gen_ai.usage.input_tokens", 100)
            for which in "ab":
                tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "boil"}
                with tracer.start_as_current_span("execute_tool boil", attributes=tool) as span:
                    span.set_attribute("gen_ai.tool.call.id", f"{number} {which}")
                    span.set_attribute("gen_ai.tool.call.result", "soft")


def main() -> None:
    """Print microseconds a span: by the clock, and of the thread's own time."""
    logging.disable(logging.CRITICAL)
    with (
        tempfile.TemporaryDirectory() as folder,
        KnowledgePulse(db=Path(folder) / "kp.db", embedder=None) as kp,
    ):
        memory = InMemorySpanExporter()
        candidates = {
            "no processor": [],
            "an empty processor": [SpanProcessor()],
            "SimpleSpanProcessor, in memory": [SimpleSpanProcessor(memory)],
            "kp-middleware": [KPSpanProcessor(kp)],
        }
        took: dict[str, list[tuple[float, float]]] = {name: [] for name in candidates}
        for _ in range(ROUNDS):
            for name, processors in candidates.items():
                provider = TracerProvider(shutdown_on_exit=False)
                for processor in processors:
                    provider.add_span_processor(processor)
                tracer = provider.get_tracer("pydantic-ai")
                gc.collect()
                own, clock = time.thread_time(), time.perf_counter()
                for _ in range(RUNS):
                    run(tracer)
                spent = (time.perf_counter() - clock, time.thread_time() - own)
                wall_us, own_us = (s / RUNS / SPANS * 1e6 for s in spent)
                took[name].append((wall_us, own_us))
                memory.clear()
                kp.flush(600)
        base = took["an empty processor"]
        print(f"{'µs a span':32}{'clock':>8}{'thread':>8}{'added':>8}")
        for name, rounds in took.items():
            wall_us, own_us = (median(times) for times in zip(*rounds, strict=True))
            added_us = median(one[1] - empty[1] for one, empty in zip(rounds, base, strict=True))
            print(f"{name:32}{wall_us:8.1f}{own_us:8.1f}{added_us:8.1f}")
        print(f"target: at most {TARGET_US} added")


if __name__ == "__main__":
    main()
