"""The formats of others: JSON values and drafts of skills, from dialogues made of steps."""

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

Json: TypeAlias = dict[str, Any]

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


@dataclass(slots=True)
class Called:
    """A tool call; ids are ``call_1``, ``call_2`` … in the order of a run."""

    id: str
    tool: str
    arguments: Json
    output: str = ""
    failed: bool = False


@dataclass(slots=True)
class Speech:
    """A person's words; or what the agent thought, said and called, with the results.

    The last text of an agent is what it said, those before are its thoughts. Results are the calls
    that have one, in the order of their ends.
    """

    is_agent: bool
    said: list[str] = field(default_factory=list)
    calls: list[Called] = field(default_factory=list)
    results: list[Called] = field(default_factory=list)
    first: StepRecord | None = None

    @property
    def role(self) -> str:
        """The role of a chat message."""
        return "assistant" if self.is_agent else "user"

    @property
    def text(self) -> str:
        """The text that was said."""
        return self.said[-1] if self.said else ""

    @property
    def reasoning(self) -> str:
        """The thoughts before it."""
        return "\n\n".join(self.said[:-1])


class Dialogue:
    """A run as speeches; one of the agent ends with the results of its calls.

    ``lost`` counts what is no message, or had to be made up.
    """

    def __init__(self, trace: ReasoningTrace, records: Sequence[StepRecord] = ()) -> None:
        self.speeches: list[Speech] = []
        self.lost: Counter[str] = Counter()
        self._open: list[tuple[str | None, Speech, Called]] = []
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
            self.speeches.append(Speech(is_agent=False, said=[step.content], first=fact))
        else:
            self.lost["steps_left_out" if is_marker(step) else "errors_and_notes"] += 1

    def _agent(self, fact: StepRecord | None) -> Speech:
        last = self.speeches[-1] if self.speeches else None
        if last is None or not last.is_agent or last.results:
            last = Speech(is_agent=True, first=fact)
            self.speeches.append(last)
        return last

    def _call(self, step: Step, fact: StepRecord | None) -> None:
        speech, self._calls = self._agent(fact), self._calls + 1
        tool = step.tool.name if step.tool else "(unnamed)"
        call = Called(f"call_{self._calls}", tool, step.input or {})
        speech.calls.append(call)
        key = fact.call_id if fact else None
        self._open.append((key, speech, call))
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
        _, speech, call = found
        call.output = (step.output_summary if step.content is None else step.content) or ""
        call.failed = step.type == "error_recovery"
        speech.results.append(call)

    def _complete(self, trace: ReasoningTrace) -> None:
        """Add what a dialogue cannot be without: a task, an answer to each call, a result."""
        if not self.speeches or self.speeches[0].is_agent:
            self.speeches.insert(0, Speech(is_agent=False, said=[trace.task.objective]))
        result = trace.outcome.result_summary
        if result and not any(result in text for one in self.speeches for text in one.said):
            last = self.speeches[-1]
            if not last.is_agent or last.calls:
                last = Speech(is_agent=True)
                self.speeches.append(last)
            last.said.append(result)
        for _, speech, call in self._open:
            if speech is not self.speeches[-1]:
                self.lost["answers_made_up"] += 1
                speech.results.append(call)


class Example(NamedTuple):
    """A run that is exported; ``success`` is None if that is only assumed.

    ``redacted`` are counts: of now, and of when it was recorded.
    """

    seq: int
    trace: ReasoningTrace
    document: str
    dialogue: Dialogue
    success: bool | None
    success_source: str
    score: float | None
    model: str | None
    redacted: tuple[Mapping[str, int], Mapping[str, int]]
    arguments: Literal["text", "object"]

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

    @property
    def parts(self) -> tuple[list[Speech], list[Speech]]:
        """The speeches before the agent's first, and the others."""
        speeches = self.dialogue.speeches
        first = next((at for at, one in enumerate(speeches) if one.is_agent), len(speeches))
        return speeches[:first], speeches[first:]

    def chat(self, speeches: Sequence[Speech]) -> list[Json]:
        """Return OpenAI's chat messages; ``is_error`` and ``reasoning_content`` are extra keys."""
        messages: list[Json] = []
        for one in speeches:
            calls = [
                {"id": call.id, "type": "function", "function": _function(call, self.arguments)}
                for call in one.calls
            ]
            messages.append(
                {"role": one.role, "content": one.text}
                | _given(reasoning_content=one.reasoning, tool_calls=calls)
            )
            messages += (
                {"role": "tool", "tool_call_id": call.id, "content": call.output}
                | _given(is_error=call.failed)
                for call in one.results
            )
        return messages


def _messages(example: Example) -> list[Json]:
    return [{"messages": example.chat(example.dialogue.speeches)}]


