"""The runs that a person is asked about: which, and what to tell of each."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from kp_middleware.database import Queries
from kp_middleware.storage._estimates import TOLD_SQL
from kp_middleware.storage._records import Run, StepRecord

WhyAsked: TypeAlias = Literal["forwarded", "uncertain"]
"""Why a run is asked about: the gate lets it leave, or it is hard to tell how it ended."""

UNJUDGED: Final = """(
    coalesce(t.success_source, 'assumed') = 'assumed'
    OR t.success_source = 'said' AND t.reason_args ->> 'delivery' = 'unconfirmed'
)"""
"""The runs ``t`` of which nobody has said how they ended, or whose agent's word is not enough."""

RECENT: Final = 500
"""The last runs that are asked about: the estimate forgets what was said of older ones."""

_SUCCESSES: Final = f"""
    SELECT count(*), coalesce(sum(success), 0), coalesce(sum(chosen), 0),
           coalesce(sum(success AND chosen), 0), EXISTS (
             SELECT 1 FROM (SELECT reason_args FROM traces WHERE decision = 'forward'
                            ORDER BY seq DESC LIMIT ?)
             WHERE reason_args ->> 'delivery' IN ('unconfirmed', 'not_done', 'too_late'))
    FROM traces INDEXED BY traces_ranked
    WHERE score IS NOT NULL AND success_source IN ({TOLD_SQL}) AND visibility <> 'private'
      AND seq >= ?
"""
_WAY_LINES: Final = 10
_BEGINNING: Final = 4
_LINE: Final = 160
_ENOUGH: Final = 10  # forwarded runs that say something about a gate


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewItem:
    """A run that nobody has judged, with what it takes to judge it.

    Attributes:
        trace_id: The id of its trace, for `KnowledgePulse.feedback`.
        why: ``forwarded``: the gate lets it leave; ``uncertain``: how it ended is in doubt.
        is_forwarded: True if it has left, waits to be sent, or would be sent with an API key.
        started_at: When it began: ``2026-11-01T09:14:03.120Z``.
        domain: Its domain.
        objective: What was asked.
        way: What it did, in at most ten lines.
        result: What came out; empty if nothing did.
        score: Its score, from 0 to 1.
        threshold: What its gate asked for, from 0 to 1; None if it asked for nothing.
        p_success: The estimated probability that it did its task; None without an estimate.
        p_reasons: The main reasons of that: a feature, how many standard deviations it lies from
            the usual, and what it adds to the log-odds.
    """

    trace_id: str
    why: WhyAsked
    is_forwarded: bool
    started_at: str
    domain: str
    objective: str
    way: tuple[str, ...]
    result: str
    score: float | None
    threshold: float | None
    p_success: float | None = None
    p_reasons: tuple[tuple[str, float, float], ...] = ()


class Unsure(NamedTuple):
    """A scored run that nobody has judged."""

    seq: int
    is_forwarded: bool
    sureness: float  # how far its estimated success is from 0.5; 0: no estimate


class Unjudged(NamedTuple):
    """How many of the last runs that a gate let through nobody has judged."""

    unjudged: int
    forwarded: int


class SuccessRecord(NamedTuple):
    """The successes among the scored runs whose outcome is known."""

    known: int = 0  # without private ones
    succeeded: int = 0
    forwarded_known: int = 0  # of them: chosen before that was told
    forwarded_succeeded: int = 0
    some_stay: bool = False  # chosen, but awaiting a confirmation

    @property
    def is_worse_than_chance(self) -> bool:
        """True if of ten or more forwarded ones a smaller share succeeded than of all."""
        return (
            self.forwarded_known >= _ENOUGH
            and self.forwarded_succeeded * self.known < self.succeeded * self.forwarded_known
        )


class Reviews(Queries):
    """How many runs of one file somebody has judged."""

    def unjudged(self) -> Unjudged:
        """Count the last runs that a gate let through, and those of them that nobody judged."""
        sql = (
            f"SELECT coalesce(sum(un), 0), count(*) FROM (SELECT {UNJUDGED} AS un FROM traces t"
            " WHERE decision = 'forward' AND visibility <> 'private' ORDER BY seq DESC LIMIT ?)"
        )
        return Unjudged(*self._row(sql, (RECENT,)))

    def success_record(self, *, first: int = 0) -> SuccessRecord:
        """Count the known endings, of scored runs and of those forwarded, from ``first`` on."""
        return self._all(SuccessRecord, _SUCCESSES, (RECENT, first))[0]


def asked_first(candidates: Sequence[Unsure], limit: int) -> list[Unsure]:
    """Return which runs to ask about: those that leave, the newest first, then the doubtful."""
    going = [one for one in candidates if one.is_forwarded]
    others = [one for one in candidates if not one.is_forwarded]
    others.sort(key=lambda one: one.sureness)
    if len(going) >= limit:
        going = going[: max((limit + 1) // 2, limit - len(others))]
    return [*going, *others[: limit - len(going)]]


def review_item(run: Run, *, is_forwarded: bool) -> ReviewItem:
    """Return what to tell of a run."""
    steps, result = run.steps, run.result_summary
    if len(steps) > 1 and steps[-1].tool is None and steps[-1].content == result:
        steps = steps[:-1]  # it only says the result
    return ReviewItem(
        trace_id=run.id,
        why="forwarded" if is_forwarded else "uncertain",
        is_forwarded=is_forwarded,
        started_at=run.started_at,
        domain=run.domain,
        objective=run.objective,
        way=way_of(steps),
        result=result or "",
        score=run.score,
        threshold=None if run.scoring is None else run.scoring.threshold,
        p_success=None if run.estimate is None else run.estimate.p,
        p_reasons=() if run.estimate is None else run.estimate.reasons,
    )


def way_of(steps: Sequence[StepRecord]) -> tuple[str, ...]:
    """Tell a run's steps in at most ten lines: its beginning, and more of its end."""
    lines: list[str] = []
    called: dict[str, int] = {}
    for step in steps:
        if step.type == "tool_call":
            called[step.tool or ""] = len(lines)
            lines.append(f"{step.tool}({_arguments(step.input)})")
        elif step.tool in called and step.type == "observation":
            at = called.pop(step.tool)
            lines[at] = f"{lines[at]} → {step.output_summary or ''}"
        else:
            text = step.content or step.output_summary or ""
            mark = "! " if step.type == "error_recovery" else ""
            lines.append(f"{mark}{f'{step.tool}: ' if step.tool else ''}{text}")
    told = [" ".join(line.split()) for line in lines]
    cut = [line if len(line) <= _LINE else f"{line[: _LINE - 1]}…" for line in told]
    if len(cut) <= _WAY_LINES:
        return tuple(cut)
    end = _WAY_LINES - _BEGINNING - 1
    return (*cut[:_BEGINNING], f"… {len(cut) - _BEGINNING - end} more …", *cut[-end:])


def _arguments(given: object) -> str:
    if not isinstance(given, dict):
        return ""
    told = (f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in given.items())
    line = ", ".join(told)
    return line if len(line) <= _LINE // 2 else f"{line[: _LINE // 2]}…"
