"""The span processor: it copies what each span tells, and holds it until its run is over."""

from functools import lru_cache, partial
from itertools import chain
from typing import Final
from weakref import WeakSet

from kp_middleware import KnowledgePulse
from kp_middleware.confidence import Confidences
from kp_middleware.errors import MissingExtraError
from kp_middleware.recording import Here, Recording, current_recorder, register_finder, shield
from kp_middleware.spans.dialects import Event, Reading, kept, kind_of, read
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
        _held_runs.add(self._held)

    @property
    def without_content(self) -> int:
        """The number of runs that told nothing that was said, and so were not recorded."""
        return self._held.without_content

    @shield
    def on_start(self, span: Span, parent_context: Context | None = None) -> None:  # noqa: ARG002
        """Hold a place for a span."""
        own, around, scope = span.context, span.parent, span.instrumentation_scope
        told_by = scope.name if scope is not None else ""
        if own is None:
            return
        if told_by in _TOLD_BY_LANGCHAIN:
            recorder = current_recorder()
            if recorder is not None and recorder.framework in _LANGCHAIN:
                return
        parent_id = None if around is None or around.is_remote else around.span_id
        attributes, at_s, told = span.attributes or {}, (span.start_time or 0) / 1e9, None
        kind = kind_of(attributes)
        if kind == "agent":
            told = partial(read, span.name, kept(attributes, with_input=True), kind=kind)
        self._held.start(own.span_id, parent_id, _scope_of(told_by), span.name, at_s, kind, told)

    @shield
    def on_end(self, span: ReadableSpan) -> None:
        """Copy what a span tells; with the last one of a run, record the run."""
        own = span.context
        held = self._held.get(None if own is None else own.span_id)
        if held is None or held.ended_s is not None:
            return
        attributes, at_s = span.attributes or {}, (span.end_time or 0) / 1e9
        kind = held.kind or kind_of(attributes)
        if kind is None:
            self._held.finish(held.id, None, partial(Reading, None), at_s)
            return
        told = kept(attributes, with_input=kind != "model" or self._held.wants_input(held.id))
        events = [Event(event.name, event.attributes or {}) for event in span.events]
        reading = partial(
            read,
            span.name,
            told,
            events,
            kind=kind,
            failed=span.status.status_code is StatusCode.ERROR,
            description=span.status.description,
        )
        texts = chain(told.values(), *(event.attributes.values() for event in events))
        size_bytes = sum(len(text) for text in texts if type(text) is str)
        self._held.finish(held.id, kind, reading, at_s, size_bytes)

    @shield
    def shutdown(self) -> None:
        """Record what is open as incomplete."""
        self._held.close()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:  # noqa: ARG002
        """Return at once: nothing waits to be sent."""
        return True


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
def _scope_of(name: str) -> Scope:
    """Return an instrumentation by its name, such as ``openinference.instrumentation.agno``."""
    short = name.removeprefix(_OPENINFERENCE).removeprefix("opentelemetry.instrumentation.")
    framework = _NAMES.get(short, short.partition(".")[0].replace("-", "_")) or "opentelemetry"
    return Scope(
        name,
        framework,
        _SWITCHES.get(framework, "the setting of your instrumentation that captures messages"),
        is_of_agents=name.startswith(_OPENINFERENCE),
        leaves_open=framework == "smolagents",
    )


def _run_here() -> Here | None:
    if not _held_runs:
        return None
    span_id = trace.get_current_span().get_span_context().span_id
    places = (held.here(span_id) for held in [*_held_runs]) if span_id else ()
    return next((place for place in places if place is not None), None)


_held_runs: WeakSet[HeldRuns] = WeakSet()
register_finder(_run_here)
