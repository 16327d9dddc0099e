"""The formats of others, made of the turns of a run: JSON values, and drafts of skills."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from kp_middleware.datasets._turns import Call, Conversation, Turn
from kp_middleware.instants import epoch_ms
from kp_middleware.traces import ReasoningTrace

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
        """What a format without a form for it says of a run."""
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
        at = epoch_ms(began_at) if began_at else None
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
    asked, target = _asked(example.conversation.turns), example.trace.outcome.result_summary
    said: list[Json] = [{"role": "user", "content": turn.text} for turn in asked]
    return [
        {
            "input": said[0]["content"] if len(said) == 1 else said,
            "target": "" if example.success is False else target,
            "id": example.trace.id,
            "metadata": example.metadata,
        }
    ]


def _langsmith(example: Example, arguments: Arguments) -> list[Json]:
    asked = _asked(example.conversation.turns)
    return [
        {
            "inputs": {"messages": chat(asked, arguments)},
            "outputs": {"messages": chat(example.conversation.turns[len(asked) :], arguments)},
            "metadata": example.metadata,
        }
    ]


def _atif(example: Example, _: Arguments) -> list[Json]:
    """Return a trajectory of Harbor, in version 1.7."""
    steps = [_atif_step(number, turn) for number, turn in enumerate(example.conversation.turns, 1)]
    framework = example.trace.metadata.framework
    agent = {"name": framework or _HARNESS, "version": "unknown"} | _given(model_name=example.model)
    told = {name: value for name, value in example.metadata.items() if value is not None}
    return [
        {
            "schema_version": "ATIF-v1.7",
            "session_id": example.trace.id,
            "agent": agent,
            "steps": steps,
            "final_metrics": {"total_steps": len(steps)},
            "extra": told,
        }
    ]


def _atif_step(number: int, turn: Turn) -> Json:
    step: Json = {"step_id": number, "source": "agent" if turn.is_agent else "user"}
    first = turn.first
    if first is not None and first.started_at is not None:
        step["timestamp"] = first.started_at
    step["message"] = turn.text
    calls = [
        {"tool_call_id": call.id, "function_name": call.tool, "arguments": call.arguments}
        for call in turn.calls
    ]
    results = [
        {"source_call_id": result.call.id, "content": result.output}
        | _given(extra={"is_error": True} if result.failed else None)
        for result in turn.results
    ]
    used = (
        {}
        if first is None
        else {"prompt_tokens": first.input_tokens, "completion_tokens": first.output_tokens}
    )
    metrics = {name: count for name, count in used.items() if count is not None}
    observation = {"results": results} if results else None
    return step | _given(
        reasoning_content=turn.reasoning, tool_calls=calls, observation=observation, metrics=metrics
    )


def pair(chosen: Example, rejected: Example, arguments: Arguments) -> Json:
    """Return a pair for preference training: the prompt is that of the chosen run."""
    prompt, other = _asked(chosen.conversation.turns), _asked(rejected.conversation.turns)
    return {
        "prompt": chat(prompt, arguments),
        "chosen": chat(chosen.conversation.turns[len(prompt) :], arguments),
        "rejected": chat(rejected.conversation.turns[len(other) :], arguments),
    }


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


def _asked(turns: Sequence[Turn]) -> list[Turn]:
    """Return the turns before the agent's first."""
    first = next((place for place, turn in enumerate(turns) if turn.is_agent), len(turns))
    return [*turns[:first]]


def _function(call: Call, arguments: Arguments) -> Json:
    given = call.arguments
    written = given if arguments == "object" else json.dumps(given, ensure_ascii=False)
    return {"name": call.tool, "arguments": written}


def _given(**values: Any) -> Json:
    """Return those that say something."""
    return {name: value for name, value in values.items() if value}


class Skill(NamedTuple):
    """A draft: the name of its folder, and the text of its ``SKILL.md``."""

    name: str
    text: str


def skill_of(example: Example) -> Skill:
    """Return the draft of a skill from a run."""
    trace = example.trace
    objective = trace.task.objective
    number = trace.id.removeprefix("kp:trace:")[-_ID_LENGTH:]
    name = _slug(f"{objective[:_SLUG_LENGTH]} {number}") or "run"
    told = f"Its success is known ({example.success_source})."
    head = _HEAD.format(
        name=name,
        description=json.dumps(_short(objective)),
        id=_short(trace.id),
        domain=_short(trace.metadata.task_domain),
        score=example.score or 0.0,
        success=told if example.success else "Nobody has said that it succeeded.",
    )
    steps = [line for turn in example.conversation.turns if turn.is_agent for line in _steps(turn)]
    failures = [
        f"- `{_code(result.call.tool)}`\n\n{_quoted(_short(result.output))}\n"
        for turn in example.conversation.turns
        for result in turn.results
        if result.failed
    ]
    parts = [
        ("Task", [_quoted(objective)]),
        ("Steps", steps),
        ("What failed on the way", failures),
        ("Result", [_quoted(trace.outcome.result_summary)]),
    ]
    written = (f"\n## {title}\n\n" + "\n".join(lines) + "\n" for title, lines in parts if lines)
    return Skill(name, head + "".join(written))


def _steps(turn: Turn) -> list[str]:
    said = [_quoted(_short(turn.text)) + "\n"] if turn.text else []
    calls = [
        f"- `{_code(call.tool)}` with `{_code(_short(json.dumps(call.arguments)))}`\n"
        for call in turn.calls
    ]
    return said + calls


def _slug(text: str) -> str:
    """Return a text as the name of a folder on any system.

    >>> _slug("../Find the invoice: № 7!")
    'find-the-invoice-7'
    """
    return re.sub("[^a-z0-9]+", "-", text.lower()).strip("-")


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} …"


def _code(text: str) -> str:
    return " ".join(text.replace("`", "'").split())


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.splitlines())
