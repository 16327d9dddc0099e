"""Export runs as spans of the GenAI conventions, through OpenTelemetry's own exporter."""

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
_TURN_TYPES: Final = frozenset({"thought", "tool_call"})
_Steps: TypeAlias = list[tuple[Step, StepFacts]]


class OTLPExporter:
    """Send runs to an OpenTelemetry backend; pass it to `KnowledgePulse.add_exporter`.

    A run becomes an agent span with its score, signals and decision, and child spans of its models
    and tools. Exporting a run again gives the same ids.

    Args:
        endpoint: The URL for traces, such as ``http://localhost:6006/v1/traces``; None means that
            of ``OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`` or ``OTEL_EXPORTER_OTLP_ENDPOINT``.
        headers: Headers of each request, such as an authorization.
        service_name: The name of the service in the backend.
        timeout_s: The timeout of a request.
        exporter: A span exporter to use instead, such as OpenTelemetry's for gRPC.

    Attributes:
        name: The exporter's name in the database.
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
            sent = dict(headers or {}) or None
            exporter = OTLPSpanExporter(endpoint, headers=sent, timeout=timeout_s)
        self._exporter: SpanExporter = exporter

    def __call__(self, run: ExportedRun, /) -> None:
        """Send a run.

        Raises:
            RegistryRejectedError: If the backend rejects this run but accepts others.
            RegistryUnavailableError: If the backend accepts nothing.
        """
        spans = [*_spans_of(run, self._resource)]
        for _ in range(2):
            if self._export(spans):
                return
            if not self._export(()):
                raise RegistryUnavailableError(f"{self.name} accepts no spans; see the log")
        raise RegistryRejectedError(400, f"{self.name} rejected the run; see the log")

    def _export(self, spans: Sequence[ReadableSpan]) -> bool:
        return self._exporter.export(spans) is SpanExportResult.SUCCESS


class _SpanData(NamedTuple):
    """A span without its ids; ``error`` is the message of a failed one."""

    name: str
    attributes: Json
    started_s: float
    took_ms: float | None
    error: str | None


def _spans_of(run: ExportedRun, resource: Resource) -> Iterator[ReadableSpan]:
    root: SpanContext | None = None
    for number, data in enumerate(_span_data(run)):
        trace_id, span_id = _id(run.trace_id, 16), _id(f"{run.trace_id} {number}", 8)
        flags = TraceFlags(TraceFlags.SAMPLED)
        context = SpanContext(trace_id, span_id, is_remote=False, trace_flags=flags)
        began_ns = round(data.started_s * 1000) * 1_000_000
        yield ReadableSpan(
            data.name,
            context=context,
            parent=root,
            resource=resource,
            attributes={key: value for key, value in data.attributes.items() if value is not None},
            status=Status() if data.error is None else Status(StatusCode.ERROR, data.error),
            instrumentation_scope=_SCOPE,
            start_time=began_ns,
            end_time=began_ns + int((data.took_ms or 0) * 1e6),
        )
        root = root or context


def _id(name: str, size: int) -> int:
    return int.from_bytes(sha256(name.encode()).digest()[:size])


def _span_data(run: ExportedRun) -> Iterator[_SpanData]:
    trace, started_s = ReasoningTrace.model_validate_json(run.body), epoch_s(run.started_at)
    name = f"invoke_agent {run.agent_name or trace.metadata.framework or 'agent'}"
    has_failed = not trace.metadata.success and run.state != "incomplete"
    error = run.error_type if has_failed else None
    yield _SpanData(name, _agent_attributes(run, trace), started_s, run.duration_ms, error)
    requests = [trace.task.objective]
    pending: _Steps = []
    for part in _group_steps(zip(trace.steps, chain(run.steps, repeat(StepFacts())), strict=False)):
        step, facts = part[0]
        if step.type in _TURN_TYPES:
            pending += [one for one in part if one[0].type == "tool_call"]
            if facts.model is None and all(one.type != "thought" for one, _ in part):
                continue  # calls by a program, not by a model
            took_ms, name = facts.model_latency_ms, f"chat {facts.model or ''}".strip()
            attributes, requests = _model_attributes(part, requests), []
        elif step.tool is not None:
            took_ms, call = step.latency_ms, _take_call(step, facts, pending)
            name, attributes = f"execute_tool {step.tool.name}", _tool_attributes(step, facts, call)
        else:
            requests.append(step.content or step.output_summary or "")
            continue
        attributes |= {"gen_ai.agent.name": facts.agent} if facts.agent else {}
        error = step.output_summary or "" if step.type == "error_recovery" else None
        at_s = started_s if facts.started_at_s is None else facts.started_at_s
        yield _SpanData(name, attributes, at_s, took_ms, error)


def _group_steps(steps: Iterable[tuple[Step, StepFacts]]) -> list[_Steps]:
    """Group the steps by span: all steps of a model's turn together."""
    parts: list[_Steps] = []
    for step, facts in steps:
        is_call = step.type in _TURN_TYPES and facts.model is None
        if is_call and parts and parts[-1][0][0].type in _TURN_TYPES:
            parts[-1].append((step, facts))
        else:
            parts.append([(step, facts)])
    return parts


