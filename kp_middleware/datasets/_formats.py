"""Export formats of other tools, from a run's dialogue."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

from kp_middleware.instants import epoch_s
from kp_middleware.storage import RunDocument, StepRecord
from kp_middleware.traces import ReasoningTrace, Step

Json: TypeAlias = dict[str, Any]

_HARNESS: Final = "kp-middleware"


@dataclass(slots=True)
class DialogueCall:
    """A tool call; ids are ``call_1``, ``call_2`` … in the order of the run."""

    id: str
    tool: str
    arguments: Json
    output: str = ""
    failed: bool = False


@dataclass(slots=True)
class DialogueTurn:
    """A message of a person; or the texts and calls of the agent, with the calls' results.

    The agent's last text is its message, those before are its reasoning.
    """

    is_agent: bool
    texts: list[str] = field(default_factory=list)
    calls: list[DialogueCall] = field(default_factory=list)
    results: list[DialogueCall] = field(default_factory=list)
    first: StepRecord | None = None

    @property
    def role(self) -> str:
        return "assistant" if self.is_agent else "user"

    @property
    def text(self) -> str:
        return self.texts[-1] if self.texts else ""

    @property
    def reasoning(self) -> str:
        return "\n\n".join(self.texts[:-1])


class Dialogue:
    """A run as turns, without what is not a message."""

    def __init__(self, trace: ReasoningTrace, records: Sequence[StepRecord] = ()) -> None:
        self.turns: list[DialogueTurn] = []
        self._pending: list[tuple[str | None, DialogueTurn, DialogueCall]] = []
        self._ids: set[str] = set()
        self._calls = 0
        aligned = [*records] if len(records) == len(trace.steps) else [None] * len(trace.steps)
        for step, record in zip(trace.steps, aligned, strict=True):
            self._add_step(step, record)
        self._complete(trace)

    def _add_step(self, step: Step, record: StepRecord | None) -> None:
        call_id, parent = (record.call_id, record.parent) if record else (None, None)
        if parent in self._ids:
            return  # a step inside of a tool call
        if step.type == "thought":
            self._agent_turn(record).texts.append(step.content or "")
        elif step.type == "tool_call":
            self._add_call(step, record)
        elif step.tool is not None or any(call_id and call_id == key for key, *_ in self._pending):
            self._add_result(step, call_id)
        elif step.type == "observation" and step.content is not None:
            self.turns.append(DialogueTurn(is_agent=False, texts=[step.content], first=record))

    def _agent_turn(self, record: StepRecord | None) -> DialogueTurn:
        last = self.turns[-1] if self.turns else None
        if last is None or not last.is_agent or last.results:
            last = DialogueTurn(is_agent=True, first=record)
            self.turns.append(last)
        return last

    def _add_call(self, step: Step, record: StepRecord | None) -> None:
        turn, self._calls = self._agent_turn(record), self._calls + 1
        tool = step.tool.name if step.tool else "(unnamed)"
        call = DialogueCall(f"call_{self._calls}", tool, step.input or {})
        turn.calls.append(call)
        key = record.call_id if record else None
        self._pending.append((key, turn, call))
        if key is not None:
            self._ids.add(key)

    def _add_result(self, step: Step, call_id: str | None) -> None:
        """Add the result of a pending call: the one with its id, else the oldest of its tool."""
        by_id = [call for call in self._pending if call_id is not None and call[0] == call_id]
        by_tool = [call for call in self._pending if step.tool and call[2].tool == step.tool.name]
        if not by_id and not by_tool:
            self._add_call(step.model_copy(update={"input": {}}), None)
        pending = next(iter(by_id or by_tool or self._pending[-1:]))
        self._pending.remove(pending)
        _, turn, call = pending
        call.output = (step.output_summary if step.content is None else step.content) or ""
        call.failed = step.type == "error_recovery"
        turn.results.append(call)

    def _complete(self, trace: ReasoningTrace) -> None:
        """Add a missing task, missing results of calls, and a missing final message."""
        if not self.turns or self.turns[0].is_agent:
            self.turns.insert(0, DialogueTurn(is_agent=False, texts=[trace.task.objective]))
        result = trace.outcome.result_summary
        if result and not any(result in text for turn in self.turns for text in turn.texts):
            last = self.turns[-1]
            if not last.is_agent or last.calls:
                last = DialogueTurn(is_agent=True)
                self.turns.append(last)
            last.texts.append(result)
        for _, turn, call in self._pending:
            if turn is not self.turns[-1]:
                turn.results.append(call)


@dataclass(frozen=True)
class Example:
    """A run to export; ``redacted`` counts the redactions of this export."""

    run: RunDocument
    trace: ReasoningTrace
    document: str
    steps: Sequence[StepRecord]  # empty for the format traces
    model: str | None
    redacted: Mapping[str, int]
    arguments: Literal["text", "object"]

    @cached_property
    def dialogue(self) -> Dialogue:
        return Dialogue(self.trace, self.steps)

    @property
    def metadata(self) -> Json:
        return {
            "trace_id": self.trace.id,
            "domain": self.trace.metadata.task_domain,
            "success": self.run.known_success,
            "success_source": self.run.success_source,
            "score": self.run.score,
        }

    @property
    def halves(self) -> tuple[list[DialogueTurn], list[DialogueTurn]]:
        """The turns before the agent's first, and the others."""
        turns = self.dialogue.turns
        first = next((at for at, turn in enumerate(turns) if turn.is_agent), len(turns))
        return turns[:first], turns[first:]

    def chat(self, turns: Sequence[DialogueTurn]) -> list[Json]:
        """Return OpenAI's chat messages; ``is_error`` and ``reasoning_content`` are extra keys."""
        messages: list[Json] = []
        for turn in turns:
            calls = [
                {"id": call.id, "type": "function", "function": _function(call, self.arguments)}
                for call in turn.calls
            ]
            messages.append(
                {"role": turn.role, "content": turn.text}
                | _non_empty(reasoning_content=turn.reasoning, tool_calls=calls)
            )
            messages += (
                {"role": "tool", "tool_call_id": call.id, "content": call.output}
                | _non_empty(is_error=call.failed)
                for call in turn.results
            )
        return messages


