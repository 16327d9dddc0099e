"""The span processor: it copies what each span tells, and holds it until its run is over."""

from functools import lru_cache, partial
from typing import Final
from weakref import WeakSet

from kp_middleware import KnowledgePulse
from kp_middleware.confidence import Confidences
from kp_middleware.errors import MissingExtraError
from kp_middleware.recording import Here, Recording, current_recorder, register_finder, shield
from kp_middleware.spans.dialects import Attributes, Event, Reading, kept, kind_of, read
from kp_middleware.spans.held_runs import HeldRuns
from kp_middleware.spans.held_span import Scope

try:
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
    from opentelemetry.trace import StatusCode
except ModuleNotFoundError as exc:
    raise MissingExtraError("otel") from exc

_OPENINFERENCE: Final = "openinference.instrumentation."
_NAMES: Final = {"gcp.vertex.agent": "google_adk", "strands.telemetry.tracer": "strands"}
_SWITCHES: Final = {
    "agent_framework": "ENABLE_SENSITIVE_DATA=true",
    "google_adk": "OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental and "
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_AND_EVENT",
    "pydantic_ai": "InstrumentationSettings(include_content=True)",
    "openai_agents": "RunConfig(trace_include_sensitive_data=True)",
}
_TOLD_BY_LANGCHAIN: Final = (
    *("openinference.instrumentation.langchain", "opentelemetry.instrumentation.langchain"),
    "langsmith",
)
_LANGCHAIN: Final = frozenset({"langchain", "langgraph"})


class KPSpanProcessor(SpanProcessor):
    """Records the runs of agents whose framework, or an instrumentor of it, makes spans.

    It never raises. A run is recorded when its outermost span of an agent or workflow has ended and
    no span in it is open, or 5 s later. Spans that are not sampled are not told to any processor.

    Args:
        kp: The pipeline that takes the traces; None means ``KnowledgePulse.default()``.
        domain: The domain, which selects the weights of the score; None means the pipeline's.
        confidence: Extractors of the confidence from a run's result.

    >>> from opentelemetry.sdk.trace import TracerProvider
    >>> provider = TracerProvider()
    >>> with KnowledgePulse(db=":memory:", embedder=None) as kp:
    ...     provider.add_span_processor(KPSpanProcessor(kp))
    """

    def __init__(
        self,
        kp: Recording | None = None,
        *,
        domain: str | None = None,
        confidence: Confidences = None,
    ) -> None:
        kp = KnowledgePulse.default() if kp is None else kp
        self._held = HeldRuns(kp, domain=domain, confidence=confidence)
        _processors.add(self)

    @property
    def without_content(self) -> int:
        """The number of runs that told nothing that was said, and so were not recorded."""
        return self._held.without_content

    @shield
    def on_start(self, span: Span, parent_context: Context | None = None) -> None:  # noqa: ARG002
        """Hold a place for a span."""
        own, around, scope = span.context, span.parent, span.instrumentation_scope
        told_by = scope.name if scope is not None else ""
        if own is None or (told_by in _TOLD_BY_LANGCHAIN and _is_in_langchain()):
            return
        parent_id = None if around is None or around.is_remote else around.span_id
        attributes = span.attributes
        kind = kind_of(attributes) if attributes else None
        at_s = (span.start_time or 0) / 1e9
        told = None
        if kind == "agent" and attributes:
            told = partial(read, span.name, kept(attributes, with_input=True), kind=kind)
        self._held.start(own.span_id, parent_id, scope_of(told_by), span.name, at_s, kind, told)

    @shield
    def on_end(self, span: ReadableSpan) -> None:
        """Copy what a span tells; with the last one of a run, record the run."""
        own = span.context
        held = self._held.get(None if own is None else own.span_id)
        if held is None or held.ended_s is not None:
            return
        attributes = span.attributes or {}
        kind = held.kind or kind_of(attributes)
        at_s = (span.end_time or 0) / 1e9
        if kind is None:
            self._held.finish(held.id, None, partial(Reading, None), at_s)
            return
        told = kept(attributes, with_input=kind != "model" or self._held.wants_input(held.id))
        events: tuple[Event, ...] = ()
        if span.events:
            events = tuple(Event(event.name, event.attributes or {}) for event in span.events)
        reading = partial(
            read,
            span.name,
            told,
            events,
            kind=kind,
            failed=span.status.status_code is StatusCode.ERROR,
            description=span.status.description,
        )
        size_bytes = _size_of(told)
        for event in events:
            size_bytes += _size_of(event.attributes)
        self._held.finish(held.id, kind, reading, at_s, size_bytes)

    @shield
    def shutdown(self) -> None:
        """Record what is open as incomplete."""
        self._held.close()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:  # noqa: ARG002
        """Return at once: nothing waits to be sent."""
        return True

    def here(self, span_id: int) -> Here | None:
        """Return the run that a span belongs to, or None."""
        return self._held.here(span_id)


def enable(
    kp: Recording | None = None,
    *,
    domain: str | None = None,
    confidence: Confidences = None,
) -> KPSpanProcessor:
    """Record every run that tells the global tracer provider; make one if there is none.

    The arguments are those of `KPSpanProcessor`, which it returns; its ``shutdown()`` ends the
    recording of what is open.
    """
    processor = KPSpanProcessor(kp, domain=domain, confidence=confidence)
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        provider = TracerProvider()
        trace.set_tracer_provider(provider)
    provider.add_span_processor(processor)
    return processor


@lru_cache(256)
def scope_of(name: str) -> Scope:
    """Return an instrumentation by its name.

    >>> scope_of("openinference.instrumentation.smolagents").framework
    'smolagents'
    """
    short = name.removeprefix(_OPENINFERENCE).removeprefix("opentelemetry.instrumentation.")
    framework = _NAMES.get(short, short.partition(".")[0].replace("-", "_")) or "opentelemetry"
    scope = Scope(
        name,
        framework,
        is_of_agents=name.startswith(_OPENINFERENCE),
        leaves_open=framework == "smolagents",
    )
    return scope._replace(switch=_SWITCHES.get(framework, scope.switch))


def _size_of(attributes: Attributes) -> int:
    return sum(len(value) for value in attributes.values() if type(value) is str)


def _is_in_langchain() -> bool:
    recorder = current_recorder()
    return recorder is not None and recorder.framework in _LANGCHAIN


def _run_here() -> Here | None:
    if not _processors:
        return None
    span_id = trace.get_current_span().get_span_context().span_id
    places = (one.here(span_id) for one in [*_processors]) if span_id else ()
    return next((place for place in places if place is not None), None)


_processors: WeakSet[KPSpanProcessor] = WeakSet()
register_finder(_run_here)
