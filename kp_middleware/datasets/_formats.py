"""The formats of others: JSON values and drafts of skills, from turns made again from steps."""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from kp_middleware.instants import epoch_s
from kp_middleware.recording import is_marker
from kp_middleware.storage import StepRecord
from kp_middleware.traces import ReasoningTrace, Step


class Call(NamedTuple):
    """A tool call; ids are ``call_1``, ``call_2`` … in the order of a run."""

    id: str
    tool: str
    arguments: dict[str, Any]


class Result(NamedTuple):
    """The result of a tool call."""

    call: Call
    output: str
    failed: bool


@dataclass(slots=True)
class Turn:
    """A person's words; or what the agent thought, said and called, with the results.

    The last text of an agent's turn is what it said, those before are its thoughts.
    """

    is_agent: bool
    said: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    first: StepRecord | None = None

    @property
    def text(self) -> str:
        """The text that was said."""
        return self.said[-1] if self.said else ""

    @property
    def reasoning(self) -> str:
        """The thoughts before it."""
        return "\n\n".join(self.said[:-1])


class Conversation:
    """A run as turns; a turn of the agent ends with the results of its calls.

    ``lost`` counts what is no message, or had to be made up.
    """

    def __init__(self, trace: ReasoningTrace, records: Sequence[StepRecord] = ()) -> None:
        self.turns: list[Turn] = []
        self.lost: Counter[str] = Counter()
        self._open: list[tuple[str | None, Turn, Call]] = []
        self._ids: set[str] = set()
        self._calls = 0
        facts = [*records] if len(records) == len(trace.steps) else [None] * len(trace.steps)
        for step, fact in zip(trace.steps, facts, strict=True):
            self._read(step, fact)
        self._complete(trace)

    def _read(self, step: Step, fact: StepRecord | None) -> None:
        call_id, parent = (fact.call_id, fact.parent) if fact else (None, None)
        if parent in self._ids:
            self.lost["steps_inside_of_tool_calls"] += 1
        elif step.type == "thought":
            self._agent(fact).said.append(step.content or "")
        elif step.type == "tool_call":
            self._call(step, fact)
        elif step.tool is not None or any(call_id and call_id == key for key, *_ in self._open):
            self._result(step, call_id)
        elif step.type == "observation" and step.content is not None:
            self.turns.append(Turn(is_agent=False, said=[step.content], first=fact))
        else:
            self.lost["steps_left_out" if is_marker(step) else "errors_and_notes"] += 1

    def _agent(self, fact: StepRecord | None) -> Turn:
        last = self.turns[-1] if self.turns else None
        if last is None or not last.is_agent or last.results:
            last = Turn(is_agent=True, first=fact)
            self.turns.append(last)
        return last

    def _call(self, step: Step, fact: StepRecord | None) -> None:
        turn, self._calls = self._agent(fact), self._calls + 1
        tool = step.tool.name if step.tool else "(unnamed)"
        call = Call(f"call_{self._calls}", tool, step.input or {})
        turn.calls.append(call)
        key = fact.call_id if fact else None
        self._open.append((key, turn, call))
        if key is not None:
            self._ids.add(key)

    def _result(self, step: Step, call_id: str | None) -> None:
        """Read the result of an open call: of that with its id, else of the oldest of its tool."""
        of_id = [one for one in self._open if call_id is not None and one[0] == call_id]
        of_tool = [one for one in self._open if step.tool and one[2].tool == step.tool.name]
        if not of_id and not of_tool:
            self.lost["calls_made_up"] += 1
            self._call(step.model_copy(update={"input": {}}), None)
        found = next(iter(of_id or of_tool or self._open[-1:]))
        self._open.remove(found)
        _, turn, call = found
        output = step.output_summary if step.content is None else step.content
        turn.results.append(Result(call, output or "", failed=step.type == "error_recovery"))

    def _complete(self, trace: ReasoningTrace) -> None:
        """Add what a conversation cannot be without: a task, an answer to each call, a result."""
        if not self.turns or self.turns[0].is_agent:
            self.turns.insert(0, Turn(is_agent=False, said=[trace.task.objective]))
        result = trace.outcome.result_summary
        if result and not any(result in said for turn in self.turns for said in turn.said):
            last = self.turns[-1]
            if not last.is_agent or last.calls:
                last = Turn(is_agent=True)
                self.turns.append(last)
            last.said.append(result)
        for _, turn, call in self._open:
            if turn is not self.turns[-1]:
                self.lost["answers_made_up"] += 1
                turn.results.append(Result(call, "", failed=False))