def _hf_trace(example: Example) -> list[Json]:
    """Return the lines of the Hub's Session Trace Simple Format."""
    title = example.trace.task.objective
    session = {"type": "session", "harness": _HARNESS, "id": example.trace.id, "name": title[:200]}
    messages: list[Json] = []
    for turn in example.dialogue.turns:
        began, model = turn.first and turn.first.started_at, turn.is_agent and example.model
        at = round(epoch_s(began) * 1000) if began else None
        calls = [{"id": call.id, "function": _function(call, "text")} for call in turn.calls]
        messages.append(
            {"role": turn.role, "content": turn.text}
            | _non_empty(
                reasoningContent=turn.reasoning, toolCalls=calls, timestamp=at, model=model
            )
        )
        messages += (
            {"role": "tool", "content": call.output, "toolCallId": call.id} for call in turn.results
        )
    return [session, *({"type": "message", "message": message} for message in messages)]


def _inspect(example: Example) -> list[Json]:
    """Return a ``Sample`` of inspect-ai: a failed run has no target."""
    texts: list[Json] = [{"role": "user", "content": turn.text} for turn in example.halves[0]]
    target = "" if example.run.known_success is False else example.trace.outcome.result_summary
    task = texts[0]["content"] if len(texts) == 1 else texts
    sample = {"input": task, "target": target, "id": example.trace.id}
    return [{**sample, "metadata": example.metadata}]


def _langsmith(example: Example) -> list[Json]:
    inputs, outputs = ({"messages": example.chat(part)} for part in example.halves)
    return [{"inputs": inputs, "outputs": outputs, "metadata": example.metadata}]


def _atif(example: Example) -> list[Json]:
    steps = [_atif_step(number, turn) for number, turn in enumerate(example.dialogue.turns, 1)]
    framework = example.trace.metadata.framework
    # a reader of trajectories takes a "score" for a verdict
    facts = example.metadata | {"score": None, "quality_score": example.run.score}
    model = _non_empty(model_name=example.model)
    agent = {"name": framework or _HARNESS, "version": "unknown", **model}
    return [
        {
            "schema_version": "ATIF-v1.7",
            "session_id": example.trace.id,
            "agent": agent,
            "steps": steps,
            "final_metrics": {"total_steps": len(steps)},
            "extra": _without_none(facts),
        }
    ]


def _atif_step(number: int, turn: DialogueTurn) -> Json:
    first = turn.first
    calls = [
        {"tool_call_id": call.id, "function_name": call.tool, "arguments": call.arguments}
        for call in turn.calls
    ]
    results = [
        {"source_call_id": call.id, "content": call.output}
        | _non_empty(extra=_non_empty(is_error=call.failed))
        for call in turn.results
    ]
    read, wrote = (first.input_tokens, first.output_tokens) if first else (None, None)
    return {
        "step_id": number,
        "source": "agent" if turn.is_agent else "user",
        **_non_empty(timestamp=first and first.started_at),
        "message": turn.text,
        **_non_empty(
            reasoning_content=turn.reasoning,
            tool_calls=calls,
            observation=_non_empty(results=results),
            metrics=_without_none({"prompt_tokens": read, "completion_tokens": wrote}),
        ),
    }


def pair(chosen: Example, rejected: Example) -> Json:
    """Return a pair for preference training: the prompt is that of the chosen run."""
    prompt, good = chosen.halves
    parts = {"prompt": prompt, "chosen": good, "rejected": rejected.halves[1]}
    return {name: chosen.chat(part) for name, part in parts.items()}


FORMATS: Final[Mapping[str, Callable[[Example], list[Json]]]] = {
    "messages": lambda example: [{"messages": example.chat(example.dialogue.turns)}],
    "hf-trace": _hf_trace,
    "inspect": _inspect,
    "atif": _atif,
    "langsmith": _langsmith,
}
"""The formats by the names that users type; `Dataset` itself writes pairs and traces."""

SUFFIXES: Final = {"hf-trace": ".jsonl", "atif": ".json"}
"""The suffixes of files, for formats with one file per run."""


def _function(call: DialogueCall, arguments: str) -> Json:
    is_object, values = arguments == "object", call.arguments
    written = values if is_object else json.dumps(values, ensure_ascii=False)
    return {"name": call.tool, "arguments": written}


def _non_empty(**values: Any) -> Json:
    return {name: value for name, value in values.items() if value}


def _without_none(values: Json) -> Json:
    return {name: value for name, value in values.items() if value is not None}
