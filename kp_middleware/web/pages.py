"""Our pages as HTML fragments, made from what the file says: overview, gate, run, search."""

import json
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from markupsafe import Markup

from kp_middleware.core.gates import exact
from kp_middleware.storage import (
    MOST_POINTS,
    Failure,
    LastDecisions,
    ModelTokens,
    NearMiss,
    Overview,
    Run,
    RunSummary,
    ScoreSlices,
)
from kp_middleware.views.prices import Prices, Spending
from kp_middleware.views.successes import record_in_words, success_warning
from kp_middleware.views.thresholds import never_leave
from kp_middleware.views.trace import timeline, view_trace
from kp_middleware.views.wording import (
    distance,
    share,
    shortened,
)
from kp_middleware.web.charts import (
    activity_bars,
    novelty_band,
    period_table,
    removal_bars,
    score_histogram,
    scores_by_domain,
    state_bars,
    success_by_score,
    threshold_curve,
    timeline_bars,
    tool_bars,
    waterfall,
)
from kp_middleware.web.marks import Chart, Links, Table, TableRow, render
from kp_middleware.web.run_pages import run_rows
from kp_middleware.web.trace_map import MostAlike, trace_map

NO_PRICES: Final = Prices()
_CELL: Final = 100
_LAST_DAYS: Final = 7


class Total(NamedTuple):
    """A number at the top; without an amount it is not shown."""

    name: str
    amount: int | str
    href: str | None = None
    is_loss: bool = False


class FullRun(NamedTuple):
    """A run with the runs most like it, its exact body, and what it recalled and cost."""

    run: Run
    alike: MostAlike
    body: str | None = None
    recalled: Sequence[RunSummary] = ()
    cost: float | None = None


class Extent(NamedTuple):
    """The parts shown of a run; one shown alone has a timeline and a map."""

    steps: int
    characters: int
    body: int
    is_alone: bool


FULL: Final = Extent(steps=200, characters=20_000, body=200_000, is_alone=True)
"""As much of a run as a page of its own shows."""


def overview_html(
    overview: Overview,
    links: Links,
    *,
    newest: Sequence[RunSummary] = (),
    used: Sequence[ModelTokens] = (),
    prices: Prices = NO_PRICES,
    every: str | None = None,
) -> Markup:
    """Render all charts; ``every`` leads to those of all runs, if these are of the last days."""
    scores, activity, spent = overview.scores, overview.activity, prices.spending(used)
    costs = {name: prices.in_words(one) for name, one in {**spent.days, **spent.models}.items()}
    return render(
        "overview.html",
        last=overview.last,
        warning=success_warning(overview.successes, overview.unjudged),
        chosen=record_in_words(overview.successes),
        totals=[total for total in _totals(overview, links, prices, spent) if total.amount],
        unpriced=spent.unpriced if costs else (),
        every=every,
        newest=run_rows(
            newest, links, {seq: prices.in_words(one) for seq, one in spent.runs.items()}
        ),
        activity=activity_bars(activity.days, links),
        endings=success_by_score(activity.endings, links),
        models=period_table("Model", activity.models, links, costs),
        days=period_table("Day", activity.days[: -_LAST_DAYS - 1 : -1], links, costs),
        failures=_failures(activity.failures, links),
        scores=score_histogram(scores, links),
        states=state_bars(overview.funnel, links),
        curve=threshold_curve(scores, links),
        private=_private(scores),
        domains=scores_by_domain(scores, links) if len(scores.domains) > 1 else None,
        tools=tool_bars(overview, links),
        novelty=novelty_band(overview.novelty),
        map=trace_map(overview.points, scores.domains, links),
        removals=removal_bars(overview.removals) if overview.removals else None,
        nearest=_nearest(overview.missed, links),
        last_above=sum(run.score >= run.threshold for run in overview.missed),
    )


