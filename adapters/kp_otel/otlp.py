"""Runs as spans of the GenAI conventions, sent by OpenTelemetry's own exporter."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import chain, repeat
from typing import Final, NamedTuple, TypeAlias

from kp_middleware.errors import MissingExtraError, RegistryRejectedError, RegistryUnavailableError
from kp_middleware.instants import epoch_s
from kp_middleware.runs import ExportedRun, StepFacts
from kp_middleware.spans.messages import Json
from kp_middleware.traces import ReasoningTrace, Step

try:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags
except ModuleNotFoundError as exc:
    raise MissingExtraError("otlp") from exc

__all__ = ["OTLPExporter"]

_SCOPE: Final = InstrumentationScope("kp-middleware")
_CALLS: Final = frozenset({"thought", "tool_call"})
_Steps: TypeAlias = list[tuple[Step, StepFacts]]


class OTLPExporter:
    """Sends runs to a backend of OpenTelemetry, for `KnowledgePulse.add_exporter`.

    A run is a span of its agent with its score, signals and decision, and in it those of its
    models and tools. The ids of a run are always the same.

    Args:
        endpoint: Where traces go, such as ``http://localhost:6006/v1/traces``; None means what
            ``OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`` and its like say.
        headers: For each request, such as an authorization.
        service_name: The service that the backend shows.
        timeout_s: Of a request.
        exporter: Sends the spans in place of the usual one, such as OpenTelemetry's by gRPC.

    Attributes:
        name: By which it is known in the file.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        service_name: str = "kp-middleware",
        timeout_s: float = 10.0,
        exporter: SpanExporter | None = None,
    ) -> None:
        self.name = f"otlp {endpoint or 'as in the environment'}"
        self._resource = Resource.create({"service.name": service_name})
        if exporter is None:
            try:
                from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            except ModuleNotFoundError as exc:
                raise MissingExtraError("otlp") from exc
            given = dict(headers or {}) or None
            exporter = OTLPSpanExporter(endpoint, headers=given, timeout=timeout_s)
        self._exporter: SpanExporter = exporter

    def __call__(self, run: ExportedRun, /) -> None:
        """Send a run.

        Raises:
            RegistryRejectedError: If the backend refuses this one and takes others.
            RegistryUnavailableError: If it takes nothing.
        """
        spans = [*_spans_of(run, self._resource)]
        for _ in range(2):
            if self._takes(spans):
                return
            if not self._takes(()):
                raise RegistryUnavailableError(f"{self.name} takes no spans; see the log")
        raise RegistryRejectedError(400, f"{self.name} refuses the run; see the log")

    def _takes(self, spans: Sequence[ReadableSpan]) -> bool:
        return self._exporter.export(spans) is SpanExportResult.SUCCESS


class _Told(NamedTuple):
    """A span before it has an id; the problem of one that failed."""

    name: str
    attributes: Json
    began_s: float
    took_ms: float | None
    error: str | None


def _spans_of(run: ExportedRun, resource: Resource) -> Iterator[ReadableSpan]:
    """Yield the spans of a run, that of its agent first."""
    root: SpanContext | None = None
    for number, told in enumerate(_told(run)):
        trace_id, span_id = _id(run.trace_id, 16), _id(f"{run.trace_id} {number}", 8)
        flags = TraceFlags(TraceFlags.SAMPLED)
        context = SpanContext(trace_id, span_id, is_remote=False, trace_flags=flags)
        began_ns = round(told.began_s * 1000) * 1_000_000
        yield ReadableSpan(
            told.name,
            context=context,
            parent=root,
            resource=resource,
            attributes={key: value for key, value in told.attributes.items() if value is not None},
            status=Status() if told.error is None else Status(StatusCode.ERROR, told.error),
            instrumentation_scope=_SCOPE,
            start_time=began_ns,
            end_time=began_ns + int((told.took_ms or 0) * 1e6),
        )
        root = root or context


def _id(name: str, size: int) -> int:
    return int.from_bytes(sha256(name.encode()).digest()[:size])


