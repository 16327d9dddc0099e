"""Our pages as HTML fragments, made from what the file says: overview, gate, run, search."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from markupsafe import Markup

from kp_middleware.core.gates import exact
from kp_middleware.storage import (
    MOST_POINTS,
    Activity,
    Failure,
    LastDecisions,
    NearMiss,
    Overview,
    Run,
    RunSummary,
    ScoreSlices,
)
from kp_middleware.views.successes import successes_in_words
from kp_middleware.views.thresholds import never_leave
from kp_middleware.views.timeline import timeline
from kp_middleware.views.trace import TraceView, view_trace
from kp_middleware.views.wording import (
    duration,
    in_hundredths,
    outcome,
    share,
    shortened,
    signed,
    titled,
)
from kp_middleware.web.charts import (
    activity_bars,
    novelty_band,
    period_table,
    removal_bars,
    state_bars,
    timeline_bars,
    tool_bars,
    waterfall,
)
from kp_middleware.web.marks import Chart, Links, Table, TableRow, render
from kp_middleware.web.score_charts import (
    NO_SCORES,
    score_histogram,
    scores_by_domain,
    threshold_curve,
)
from kp_middleware.web.trace_map import MostAlike, trace_map

_MOST_DIGITS: Final = 6
_CELL: Final = 100
_FOUND_CELL: Final = 160
_LAST_DAYS: Final = 7
_NEAR: Final = 5  # hundredths


class NearRun(NamedTuple):
    """A run that just made it, or just missed; the line is drawn below ``is_last_above``."""

    title: str
    href: str | None
    score: str
    margin: str
    is_last_above: bool


class Total(NamedTuple):
    """A number at the top; an empty amount is not shown."""

    name: str
    amount: str
    href: str | None = None
    is_loss: bool = False


class ListedRun(NamedTuple):
    """A row of a list of runs."""

    seq: int
    title: str
    href: str | None
    domain: str
    started_at: str
    outcome: str
    took: str
    tokens: str
    state: str
    score: str


@dataclass(frozen=True, slots=True)
class OverviewView:
    """All charts of a file.

    Attributes:
        last: How the gate decided last.
        totals: The numbers at the top, none of them 0: a name, how many, and where they are.
        newest: The last runs.
        activity: The runs of each day.
        models: How long the runs of each model took; ``days`` the same of the last days.
        failures: What failed most.
        private: How many the curve does not count, in words.
        domains: None where there is one domain alone.
        nearest: The runs on either side of their threshold.
        no_scores: What is said where there are none.
    """

    last: LastDecisions
    successes: tuple[str, ...]
    totals: tuple[Total, ...]
    newest: tuple[ListedRun, ...]
    activity: Chart
    models: Table
    days: Table
    failures: Table
    scores: Chart
    states: Chart
    curve: Chart
    private: str
    domains: Chart | None
    tools: Chart
    novelty: Chart
    map: Chart
    removals: Chart
    nearest: tuple[NearRun, ...]
    no_scores: str = NO_SCORES


@dataclass(frozen=True, slots=True)
class GateView:
    """The gate: the share of runs that each threshold would let through.

    Attributes:
        last: How the gate decided last.
        curve: The share at each threshold.
        private: How many the curve does not count, in words.
        is_fixed: Whether one threshold is in force for all runs.
        by_domain: At the threshold, and a little on either side.
        domains: A histogram of each.
    """

    last: LastDecisions
    curve: Chart
    private: str
    is_fixed: bool
    by_domain: Table
    domains: Chart


class Extent(NamedTuple):
    """The extent to which a run is shown.

    Attributes:
        steps: How many of its steps, the first.
        characters: Of each text.
        body: How many characters of what was sent.
        is_alone: Whether it has the page for itself: then with a timeline and a map.
    """

    steps: int
    characters: int
    body: int
    is_alone: bool


FULL: Final = Extent(steps=200, characters=20_000, body=200_000, is_alone=True)
"""As much of a run as a page of its own shows."""


@dataclass(frozen=True, slots=True)
class TracePage:
    """One run with what surrounds it.

    Attributes:
        run: The run.
        timeline: When its calls began, and how long they took.
        waterfall: Why it scored so.
        body: What was or would be sent, indented; empty where nothing would.
        body_bytes: How many it takes on the wire.
        alike: The runs most like it.
        compared: Among whom they were found, in words.
        map: Where they are; None where no map is wanted.
        extent: How much is shown.
    """

    run: TraceView
    timeline: Chart
    waterfall: Chart
    body: str
    body_bytes: int
    alike: Table
    compared: str
    map: Chart | None
    extent: Extent


def overview_html(
    overview: Overview,
    links: Links,
    *,
    newest: Sequence[RunSummary] = (),
    memory_days: float | None = None,
) -> Markup:
    """Render all charts of a file.

    Args:
        overview: What the file says.
        links: Where things lead.
        newest: The last runs.
        memory_days: How long an earlier run is compared with, where that is known and limited.
    """
    scores, found = overview.scores, overview.funnel
    reached = "cleared" if scores.threshold is None else f"at or above {exact(scores.threshold)}"
    lost = found.blocked + found.rejected
    activity = overview.activity
    totals = (
        Total("runs", f"{found.recorded:,}", links.state("recorded")),
        _succeeded(activity, links),
        Total(reached, _some(scores.above), links.state("cleared")),
        Total("sent", _some(found.sent), links.state("sent")),
        Total("waiting to be sent", _some(found.waiting), links.state("pending")),
        Total("blocked or rejected", _some(lost), links.state("blocked"), is_loss=True),
    )
    page = OverviewView(
        last=overview.last,
        successes=successes_in_words(overview.successes, overview.unjudged),
        totals=tuple(total for total in totals if total.amount),
        newest=tuple(listed_run(run, links) for run in newest),
        activity=activity_bars(activity.days, links),
        models=period_table("Model", activity.models, links.model),
        days=period_table("Day", activity.days[: -_LAST_DAYS - 1 : -1], links.day),
        failures=_failures(activity.failures, links),
        scores=score_histogram(scores, links),
        states=state_bars(found, links),
        curve=threshold_curve(scores, links),
        private=_private(scores),
        domains=scores_by_domain(scores, links) if len(scores.domains) > 1 else None,
        tools=tool_bars(overview, links),
        novelty=novelty_band(overview.novelty, memory_days=memory_days),
        map=trace_map(overview.points, scores.domains, links),
        removals=removal_bars(overview.removals, nothing=_nothing_removed(overview)),
        nearest=near_runs(overview.missed, links),
    )
    return render("overview.html", page=page)


def _succeeded(activity: Activity, links: Links) -> Total:
    """Return the part of the latest runs with a known end that succeeded; empty where none has."""
    known = sum(one.succeeded + one.failed for one in activity.days)
    part = share(sum(one.succeeded for one in activity.days), known) if known else ""
    return Total(f"succeeded, of {known:,} known", part, links.outcome("succeeded"))


def _some(number: int) -> str:
    return f"{number:,}" if number else ""


def _failures(failures: Sequence[Failure], links: Links) -> Table:
    rows = (
        TableRow(
            (one.tool or "the run ended", shortened(one.error, _CELL), f"{one.times:,}"),
            links.tool(one.tool) if one.tool else links.outcome("failed"),
        )
        for one in failures
    )
    return Table(("Tool", "Error", "Times"), (*rows,))


def gate_html(scores: ScoreSlices, last: LastDecisions, links: Links) -> Markup:
    """Render how the gate decided last, and what each threshold would let through."""
    page = GateView(
        last=last,
        curve=threshold_curve(scores, links),
        private=_private(scores),
        is_fixed=scores.threshold is not None,
        by_domain=_by_domain(scores.leaving, links) if scores.leaving.traces else Table(),
        domains=scores_by_domain(scores, links),
    )
    return render("gate.html", page=page)


def trace_html(
    trace: Run,
    alike: MostAlike,
    links: Links,
    *,
    body: str | None = None,
    domains: Sequence[str] = (),
    extent: Extent = FULL,
) -> Markup:
    """Render all that is known of one run.

    Args:
        trace: The run.
        alike: The runs most like it.
        links: Where things lead.
        body: Exactly what was or would be sent; None if nothing would.
        domains: Those of the whole file: each keeps its colour.
        extent: How much is shown.
    """
    run, places = view_trace(trace), [place for place, _ in alike.nearest]
    rows = (
        TableRow(
            (
                titled(alike.points[place].objective, _CELL),
                _score(alike.points[place].score),
                f"{similarity:.3f}".replace("-", "−"),
            ),
            links.trace(alike.points[place].id),
        )
        for place, similarity in alike.nearest
    )
    newest = f"the {MOST_POINTS:,} newest; kp-middleware similar compares all"
    draws_map = extent.is_alone and bool(places)
    page = TracePage(
        run=run,
        timeline=timeline_bars(timeline(trace)) if extent.is_alone else Chart(""),
        waterfall=waterfall(run),
        body=json.dumps(json.loads(body), ensure_ascii=False, indent=2) if body else "",
        body_bytes=len((body or "").encode()),
        alike=Table(("Objective", "Score", "Similarity"), (*rows,)),
        compared="all others" if alike.are_all else newest,
        map=trace_map(alike.points, domains, links, nearest=places) if draws_map else None,
        extent=extent,
    )
    return render("trace.html", page=page)


def listed_run(run: RunSummary, links: Links) -> ListedRun:
    """Return a row of a list of runs."""
    return ListedRun(
        seq=run.seq,
        title=shortened(run.objective, _FOUND_CELL),
        href=links.trace(run.id),
        domain=run.domain,
        started_at=run.started_at,
        outcome=outcome(run.known_success),
        took="" if run.duration_ms is None else duration(run.duration_ms),
        tokens="" if run.tokens is None else f"{run.tokens:,}",
        state=run.state,
        score=_score(run.score),
    )


def near_runs(missed: Sequence[NearMiss], links: Links) -> tuple[NearRun, ...]:
    """Return the runs nearest to the threshold that decided on them, those that reach it first."""
    last_above = sum(run.score >= run.threshold for run in missed) - 1
    return tuple(
        NearRun(
            titled(run.objective, _CELL),
            links.trace(run.id),
            *_score_and_margin(run.score, run.threshold),
            is_last_above=place == last_above and place < len(missed) - 1,
        )
        for place, run in enumerate(missed)
    )


def _score_and_margin(score: float, threshold: float) -> tuple[str, str]:
    """Write both with as many digits as tell the score and the threshold apart: 3 to 6."""
    margin, digits = score - threshold, 3
    while score != threshold and digits < _MOST_DIGITS:
        written = f"{score:.{digits}f}" != f"{threshold:.{digits}f}"
        if written and round(margin, digits) != 0:
            break
        digits += 1
    return f"{score:.{digits}f}", signed(margin, digits)


def _score(score: float | None) -> str:
    return "" if score is None else f"{score:.3f}"


def _private(scores: ScoreSlices) -> str:
    private = sum(one.traces for one in scores.private)
    reach = sum(one.above for one in scores.private)
    return never_leave(private, reach) if private else ""


def _nothing_removed(overview: Overview) -> str:
    if overview.removed_earlier:
        return "nothing had to be removed in the 12 weeks up to the newest run; before, something"
    if overview.funnel.queued:
        return "nothing had to be removed from what is sent"
    return "nothing was to be sent yet; what redaction takes out of it is counted here"


def _by_domain(scores: ScoreSlices, links: Links) -> Table:
    """Count at the threshold, or else at the bar of the best tenth, and on either side of it."""
    now = _best_tenth(scores) / 100 if scores.threshold is None else scores.threshold
    hundredth = round(100 * now)
    near = {max(0, hundredth - _NEAR), min(100, hundredth + _NEAR)}
    columns = {at / 100: [scores.of(name).reaching(at) for name in scores.domains] for at in near}
    columns[now] = [
        of.reaching(hundredth) if scores.threshold is None else of.above
        for of in map(scores.of, scores.domains)
    ]
    rows = []
    for place, name in enumerate(scores.domains):
        traces = scores.of(name).traces
        shares = (share(columns[at][place], traces) for at in sorted(columns))
        rows.append(TableRow((name, *shares), links.domain(name)))
    return Table(("Domain", *map(in_hundredths, sorted(columns))), (*rows,))


def _best_tenth(scores: ScoreSlices) -> int:
    """Return the highest hundredth that a tenth of all reach."""
    return next(at for at in range(100, -1, -1) if 10 * scores.reaching(at) >= scores.traces)