def _totals(overview: Overview, links: Links, prices: Prices, spent: Spending) -> Iterator[Total]:
    """Yield the numbers at the top; one without an amount is not shown."""
    scores, found, days = overview.scores, overview.funnel, overview.activity.days
    known = sum(one.succeeded + one.failed for one in days)
    part = share(sum(one.succeeded for one in days), known) if known else ""
    reached = "cleared" if scores.threshold is None else f"at or above {exact(scores.threshold)}"
    yield Total("runs", f"{found.recorded:,}", links.runs())
    yield Total(f"succeeded, of {known:,} known", part, links.runs(outcome="succeeded"))
    failed = sum(one.failed for one in days)
    yield Total("failed", failed, links.runs(outcome="failed"), is_loss=True)
    yield Total(reached, scores.above, links.runs(cleared="1"))
    yield Total("sent", found.sent, links.runs(state="sent"))
    yield Total("waiting to be sent", found.waiting, links.runs(state="pending"))
    for name, amount in (("blocked", found.blocked), ("rejected", found.rejected)):
        yield Total(name, amount, links.runs(state=name), is_loss=True)
    cost = prices.in_words(sum(spent.days.values())) if spent.days else ""
    yield Total("spent in 30 days", cost, links.runs(sort="tokens"))


def _nearest(missed: Sequence[NearMiss], links: Links) -> Table:
    """Return the runs nearest to the threshold that decided on them, those that reach it first."""
    rows = (
        TableRow(
            (
                shortened(run.objective, _CELL),
                f"{run.score:.3f}",
                f"{'−' if run.score < run.threshold else '+'}{distance(run.score - run.threshold)}",
            ),
            links.trace(run.id),
        )
        for run in missed
    )
    return Table(("Objective", "Score", "Margin"), (*rows,))


def _failures(failures: Sequence[Failure], links: Links) -> Table:
    rows = (
        TableRow(
            (
                one.tool or "the run ended",
                shortened(one.error or "(no message)", _CELL),
                f"{one.times:,}",
            ),
            links.runs(failing=one.tool) if one.tool else links.runs(error=one.error),
        )
        for one in failures
    )
    return Table(("Tool", "Error", "Times"), (*rows,))


def gate_html(scores: ScoreSlices, last: LastDecisions, links: Links) -> Markup:
    """Render how the gate decided last, and what each threshold would let through."""
    return render(
        "gate.html",
        last=last,
        curve=threshold_curve(scores, links),
        private=_private(scores),
        is_fixed=scores.threshold is not None,
        domains=scores_by_domain(scores, links),
    )


def trace_html(
    full: FullRun,
    links: Links,
    *,
    domains: Sequence[str] = (),
    prices: Prices = NO_PRICES,
    extent: Extent = FULL,
) -> Markup:
    """Render all that is known of one run; each of the file's domains keeps its colour."""
    trace, alike, body = full.run, full.alike, full.body
    run, nearest = view_trace(trace), len(alike.similarities)
    rows = (
        TableRow(
            (
                shortened(point.objective, _CELL),
                "" if point.score is None else f"{point.score:.3f}",
                f"{similarity:.3f}".replace("-", "−"),
            ),
            links.trace(point.id),
        )
        for point, similarity in zip(alike.points[1:], alike.similarities, strict=False)
    )
    paid = {
        step.number: prices.in_words(
            prices.cost(step.model, (step.input_tokens, step.output_tokens))
        )
        for step in trace.steps
    }
    newest = f"the {MOST_POINTS:,} newest; kp-middleware similar compares all"
    return render(
        "trace.html",
        run=run,
        cost=prices.in_words(full.cost),
        recalled=run_rows(full.recalled, links),
        timeline=timeline_bars(timeline(trace), paid) if extent.is_alone else Chart(""),
        waterfall=waterfall(run),
        body=json.dumps(json.loads(body), ensure_ascii=False, indent=2) if body else "",
        body_bytes=len((body or "").encode()),
        alike=Table(("Objective", "Score", "Similarity"), (*rows,)),
        compared="all others" if alike.are_all else newest,
        map=trace_map(alike.points, domains, links, nearest=nearest)
        if extent.is_alone and nearest
        else None,
        extent=extent,
    )


def _private(scores: ScoreSlices) -> str:
    leaving = scores.leaving
    private, reach = scores.traces - leaving.traces, scores.above - leaving.above
    return never_leave(private, reach) if private else ""