def _take_call(step: Step, facts: StepFacts, pending: _Steps) -> Step | None:
    """Remove the call that a step answers from the pending ones, and return it."""
    tool = step.tool and step.tool.name
    by_tool = [one for one in pending if one[0].tool and one[0].tool.name == tool]
    by_id = [one for one in by_tool if facts.call_id and one[1].call_id == facts.call_id]
    call = next(iter(by_id or by_tool), None)
    if call is None:
        return None
    pending.remove(call)
    return call[0]


def _agent_attributes(run: ExportedRun, trace: ReasoningTrace) -> Json:
    objective, outcome = trace.task.objective, trace.outcome
    return {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": run.agent_name,
        "gen_ai.conversation.id": run.thread_id,
        "gen_ai.request.model": run.model,
        "gen_ai.usage.input_tokens": run.input_tokens,
        "gen_ai.usage.output_tokens": run.output_tokens,
        "gen_ai.input.messages": _messages("user", [objective]),
        "gen_ai.output.messages": _messages("assistant", [outcome.result_summary]),
        "error.type": run.error_type,
        **_openinference("AGENT", objective, outcome.result_summary),
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


def _model_attributes(part: _Steps, requests: Iterable[str]) -> Json:
    facts = part[0][1]
    output = [
        step.content or ""
        if step.type == "thought"
        else {
            "type": "tool_call",
            "id": step_facts.call_id,
            "name": step.tool.name if step.tool else "",
            "arguments": step.input or {},
        }
        for step, step_facts in part
    ]
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": facts.model,
        "gen_ai.usage.input_tokens": facts.input_tokens,
        "gen_ai.usage.output_tokens": facts.output_tokens,
        "gen_ai.input.messages": _messages("user", requests),
        "gen_ai.output.messages": _messages("assistant", output),
        **_openinference("LLM", None, " ".join(text for text in output if isinstance(text, str))),
    }


def _tool_attributes(step: Step, facts: StepFacts, call: Step | None) -> Json:
    arguments = None if call is None else json.dumps(call.input or {})
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": step.tool.name if step.tool else None,
        "gen_ai.tool.call.id": facts.call_id,
        "gen_ai.tool.call.arguments": arguments,
        "gen_ai.tool.call.result": step.output_summary,
        **_openinference("TOOL", arguments, step.output_summary),
    }


def _openinference(kind: str, arguments: str | None, result: str | None) -> Json:
    return {"openinference.span.kind": kind, "input.value": arguments, "output.value": result}


def _messages(role: str, contents: Iterable[str | Json]) -> str | None:
    """Return a message of calls and non-empty texts as JSON; None without any."""
    parts = [
        {"type": "text", "content": content} if isinstance(content, str) else content
        for content in contents
        if content
    ]
    return json.dumps([{"role": role, "parts": parts}]) if parts else None
