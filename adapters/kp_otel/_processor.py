"""The span processor, which copies each span into a buffer until its run ends."""

from functools import lru_cache, partial
from itertools import chain
from typing import Final
from weakref import WeakSet

from kp_middleware import KnowledgePulse
from kp_middleware.confidence import Confidences
from kp_middleware.errors import MissingExtraError
from kp_middleware.recording import CurrentRun, Recording, current_recorder, register_finder, shield
from kp_middleware.spans.buffer import SpanBuffer
from kp_middleware.spans.dialects import (
    Event,
    Scope,
    SpanContent,
    read_span,
    select_attributes,
    span_kind,
)

try:
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
    from opentelemetry.trace import StatusCode
except ModuleNotFoundError as exc:
    raise MissingExtraError("otel") from exc

_OPENINFERENCE: Final = "openinference.instrumentation."
_FRAMEWORKS: Final = {"gcp.vertex.agent": "google_adk", "strands.telemetry.tracer": "strands"}
_CONTENT_SETTINGS: Final = {
    "agent_framework": "ENABLE_SENSITIVE_DATA=true",
    "google_adk": "OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental and "
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_AND_EVENT",
    "pydantic_ai": "InstrumentationSettings(include_content=True)",
    "openai_agents": "RunConfig(trace_include_sensitive_data=True)",
}
_LANGCHAIN_SCOPES: Final = (
    *("openinference.instrumentation.langchain", "opentelemetry.instrumentation.langchain"),
    "langsmith",
)
_LANGCHAIN_FRAMEWORKS: Final = frozenset({"langchain", "langgraph"})


class KPSpanProcessor(SpanProcessor):
    """Record the runs of agents whose framework, or an instrumentor for it, makes spans.

    Never raises. Records a run when its outermost agent or workflow span has ended and no span in
    it is open, or 5 s later. OpenTelemetry passes only sampled spans to processors.

    Args:
        kp: The pipeline that records the runs; None means ``KnowledgePulse.default()``.
        domain: The domain, which selects the scoring weights; None means the pipeline's.
        confidence: Functions that extract the confidence from a run's result.

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
        self._buffer = SpanBuffer(kp, domain=domain, confidence=confidence)
        _buffers.add(self._buffer)

    @shield
    def on_start(self, span: Span, parent_context: Context | None = None) -> None:  # noqa: ARG002
        """Buffer a span."""
        context, parent = span.context, span.parent
        scope_name = span.instrumentation_scope.name if span.instrumentation_scope else ""
        if context is None:
            return
        parent_id = None if parent is None or parent.is_remote else parent.span_id
        scope = _scope_of(scope_name)
        if scope_name in _LANGCHAIN_SCOPES:
            recorder = current_recorder()
            if recorder is not None and recorder.framework in _LANGCHAIN_FRAMEWORKS:
                self._buffer.drop(parent_id, scope)
                return
        attributes, at_s, read = span.attributes or {}, (span.start_time or 0) / 1e9, None
        kind = span_kind(attributes)
        if kind == "agent":
            copied = select_attributes(attributes, with_input=True)
            read = partial(read_span, span.name, copied, kind=kind)
        self._buffer.start(context.span_id, parent_id, scope, span.name, at_s, kind, read)

    @shield
    def on_end(self, span: ReadableSpan) -> None:
        """Copy the content of a span; record the run if this was its last span."""
        context = span.context
        buffered = self._buffer.get(None if context is None else context.span_id)
        if buffered is None or buffered.ended_s is not None:
            return
        attributes, at_s = span.attributes or {}, (span.end_time or 0) / 1e9
        kind = buffered.kind or span_kind(attributes)
        if kind is None:
            self._buffer.finish(buffered.id, None, partial(SpanContent, None), at_s)
            return
        with_input = kind != "model" or self._buffer.needs_input(buffered.id)
        copied = select_attributes(attributes, with_input=with_input)
        events = [Event(event.name, event.attributes or {}) for event in span.events]
        read = partial(
            read_span,
            span.name,
            copied,
            events,
            kind=kind,
            failed=span.status.status_code is StatusCode.ERROR,
            description=span.status.description,
        )
        texts = chain(copied.values(), *(event.attributes.values() for event in events))
        size_bytes = sum(len(text) for text in texts if type(text) is str)
        self._buffer.finish(buffered.id, kind, read, at_s, size_bytes)

    @shield
    def shutdown(self) -> None:
        """Record open runs as incomplete."""
        self._buffer.close()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:  # noqa: ARG002
        """Return at once: there is nothing to flush."""
        return True


def enable(
    kp: Recording | None = None,
    *,
    domain: str | None = None,
    confidence: Confidences = None,
) -> KPSpanProcessor:
    """Record every run whose spans reach the global tracer provider; set one if there is none.

    Takes the arguments of `KPSpanProcessor` and returns the processor; its ``shutdown()`` records
    open runs as incomplete.
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
    """Return the scope of a name such as ``openinference.instrumentation.agno``."""
    short = name.removeprefix(_OPENINFERENCE).removeprefix("opentelemetry.instrumentation.")
    framework = _FRAMEWORKS.get(short, short.partition(".")[0].replace("-", "_")) or "opentelemetry"
    return Scope(
        name,
        framework,
        _CONTENT_SETTINGS.get(framework, "your instrumentation's setting to capture messages"),
        is_of_agents=name.startswith(_OPENINFERENCE),
        leaves_open=framework == "smolagents",
        turns_fail=framework == "openai_agents",
    )


def _find_current_run() -> CurrentRun | None:
    if not _buffers:
        return None
    span_id = trace.get_current_span().get_span_context().span_id
    found = [(buffer, span) for buffer in [*_buffers] if (span := buffer.get(span_id))]
    own = (one for one in found if one[1].outermost().scope.name not in _LANGCHAIN_SCOPES)
    places = (buffer.run_of(span.id) for buffer, span in own)
    return next((place for place in places if place is not None), None)


_buffers: WeakSet[SpanBuffer] = WeakSet()
register_finder(_find_current_run)