def _hf_trace(example: Example) -> list[Json]:
    """Return the lines of the Hub's Session Trace Simple Format."""
    title = example.trace.task.objective
    session = {"type": "session", "harness": _HARNESS, "id": example.trace.id, "name": title[:200]}
    messages: list[Json] = []
    for one in example.dialogue.speeches:
        began_at, model = one.first and one.first.started_at, one.is_agent and example.model
        at = round(epoch_s(began_at) * 1000) if began_at else None
        calls = [{"id": call.id, "function": _function(call, "text")} for call in one.calls]
        messages.append(
            {"role": one.role, "content": one.text}
            | _given(reasoningContent=one.reasoning, toolCalls=calls, timestamp=at, model=model)
        )
        messages += (
            {"role": "tool", "content": call.output, "toolCallId": call.id} for call in one.results
        )
    return [session, *({"type": "message", "message": message} for message in messages)]


def _inspect(example: Example) -> list[Json]:
    """Return a ``Sample`` of inspect-ai: a failed run has no target."""
    said: list[Json] = [{"role": "user", "content": one.text} for one in example.parts[0]]
    target = "" if example.success is False else example.trace.outcome.result_summary
    given = said[0]["content"] if len(said) == 1 else said
    told = {"id": example.trace.id, "metadata": example.metadata}
    return [{"input": given, "target": target, **told}]


def _langsmith(example: Example) -> list[Json]:
    inputs, outputs = ({"messages": example.chat(part)} for part in example.parts)
    return [{"inputs": inputs, "outputs": outputs, "metadata": example.metadata}]


def _atif(example: Example) -> list[Json]:
    """Return a trajectory of Harbor, in version 1.7."""
    steps = [_atif_step(number, one) for number, one in enumerate(example.dialogue.speeches, 1)]
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


def _atif_step(number: int, speech: Speech) -> Json:
    first = speech.first
    calls = [
        {"tool_call_id": call.id, "function_name": call.tool, "arguments": call.arguments}
        for call in speech.calls
    ]
    results = [
        {"source_call_id": call.id, "content": call.output}
        | _given(extra=_given(is_error=call.failed))
        for call in speech.results
    ]
    read, wrote = (first.input_tokens, first.output_tokens) if first else (None, None)
    return {
        "step_id": number,
        "source": "agent" if speech.is_agent else "user",
        **_given(timestamp=first and first.started_at),
        "message": speech.text,
        **_given(
            reasoning_content=speech.reasoning,
            tool_calls=calls,
            observation=_given(results=results),
            metrics=_known({"prompt_tokens": read, "completion_tokens": wrote}),
        ),
    }


def pair(chosen: Example, rejected: Example) -> Json:
    """Return a pair for preference training: the prompt is that of the chosen run."""
    prompt, good = chosen.parts
    parts = {"prompt": prompt, "chosen": good, "rejected": rejected.parts[1]}
    return {name: chosen.chat(part) for name, part in parts.items()}


FORMATS: Final[Mapping[str, Callable[[Example], list[Json]]]] = {
    "messages": _messages,
    "hf-trace": _hf_trace,
    "inspect": _inspect,
    "atif": _atif,
    "langsmith": _langsmith,
}
"""By the names that users type; `Dataset` itself writes pairs, and traces as they are."""

SUFFIXES: Final = {"hf-trace": ".jsonl", "atif": ".json"}
"""The suffixes of files, for formats in which each run has its own."""


def _function(call: Called, arguments: str) -> Json:
    given = call.arguments
    written = given if arguments == "object" else json.dumps(given, ensure_ascii=False)
    return {"name": call.tool, "arguments": written}


def _given(**values: Any) -> Json:
    """Return those that say something."""
    return {name: value for name, value in values.items() if value}


def _known(values: Json) -> Json:
    return {name: value for name, value in values.items() if value is not None}


def skill_of(example: Example) -> tuple[str, str]:
    """Return a draft from a run: a name, which is a folder's on any system, and ``SKILL.md``."""
    trace, objective = example.trace, example.trace.task.objective
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
    steps, failures = list[str](), list[str]()
    for one in example.dialogue.speeches:
        if one.is_agent and one.text:
            steps.append(f"{_quoted(_short(one.text))}\n")
        steps += (
            f"- {_code(call.tool)} with {_code(_short(json.dumps(call.arguments)))}\n"
            for call in one.calls
        )
        failures += (
            f"- {_code(call.tool)}\n\n{_quoted(_short(call.output))}\n"
            for call in one.results
            if call.failed
        )
    parts = {
        "Task": [_quoted(objective)],
        "Steps": steps,
        "What failed on the way": failures,
        "Result": [_quoted(trace.outcome.result_summary)],
    }
    texts = (
        f"\n## {title}\n\n" + "\n".join(lines) + "\n" for title, lines in parts.items() if lines
    )
    return name, head + "".join(texts)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} …"


def _code(text: str) -> str:
    words = " ".join(text.replace("`", "'").split())
    return f"`{words}`"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.splitlines())
