"""The tracing processor for OpenAI's Agents SDK; it does not import the SDK."""

from collections.abc import Mapping
from time import time
from typing import Any, Final

from kp_middleware import KnowledgePulse
from kp_middleware.confidence import Confidences
from kp_middleware.recording import Recording, shield
from kp_middleware.spans import dialects, errors
from kp_middleware.spans.buffer import SpanBuffer
from kp_middleware.spans.messages import (
    as_dict,
    as_text,
    as_time_s,
    parse_arguments,
    parse_messages,
)

_SCOPE: Final = dialects.Scope(
    "openai_agents",
    "openai_agents",
    "RunConfig(trace_include_sensitive_data=True)",
    turns_fail=True,
)
_KINDS: Final[dict[str, dialects.Kind]] = {
    "agent": "agent",
    "response": "model",
    "generation": "model",
    "function": "tool",
    "handoff": "tool",
    "task": "agent",
    "turn": "chain",
    "guardrail": "guardrail",
}


class KPTracingProcessor:
    """Record each run of an agent of OpenAI's Agents SDK, without OpenTelemetry.

    Never raises, and keeps no objects of the SDK. Each ``Runner.run`` is one run, even if several
    share a ``trace(…)``. The trace's ``group_id`` is the conversation.

    Args:
        kp: The pipeline that records the runs; None means ``KnowledgePulse.default()``.
        domain: The domain, which selects the scoring weights; None means the pipeline's.
        confidence: Functions that extract the confidence from a run's result.
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
        self._conversations: dict[str, str] = {}

    @shield
    def on_trace_start(self, trace: Any) -> None:
        """Remember the conversation of a trace."""
        if conversation := as_text(getattr(trace, "group_id", None)):
            if len(self._conversations) > 1000:
                del self._conversations[next(iter(self._conversations))]
            self._conversations[trace.trace_id] = conversation

    @shield
    def on_trace_end(self, trace: Any) -> None:
        """Forget the conversation of a trace."""
        self._conversations.pop(trace.trace_id, None)

    @shield
    def on_span_start(self, span: Any) -> None:
        """Buffer a span."""
        data, at_s = span.span_data, as_time_s(span.started_at) or time()
        name = as_text(getattr(data, "name", None))
        self._buffer.start(span.span_id, span.parent_id, _SCOPE, name, at_s, _kind_of(data))

    @shield
    def on_span_end(self, span: Any) -> None:
        """Copy the content of a span; record the run if this was its last span."""
        data = span.span_data
        with_input = _kind_of(data) == "model" and self._buffer.needs_input(span.span_id)
        content = _read(data, with_input=with_input)
        if content.kind == "agent":
            content = content._replace(conversation=self._conversations.get(span.trace_id))
        if span.error is not None:
            content = content._replace(error=errors.parse_error(as_dict(span.error)))
        thoughts = () if content.turn is None else content.turn.thoughts
        result = content.result if isinstance(content.result, str) else ""
        size_bytes = sum(map(len, (content.request, result, *thoughts)))
        at_s = as_time_s(span.ended_at) or time()
        self._buffer.finish(span.span_id, content.kind, lambda: content, at_s, size_bytes)

    @shield
    def shutdown(self) -> None:
        """Record open runs as incomplete."""
        self._buffer.close()

    def force_flush(self) -> None:
        """Return at once: there is nothing to flush."""


def _kind_of(data: Any) -> dialects.Kind | None:
    """Return the kind of a span; tasks and turns have theirs in custom data."""
    type_ = getattr(data, "type", None)
    if type_ == "custom":
        type_ = as_dict(getattr(data, "data", None)).get("sdk_span_type")
    return _KINDS.get(as_text(type_))


def _read(data: Any, *, with_input: bool) -> dialects.SpanContent:
    kind, type_ = _kind_of(data), getattr(data, "type", None)
    name, output = as_text(getattr(data, "name", None)), getattr(data, "output", None)
    input_ = getattr(data, "input", None)
    if type_ == "handoff":
        return dialects.handoff_content(str(getattr(data, "to_agent", None) or "another agent"))
    if kind == "tool":
        arguments = None if input_ is None else parse_arguments(_as_data(input_))
        return dialects.SpanContent("tool", name, arguments=arguments, result=_as_data(output))
    if kind != "model":
        return dialects.SpanContent(kind, name if type_ == "agent" else "")
    response = getattr(data, "response", None)
    source = data if response is None else response
    usage = as_dict(_as_data(getattr(data, "usage", None) or getattr(response, "usage", None)))
    return dialects.model_content(
        parse_messages(_as_data(input_), "user") if with_input else [],
        parse_messages(_as_data(getattr(source, "output", None)), "assistant"),
        as_text(getattr(source, "model", None)) or None,
        (usage.get("input_tokens"), usage.get("output_tokens")),
    )


def _as_data(value: Any) -> Any:
    """Convert the SDK's models, also in lists, to dictionaries."""
    if isinstance(value, list | tuple):
        return [_as_data(item) for item in value]
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(exclude_unset=True)
    return dict(value) if isinstance(value, Mapping) else value
