"""Compare two runs: their facts, the parts of their scores, and their steps side by side."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from kp_middleware.storage import Run, StepRecord
from kp_middleware.views.trace import arithmetic, listed_state
from kp_middleware.views.wording import zero_or_one

Place: TypeAlias = Literal["same", "left", "right"]

FACTS: Final = (
    *("id", "state", "domain", "started_at", "duration_ms", "model", "success", "confidence"),
    *("step_count", "tool_count", "recovery_count", "gate", "threshold", "objective"),
)


class Pair(NamedTuple):
    """A step of both runs, or of one; ``left`` and ``right`` are its numbers there, or None."""

    place: Place
    left: int | None
    right: int | None
    type: str
    tool: str | None


class Fact(NamedTuple):
    """One column of both runs; None where it is not known."""

    fact: str
    left: Any
    right: Any


class Part(NamedTuple):
    """The amounts that a signal or rule adds to each score, or the scores; None without one."""

    part: str
    left: float | None
    right: float | None
    difference: float | None
    left_working: str
    right_working: str


class Comparison(NamedTuple):
    """The comparison of two runs."""

    facts: list[Fact]
    scores: list[Part]
    steps: list[Pair]

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON shows it."""
        return {
            "left": {fact.fact: fact.left for fact in self.facts},
            "right": {fact.fact: fact.right for fact in self.facts},
            "scores": [part._asdict() for part in self.scores],
            "steps": [pair._asdict() for pair in self.steps],
        }


def compared(left: Run, right: Run) -> Comparison:
    """Compare two runs."""
    facts = [Fact(name, _fact(left, name), _fact(right, name)) for name in FACTS]
    return Comparison(facts, [*_scores(left, right)], aligned(left.steps, right.steps))


def aligned(left: Sequence[StepRecord], right: Sequence[StepRecord]) -> list[Pair]:
    """Align the steps of both by type and tool, in order."""
    matcher = SequenceMatcher(None, [*map(_key, left)], [*map(_key, right)], autojunk=False)
    pairs: list[Pair] = []
    for tag, a_from, a_to, b_from, b_to in matcher.get_opcodes():
        ours, theirs = left[a_from:a_to], right[b_from:b_to]
        if tag == "equal":
            both = zip(ours, theirs, strict=True)
            pairs += [Pair("same", a.number, b.number, *_key(a)) for a, b in both]
        else:
            pairs += [Pair("left", a.number, None, *_key(a)) for a in ours]
            pairs += [Pair("right", None, b.number, *_key(b)) for b in theirs]
    return pairs


def _scores(left: Run, right: Run) -> Iterator[Part]:
    ours = {line.part: line for line in arithmetic(left)}
    theirs = {line.part: line for line in arithmetic(right)}
    names = [name for name in (*ours, *theirs) if name != "score"]
    for name in [*dict.fromkeys(names), *(["score"] if ours or theirs else [])]:
        a, b = ours.get(name), theirs.get(name)
        amounts = a and a.amount, b and b.amount
        difference = (amounts[1] or 0.0) - (amounts[0] or 0.0) if ours and theirs else None
        yield Part(name, *amounts, difference, a.working if a else "", b.working if b else "")


def _key(step: StepRecord) -> tuple[str, str | None]:
    return step.type, step.tool


def _fact(run: Run, name: str) -> Any:
    match name:
        case "state":
            return listed_state(run)
        case "success":
            return zero_or_one(run.known_success)
        case "gate" | "threshold":
            return getattr(run.scoring, name, None)
        case _:
            return getattr(run, name)
