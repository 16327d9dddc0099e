"""The turns of a conversation, made again from the steps of a run."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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
    """What a person said; or what the agent thought, said and called, with the results.

    The last text of an agent's turn is what it said, those before are its thoughts.
    """

    is_agent: bool
    said: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    first: StepRecord | None = None

    @property
    def text(self) -> str:
        """What was said."""
        return self.said[-1] if self.said else ""

    @property
    def reasoning(self) -> str:
        """What was thought before."""
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
        facts: Iterable[StepRecord | None] = records
        if len(records) != len(trace.steps):
            facts = [None] * len(trace.steps)
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
            self._result(step, fact)
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

    def _result(self, step: Step, fact: StepRecord | None) -> None:
        found = self._answered(step, fact.call_id if fact else None)
        if found is None:
            self.lost["calls_made_up"] += 1
            self._call(step.model_copy(update={"input": {}}), None)
            found = self._open[-1]
        self._open.remove(found)
        _, turn, call = found
        output = step.output_summary if step.content is None else step.content
        turn.results.append(Result(call, output or "", failed=step.type == "error_recovery"))

    def _answered(self, step: Step, key: str | None) -> tuple[str | None, Turn, Call] | None:
        """Return the open call that a result is of: by its id, else the oldest of its tool."""
        of_id = (one for one in self._open if key is not None and one[0] == key)
        of_tool = (one for one in self._open if step.tool and one[2].tool == step.tool.name)
        return next(of_id, None) or next(of_tool, None)

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
