"""LangSmith's tracer, Langfuse's handler and OpenInference's instrumentor, without a network.

``with by_langsmith() as watch: agent.invoke(inputs, {"callbacks": watch.callbacks})``, and then
``watch.seen()`` is what it would have sent: a tree, without ids and times.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
import requests
from langsmith import Client, tracing_context

try:
    from langfuse import Langfuse
    from langfuse.langchain import CallbackHandler
    from openinference.instrumentation.langchain import LangChainInstrumentor
    from opentelemetry import trace
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
except ModuleNotFoundError as missing:
    pytest.skip(
        f"{missing.name} is not installed: run .ci/versions requirements/matrix/peers.lock",
        allow_module_level=True,
    )

_CHANGES = re.compile(
    r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}"  # ids
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?"  # times
    r"|0x[0-9a-f]+"  # places in memory
    r"|(?<=, line )\d+"  # in tracebacks through threads
)
_PLACES = {"id", "trace_id", "dotted_order", "parent_run_id", "start_time", "end_time"}


class PeerView(NamedTuple):
    """A peer at work: what to put into the config, and what it has seen."""

    callbacks: list[Any]
    seen: Callable[[], list[Any]]


class LangSmithSession(requests.Session):
    """Takes what LangSmith would send."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: dict[str, dict[str, Any]] = {}

    def request(self, method: str, url: str, **options: Any) -> requests.Response:
        if method in {"POST", "PATCH"}:
            sent = json.loads(options["data"])
            run = self.runs.setdefault(sent.get("id") or url.rsplit("/", 1)[-1], {})
            run.update({key: value for key, value in sent.items() if value is not None})
        response = requests.Response()
        response.status_code = 202
        response._content = b"{}"
        response.request = requests.Request(method, url).prepare()
        return response


@contextmanager
def by_langsmith() -> Iterator[PeerView]:
    """As its environment variable does it: LangChain itself adds the tracer."""
    wire = LangSmithSession()
    client = Client(
        "http://127.0.0.1:9", api_key="x", session=wire, info={}, auto_batch_tracing=False
    )
    with tracing_context(enabled=True, client=client, project_name="p"):
        yield PeerView([], lambda: _tree_of_runs(wire.runs))


@contextmanager
def by_langfuse() -> Iterator[PeerView]:
    kept = InMemorySpanExporter()
    langfuse = Langfuse(
        public_key="pk-lf-x",
        secret_key="sk-lf-x",
        base_url="http://127.0.0.1:9",
        span_exporter=kept,
        tracer_provider=TracerProvider(),
    )
    yield PeerView([CallbackHandler(public_key="pk-lf-x")], lambda: _tree_of_spans(kept))
    langfuse.shutdown()
    langfuse._resources.reset()


@contextmanager
def by_openinference() -> Iterator[PeerView]:
    provider, kept = _kept_spans()
    instrumentor = LangChainInstrumentor()
    instrumentor.instrument(tracer_provider=provider, skip_dep_check=True)
    yield PeerView([], lambda: _tree_of_spans(kept))
    instrumentor.uninstrument()


class Program:
    """A program that makes spans of its own, with OpenTelemetry."""

    def __init__(self) -> None:
        provider, self._kept = _kept_spans()
        self.span = provider.get_tracer("program").start_as_current_span

    def parents(self) -> dict[str, str | None]:
        """By name of each span: its parent, where that is the program's own or nobody."""
        spans = self._kept.get_finished_spans()
        names = {span.context.span_id: span.name for span in spans}
        return {span.name: names.get(_parent(span), _parent(span) and "other") for span in spans}


def is_in_a_span() -> bool:
    """Return whether a span is open."""
    return trace.get_current_span().get_span_context().is_valid


def names_in(tree: list[Any]) -> list[str]:
    """The names of all runs or spans, each before those inside it."""
    return [name for node in tree for name in (node["name"], *names_in(node["inside"]))]


def _kept_spans() -> tuple[TracerProvider, InMemorySpanExporter]:
    provider, kept = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    return provider, kept


def _tree_of_runs(runs: dict[str, dict[str, Any]]) -> list[Any]:
    facts = [
        (key, run.get("parent_run_id"), {k: v for k, v in run.items() if k not in _PLACES})
        for key, run in runs.items()
    ]
    return _tree(facts)


def _tree_of_spans(kept: InMemorySpanExporter) -> list[Any]:
    spans = sorted(kept.get_finished_spans(), key=lambda span: span.start_time or 0)
    return _tree([(span.context.span_id, _parent(span), _facts(span)) for span in spans])


def _parent(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def _facts(span: ReadableSpan) -> dict[str, Any]:
    return {
        "name": span.name,
        "kind": span.kind.name,
        "status": (span.status.status_code.name, span.status.description),
        "attributes": dict(span.attributes or {}),
        "events": [(event.name, dict(event.attributes or {})) for event in span.events],
    }


def _tree(facts: list[tuple[Any, Any, dict[str, Any]]]) -> list[Any]:
    """The roots, with what is inside each; ``root`` is False where a stranger is the parent."""
    nodes = {key: _unchanging(fact) | {"inside": []} for key, _, fact in facts}
    roots = []
    for key, parent, _ in facts:
        nodes[key]["root"] = parent is None
        (nodes[parent]["inside"] if parent in nodes else roots).append(nodes[key])
    return roots


def _unchanging(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unchanging(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_unchanging(inner) for inner in value]
    return _CHANGES.sub("<>", value) if isinstance(value, str) else value