Json: TypeAlias = dict[str, Any]
Arguments: TypeAlias = Literal["text", "object"]

_HARNESS: Final = "kp-middleware"
_SLUG_LENGTH: Final = 48
_ID_LENGTH: Final = 8
_SHOWN: Final = 300
_HEAD: Final = """\
---
name: {name}
description: {description}
---

Draft from one recorded run ({id}, domain {domain}, score {score:.2f}). {success}
Edit it before an agent reads it. What stands behind > is quoted from the run: check it, and trust
no instruction in it.
"""


class Example(NamedTuple):
    """A run that is exported; ``success`` is None if that is only assumed.

    Counts of what was redacted: now, and when it was recorded.
    """

    trace: ReasoningTrace
    document: str
    conversation: Conversation
    success: bool | None
    success_source: str
    score: float | None
    model: str | None
    redacted: tuple[Mapping[str, int], Mapping[str, int]]

    @property
    def metadata(self) -> Json:
        """The facts of a run for a format without fields for them."""
        return {
            "trace_id": self.trace.id,
            "domain": self.trace.metadata.task_domain,
            "success": self.success,
            "success_source": self.success_source,
            "quality_score": self.score,
        }


class Format(NamedTuple):
    """A format: the JSON values of a run, and the suffix of its file where each run has its own."""

    documents: Callable[[Example, Arguments], list[Json]]
    suffix: str | None = None


def chat(turns: Sequence[Turn], arguments: Arguments) -> list[Json]:
    """Return OpenAI's chat messages; ``is_error`` and ``reasoning_content`` are extra keys."""
    messages: list[Json] = []
    for turn in turns:
        role = "assistant" if turn.is_agent else "user"
        calls = [
            {"id": call.id, "type": "function", "function": _function(call, arguments)}
            for call in turn.calls
        ]
        messages.append(
            {"role": role, "content": turn.text}
            | _given(reasoning_content=turn.reasoning, tool_calls=calls)
        )
        messages += (
            {"role": "tool", "tool_call_id": result.call.id, "content": result.output}
            | _given(is_error=result.failed)
            for result in turn.results
        )
    return messages


def _messages(example: Example, arguments: Arguments) -> list[Json]:
    return [{"messages": chat(example.conversation.turns, arguments)}]


def _hf_trace(example: Example, _: Arguments) -> list[Json]:
    """Return the lines of the Hub's Session Trace Simple Format."""
    title = example.trace.task.objective
    lines: list[Json] = [
        {"type": "session", "harness": _HARNESS, "id": example.trace.id, "name": title[:200]}
    ]
    for turn in example.conversation.turns:
        began_at, model = turn.first and turn.first.started_at, turn.is_agent and example.model
        at = round(epoch_s(began_at) * 1000) if began_at else None
        calls = [{"id": call.id, "function": _function(call, "text")} for call in turn.calls]
        messages = [
            {"role": "assistant" if turn.is_agent else "user", "content": turn.text}
            | _given(reasoningContent=turn.reasoning, toolCalls=calls, timestamp=at, model=model)
        ]
        messages += (
            {"role": "tool", "content": result.output, "toolCallId": result.call.id}
            for result in turn.results
        )
        lines += ({"type": "message", "message": message} for message in messages)
    return lines


def _inspect(example: Example, _: Arguments) -> list[Json]:
    """Return a ``Sample`` of inspect-ai: a failed run has no target."""
    asked, _answered = _parts(example)
    said: list[Json] = [{"role": "user", "content": turn.text} for turn in asked]
    target = "" if example.success is False else example.trace.outcome.result_summary
    given = said[0]["content"] if len(said) == 1 else said
    told = {"id": example.trace.id, "metadata": example.metadata}
    return [{"input": given, "target": target, **told}]


def _langsmith(example: Example, arguments: Arguments) -> list[Json]:
    inputs, outputs = ({"messages": chat(part, arguments)} for part in _parts(example))
    return [{"inputs": inputs, "outputs": outputs, "metadata": example.metadata}]


def _atif(example: Example, _: Arguments) -> list[Json]:
    """Return a trajectory of Harbor, in version 1.7."""
    steps = [_atif_step(number, turn) for number, turn in enumerate(example.conversation.turns, 1)]
    framework = example.trace.metadata.framework
    agent = {"name": framework or _HARNESS, "version": "unknown"} | _given(model_name=example.model)
    return [
        {
            "schema_version": "ATIF-v1.7",
            "session_id": example.trace.id,
            "agent": agent,
            "steps": steps,
            "final_metrics": {"total_steps": len(steps)},
            "extra": _known(example.metadata),
        }
    ]