def _told(run: ExportedRun) -> Iterator[_Told]:
    trace, began_s = ReasoningTrace.model_validate_json(run.body), epoch_s(run.started_at)
    name = f"invoke_agent {run.agent_name or trace.metadata.framework or 'agent'}"
    is_well = trace.metadata.success or run.state == "incomplete"
    error = None if is_well else run.error_type
    yield _Told(name, _agent(run, trace), began_s, run.duration_ms, error)
    asked = [trace.task.objective]
    waiting: _Steps = []
    for part in _parts(zip(trace.steps, chain(run.steps, repeat(StepFacts())), strict=False)):
        step, facts = part[0]
        if step.type in _CALLS:
            waiting += [one for one in part if one[0].type == "tool_call"]
            if facts.model is None and all(one.type != "thought" for one, _ in part):
                continue  # tools that a program calls itself are no turn
            took_ms = facts.model_latency_ms
            name, attributes = f"chat {facts.model or ''}".strip(), _model(part, asked)
            asked = []
        elif step.tool is not None:
            took_ms, call = step.latency_ms, _answered(step, facts, waiting)
            name, attributes = f"execute_tool {step.tool.name}", _tool(step, facts, call)
        else:
            asked.append(step.content or step.output_summary or "")
            continue
        attributes |= {"gen_ai.agent.name": facts.agent} if facts.agent else {}
        error = step.output_summary or "" if step.type == "error_recovery" else None
        at_s = began_s if facts.started_at_s is None else facts.started_at_s
        yield _Told(name, attributes, at_s, took_ms, error)


def _parts(steps: Iterable[tuple[Step, StepFacts]]) -> list[_Steps]:
    """Return the steps of each span: all of one turn of a model are together."""
    parts: list[_Steps] = []
    for step, facts in steps:
        is_call = step.type in _CALLS and facts.model is None
        if is_call and parts and parts[-1][0][0].type in _CALLS:
            parts[-1].append((step, facts))
        else:
            parts.append([(step, facts)])
    return parts


def _answered(step: Step, facts: StepFacts, waiting: _Steps) -> Step | None:
    """Return the call that a step answers, and take it from those that wait."""
    tool = step.tool and step.tool.name
    named = [one for one in waiting if one[0].tool and one[0].tool.name == tool]
    same = [one for one in named if facts.call_id and one[1].call_id == facts.call_id] or named
    if not same:
        return None
    waiting.remove(same[0])
    return same[0][0]


def _agent(run: ExportedRun, trace: ReasoningTrace) -> Json:
    asked, outcome = trace.task.objective, trace.outcome
    return {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": run.agent_name,
        "gen_ai.conversation.id": run.thread_id,
        "gen_ai.request.model": run.model,
        "gen_ai.usage.input_tokens": run.input_tokens,
        "gen_ai.usage.output_tokens": run.output_tokens,
        "gen_ai.input.messages": _messages("user", [asked]),
        "gen_ai.output.messages": _messages("assistant", [outcome.result_summary]),
        "error.type": run.error_type,
        **_shown("AGENT", asked, outcome.result_summary),
        "kp.trace.id": run.trace_id,
        "kp.state": run.state,
        "kp.score": run.score,
        **{f"kp.signal.{name}": value for name, value in run.signals.items()},
        "kp.decision": run.decision,
        "kp.reason": run.reason_code,
        "kp.gate": run.gate,
        "kp.domain": trace.metadata.task_domain,
        "kp.success": trace.metadata.success,
        "kp.confidence": outcome.confidence,
    }


def _model(part: _Steps, asked: Iterable[str]) -> Json:
    facts = part[0][1]
    said = [
        step.content or ""
        if step.type == "thought"
        else {
            "type": "tool_call",
            "id": own.call_id,
            "name": step.tool.name if step.tool else "",
            "arguments": step.input or {},
        }
        for step, own in part
    ]
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": facts.model,
        "gen_ai.usage.input_tokens": facts.input_tokens,
        "gen_ai.usage.output_tokens": facts.output_tokens,
        "gen_ai.input.messages": _messages("user", asked),
        "gen_ai.output.messages": _messages("assistant", said),
        **_shown("LLM", None, " ".join(one for one in said if isinstance(one, str))),
    }


def _tool(step: Step, facts: StepFacts, call: Step | None) -> Json:
    given = None if call is None else json.dumps(call.input or {})
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": step.tool.name if step.tool else None,
        "gen_ai.tool.call.id": facts.call_id,
        "gen_ai.tool.call.arguments": given,
        "gen_ai.tool.call.result": step.output_summary,
        **_shown("TOOL", given, step.output_summary),
    }


def _shown(kind: str, given: str | None, result: str | None) -> Json:
    """Return what backends of OpenInference show."""
    return {"openinference.span.kind": kind, "input.value": given, "output.value": result}


def _messages(role: str, said: Iterable[str | Json]) -> str | None:
    """Return a message of the texts that are not empty, and of calls; None without any."""
    parts = [
        {"type": "text", "content": one} if isinstance(one, str) else one for one in said if one
    ]
    return json.dumps([{"role": role, "parts": parts}]) if parts else None
