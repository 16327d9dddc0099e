"""Runs as spans of the GenAI conventions, sent by OpenTelemetry's own exporter."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import chain, repeat
from typing import Any, Final, NamedTuple, TypeAlias

from kp_middleware.errors import MissingExtraError, RegistryRejectedError, RegistryUnavailableError
from kp_middleware.instants import epoch_s
from kp_middleware.runs import ExportedRun, StepFacts
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
        self._exporter = exporter or _by_http(endpoint, dict(headers or {}), timeout_s)

    def __call__(self, run: ExportedRun, /) -> None:
        """Send a run.

        Raises:
            RegistryRejectedError: If the backend refuses this one and takes others.
            RegistryUnavailableError: If it takes nothing.
        """
        spans = [*spans_of(run, self._resource)]
        for _ in range(2):
            if self._takes(spans):
                return
            if not self._takes(()):
                raise RegistryUnavailableError(f"{self.name} takes no spans; see the log")
        raise RegistryRejectedError(400, f"{self.name} refuses the run; see the log")

    def _takes(self, spans: Sequence[ReadableSpan]) -> bool:
        return self._exporter.export(spans) is SpanExportResult.SUCCESS


def _by_http(endpoint: str | None, headers: dict[str, str], timeout_s: float) -> SpanExporter:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ModuleNotFoundError as exc:
        raise MissingExtraError("otlp") from exc
    made: SpanExporter = OTLPSpanExporter(endpoint, headers=headers or None, timeout=timeout_s)
    return made


class _Told(NamedTuple):
    """A span before it has an id; the problem of one that failed."""

    name: str
    attributes: Mapping[str, Any]
    began_ns: int
    ended_ns: int
    problem: str | None


def spans_of(run: ExportedRun, resource: Resource) -> Iterator[ReadableSpan]:
    """Yield the spans of a run, that of its agent first."""
    root: SpanContext | None = None
    for number, told in enumerate(_told(run)):
        context = SpanContext(
            _id(run.trace_id, 16),
            _id(f"{run.trace_id} {number}", 8),
            is_remote=False,
            trace_flags=TraceFlags(TraceFlags.SAMPLED),
        )
        yield ReadableSpan(
            told.name,
            context=context,
            parent=root,
            resource=resource,
            attributes={key: value for key, value in told.attributes.items() if value is not None},
            status=Status() if told.problem is None else Status(StatusCode.ERROR, told.problem),
            instrumentation_scope=_SCOPE,
            start_time=told.began_ns,
            end_time=told.ended_ns,
        )
        root = root or context


def _told(run: ExportedRun) -> Iterator[_Told]:
    trace = ReasoningTrace.model_validate_json(run.body)
    began_ns = _ns(epoch_s(run.started_at))
    ended_ns = began_ns + int((run.duration_ms or 0) * 1e6)
    name = f"invoke_agent {run.agent_name or trace.metadata.framework or 'agent'}"
    is_well = trace.metadata.success or run.state == "incomplete"
    yield _Told(name, _agent(run, trace), began_ns, ended_ns, None if is_well else run.error_type)
    asked = [trace.task.objective]
    waiting: _Steps = []
    all_facts = chain(run.steps, repeat(StepFacts()))
    for part in _parts(zip(trace.steps, all_facts, strict=False)):
        step, facts = part[0]
        at_ns = began_ns if facts.started_at_s is None else _ns(facts.started_at_s)
        if step.type in _CALLS:
            waiting += [one for one in part if one[0].type == "tool_call"]
            if facts.model is None and all(one.type != "thought" for one, _ in part):
                continue  # tools that a program calls itself are no turn
            latency_ms = facts.model_latency_ms
            name, attributes = f"chat {facts.model or ''}".strip(), _model(part, asked)
            asked = []
        elif step.tool is not None:
            latency_ms = step.latency_ms
            call = _answered(step, facts, waiting)
            name, attributes = f"execute_tool {step.tool.name}", _tool(step, facts, call)
        else:
            asked.append(step.content or step.output_summary or "")
            continue
        attributes |= {"gen_ai.agent.name": facts.agent} if facts.agent else {}
        problem = step.output_summary or "" if step.type == "error_recovery" else None
        yield _Told(name, attributes, at_ns, at_ns + int((latency_ms or 0) * 1e6), problem)


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


def _agent(run: ExportedRun, trace: ReasoningTrace) -> dict[str, Any]:
    metadata, outcome = trace.metadata, trace.outcome
    signals = {f"kp.signal.{name}": value for name, value in run.signals.items()}
    return {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": run.agent_name,
        "gen_ai.conversation.id": run.thread_id,
        "gen_ai.request.model": run.model,
        "gen_ai.usage.input_tokens": run.input_tokens,
        "gen_ai.usage.output_tokens": run.output_tokens,
        "gen_ai.input.messages": _messages("user", [_text(trace.task.objective)]),
        "gen_ai.output.messages": _messages("assistant", [_text(outcome.result_summary)]),
        "error.type": run.error_type,
        **_shown("AGENT", trace.task.objective, outcome.result_summary),
        "kp.trace.id": run.trace_id,
        "kp.state": run.state,
        "kp.score": run.score,
        **signals,
        "kp.decision": run.decision,
        "kp.reason": run.reason_code,
        "kp.gate": run.gate,
        "kp.domain": metadata.task_domain,
        "kp.success": metadata.success,
        "kp.confidence": outcome.confidence,
    }


def _model(part: _Steps, asked: Iterable[str]) -> dict[str, Any]:
    facts = part[0][1]
    said = [
        _text(step.content or "")
        if step.type == "thought"
        else {
            "type": "tool_call",
            "id": own.call_id,
            "name": step.tool.name if step.tool else "",
            "arguments": step.input or {},
        }
        for step, own in part
    ]
    texts = " ".join(step.content or "" for step, _ in part if step.type == "thought")
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": facts.model,
        "gen_ai.usage.input_tokens": facts.input_tokens,
        "gen_ai.usage.output_tokens": facts.output_tokens,
        "gen_ai.input.messages": _messages("user", [_text(one) for one in asked]),
        "gen_ai.output.messages": _messages("assistant", said),
        **_shown("LLM", None, texts),
    }


def _tool(step: Step, facts: StepFacts, call: Step | None) -> dict[str, Any]:
    given = None if call is None else json.dumps(call.input or {})
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": step.tool.name if step.tool else None,
        "gen_ai.tool.call.id": facts.call_id,
        "gen_ai.tool.call.arguments": given,
        "gen_ai.tool.call.result": step.output_summary,
        **_shown("TOOL", given, step.output_summary),
    }


def _shown(kind: str, given: str | None, result: str | None) -> dict[str, Any]:
    """Return what backends of OpenInference show."""
    return {"openinference.span.kind": kind, "input.value": given, "output.value": result}


def _text(words: str) -> dict[str, Any]:
    return {"type": "text", "content": words}


def _messages(role: str, parts: Sequence[Mapping[str, Any]]) -> str | None:
    said = [part for part in parts if part.get("content", True)]
    return json.dumps([{"role": role, "parts": said}]) if said else None


def _id(name: str, size: int) -> int:
    return int.from_bytes(sha256(name.encode()).digest()[:size])


def _ns(at_s: float) -> int:
    return round(at_s * 1000) * 1_000_000