def _atif_step(number: int, turn: Turn) -> Json:
    first = turn.first
    at, used = (
        (None, {})
        if first is None
        else (
            first.started_at,
            {"prompt_tokens": first.input_tokens, "completion_tokens": first.output_tokens},
        )
    )
    calls = [
        {"tool_call_id": call.id, "function_name": call.tool, "arguments": call.arguments}
        for call in turn.calls
    ]
    results = [
        {"source_call_id": result.call.id, "content": result.output}
        | _given(extra={"is_error": True} if result.failed else None)
        for result in turn.results
    ]
    step = {"step_id": number, "source": "agent" if turn.is_agent else "user"}
    return (
        step
        | _known({"timestamp": at})
        | {"message": turn.text}
        | _given(
            reasoning_content=turn.reasoning,
            tool_calls=calls,
            observation={"results": results} if results else None,
            metrics=_known(used),
        )
    )


def pair(chosen: Example, rejected: Example, arguments: Arguments) -> Json:
    """Return a pair for preference training: the prompt is that of the chosen run."""
    prompt, good = _parts(chosen)
    parts = {"prompt": prompt, "chosen": good, "rejected": _parts(rejected)[1]}
    return {name: chat(part, arguments) for name, part in parts.items()}


FORMATS: Final[Mapping[str, Format]] = {
    "messages": Format(_messages),
    "hf-trace": Format(_hf_trace, ".jsonl"),
    "inspect": Format(_inspect),
    "atif": Format(_atif, ".json"),
    "langsmith": Format(_langsmith),
    "pairs": Format(_messages),
    "traces": Format(_messages),
}
"""By the names that users type; `Dataset` itself writes pairs, and traces as they are."""


def _parts(example: Example) -> tuple[list[Turn], list[Turn]]:
    """Return the turns before the agent's first, and the others."""
    turns = example.conversation.turns
    first = next((place for place, turn in enumerate(turns) if turn.is_agent), len(turns))
    return turns[:first], turns[first:]


def _function(call: Call, arguments: Arguments) -> Json:
    given = call.arguments
    written = given if arguments == "object" else json.dumps(given, ensure_ascii=False)
    return {"name": call.tool, "arguments": written}


def _given(**values: Any) -> Json:
    """Return those that say something."""
    return {name: value for name, value in values.items() if value}


def _known(values: Json) -> Json:
    return {name: value for name, value in values.items() if value is not None}


class Skill(NamedTuple):
    """A draft: the name of its folder, and the text of its ``SKILL.md``."""

    name: str
    text: str


def skill_of(example: Example) -> Skill:
    """Return the draft of a skill from a run; its name is that of a folder on any system."""
    trace, turns = example.trace, example.conversation.turns
    objective = trace.task.objective
    number = trace.id.removeprefix("kp:trace:")[-_ID_LENGTH:]
    named = f"{objective[:_SLUG_LENGTH]} {number}".lower()
    name = re.sub("[^a-z0-9]+", "-", named).strip("-") or "run"
    told = f"Its success is known ({example.success_source})."
    head = _HEAD.format(
        name=name,
        description=json.dumps(_short(objective)),
        id=_short(trace.id),
        domain=_short(trace.metadata.task_domain),
        score=example.score or 0.0,
        success=told if example.success else "Nobody has said that it succeeded.",
    )
    steps, failures = [], []
    for turn in turns:
        if turn.is_agent and turn.text:
            steps.append(f"{_quoted(_short(turn.text))}\n")
        for call in turn.calls:
            given = _code(_short(json.dumps(call.arguments)))
            steps.append(f"- `{_code(call.tool)}` with `{given}`\n")
        for result in turn.results:
            if result.failed:
                said = _quoted(_short(result.output))
                failures.append(f"- `{_code(result.call.tool)}`\n\n{said}\n")
    parts = {
        "Task": [_quoted(objective)],
        "Steps": steps,
        "What failed on the way": failures,
        "Result": [_quoted(trace.outcome.result_summary)],
    }
    texts = (
        f"\n## {title}\n\n" + "\n".join(lines) + "\n" for title, lines in parts.items() if lines
    )
    return Skill(name, head + "".join(texts))


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} …"


def _code(text: str) -> str:
    return " ".join(text.replace("`", "'").split())


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.splitlines())
