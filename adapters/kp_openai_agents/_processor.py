"""The tracing processor of OpenAI's Agents SDK, which needs no import of the SDK."""

from collections.abc import Mapping
from time import time
from typing import Any, Final

from kp_middleware import KnowledgePulse
from kp_middleware.confidence import Confidences
from kp_middleware.recording import Recording, shield
from kp_middleware.spans.dialects import (
    Kind,
    Reading,
    ToldError,
    handoff_to,
    model_reading,
    problem_in,
)
from kp_middleware.spans.held_runs import HeldRuns
from kp_middleware.spans.held_span import Scope
from kp_middleware.spans.messages import arguments, fields, messages_in, text, time_s

_SCOPE: Final = Scope(
    "openai_agents", "openai_agents", "RunConfig(trace_include_sensitive_data=True)"
)
_MOST_GROUPS: Final = 1000
_SDK_CLASSES: Final = {"TaskSpanData": "task", "TurnSpanData": "turn"}
_KINDS: Final[dict[str, Kind]] = {
    "agent": "agent",
    "response": "model",
    "generation": "model",
    "function": "tool",
    "handoff": "tool",
    "task": "agent",
    "turn": "chain",
}


class KPTracingProcessor:
    """Records each run of an agent of OpenAI's Agents SDK, without OpenTelemetry.

    It never raises, and keeps no object of the SDK. A ``Runner.run`` is one run; several in one
    ``trace(…)`` stay several. The trace's ``group_id`` is the conversation.

    Args:
        kp: The pipeline that takes the traces; None means ``KnowledgePulse.default()``.
        domain: The domain, which selects the weights of the score; None means the pipeline's.
        confidence: Extractors of the confidence from a run's result.
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
        self._groups: dict[str, str] = {}

    @property
    def without_content(self) -> int:
        """The number of runs that told nothing that was said, and so were not recorded."""
        return self._held.without_content

    @shield
    def on_trace_start(self, trace: Any) -> None:
        """Keep the conversation of a trace."""
        if group := text(getattr(trace, "group_id", None)):
            if len(self._groups) > _MOST_GROUPS:
                del self._groups[next(iter(self._groups))]
            self._groups[trace.trace_id] = group

    @shield
    def on_trace_end(self, trace: Any) -> None:
        """Forget the conversation of a trace; a span may end later."""
        self._groups.pop(trace.trace_id, None)

    @shield
    def on_span_start(self, span: Any) -> None:
        """Hold a place for a span."""
        data, at_s = span.span_data, time_s(span.started_at) or time()
        name = text(getattr(data, "name", None))
        self._held.start(span.span_id, span.parent_id, _SCOPE, name, at_s, _kind_of(data))

    @shield
    def on_span_end(self, span: Any) -> None:
        """Copy what a span tells; with the last one of a run, record the run."""
        data = span.span_data
        with_input = _kind_of(data) == "model" and self._held.wants_input(span.span_id)
        reading = _read(data, with_input=with_input)
        if reading.kind == "agent":
            reading = reading._replace(conversation=self._groups.get(span.trace_id))
        if isinstance(span.error, Mapping):
            reading = reading._replace(problem=problem_in(span.error))
        elif span.error is not None:
            reading = reading._replace(problem=ToldError("Error", str(span.error)))
        said = () if reading.turn is None else reading.turn.thoughts
        result = reading.result if isinstance(reading.result, str) else ""
        size_bytes = sum(map(len, (reading.asked, result, *said)))
        at_s = time_s(span.ended_at) or time()
        self._held.finish(span.span_id, reading.kind, lambda: reading, at_s, size_bytes)

    @shield
    def shutdown(self) -> None:
        """Record what is open as incomplete."""
        self._held.close()

    def force_flush(self) -> None:
        """Return at once: nothing waits to be sent."""


def _kind_of(data: Any) -> Kind | None:
    """Return the kind of a span; a task and a turn say what they are in their own data."""
    said = getattr(data, "type", None)
    if said == "custom":
        own = fields(getattr(data, "data", None))
        said = own.get("sdk_span_type") or _SDK_CLASSES.get(type(data).__name__)
    return _KINDS.get(text(said))


def _read(data: Any, *, with_input: bool) -> Reading:
    kind, said = _kind_of(data), getattr(data, "type", None)
    name, output = text(getattr(data, "name", None)), getattr(data, "output", None)
    given = getattr(data, "input", None)
    if said == "handoff":
        return handoff_to(str(getattr(data, "to_agent", None) or "another agent"))
    if kind == "tool":
        told = None if given is None else arguments(_plain(given))
        return Reading("tool", name, given=told, result=_plain(output))
    if kind != "model":
        return Reading(kind, name if said == "agent" else "")
    response = getattr(data, "response", None)
    told_by = data if response is None else response
    usage = fields(_plain(getattr(data, "usage", None) or getattr(response, "usage", None)))
    return model_reading(
        messages_in(_plain(given), "user") if with_input else [],
        messages_in(_plain(getattr(told_by, "output", None)), "assistant"),
        text(getattr(told_by, "model", None)) or None,
        usage.get("input_tokens"),
        usage.get("output_tokens"),
    )


def _plain(value: Any) -> Any:
    """Return plain data: the SDK's models, in lists, as dictionaries."""
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(exclude_unset=True)
    return dict(value) if isinstance(value, Mapping) else value
