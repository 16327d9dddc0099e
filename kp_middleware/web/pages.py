"""The pages as HTML fragments, and the report as one document."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar

from markupsafe import Markup

from kp_middleware import storage
from kp_middleware.core.gates import exact
from kp_middleware.errors import RedactionError
from kp_middleware.instants import instant
from kp_middleware.views import trace
from kp_middleware.views.gate import private_note, record_in_words, success_warning
from kp_middleware.views.prices import Prices, Spending
from kp_middleware.views.wording import distance, minute, percent, shortened
from kp_middleware.web import charts
from kp_middleware.web.marks import Chart, Links, Table, TableRow, render
from kp_middleware.web.run_pages import run_rows
from kp_middleware.web.trace_map import SimilarRuns, trace_map

if TYPE_CHECKING:
    from kp_middleware.settings import Settings

__all__ = ["FULL_EXTENT", "FullRun", "Redactor", "gate_html", "make_report", "overview_html",
           "trace_html"]  # fmt: skip

NO_PRICES: Final = Prices()
_LAST_DAYS: Final = 7  # in the table
_CELL: Final = 100


class FullRun(NamedTuple):
    run: storage.Run
    similar: SimilarRuns
    body: str | None = None
    recalled: Sequence[storage.RunSummary] = ()
    cost: float | None = None


class Extent(NamedTuple):
    """The limits on the parts of a run to show: by default on its own page, with pictures."""

    steps: int = 200
    characters: int = 20_000
    body: int = 200_000
    is_single: bool = True


FULL_EXTENT: Final = Extent()


def overview_html(
    overview: storage.Overview,
    links: Links,
    *,
    newest: Sequence[storage.RunSummary] = (),
    used: Sequence[storage.ModelTokens] = (),
    prices: Prices = NO_PRICES,
    every: str | None = None,
) -> Markup:
    """Render the overview; ``every`` links a limited one to the overview of all runs."""
    scores, spent = overview.scores, prices.spending(used)
    amounts = {**spent.days, **spent.models}
    costs = {name: prices.in_words(amount) for name, amount in amounts.items()}
    return render(
        "overview.html",
        last=overview.last,
        warning=success_warning(overview.successes, overview.review_backlog),
        chosen=record_in_words(overview.successes),
        totals=_totals(overview, links, prices, spent),
        unpriced=spent.unpriced if costs else (),
        every=every,
        newest=run_rows(
            newest, links, {seq: prices.in_words(cost) for seq, cost in spent.runs.items()}
        ),
        activity=charts.activity_bars(overview.days, links),
        endings=charts.success_by_score(overview.endings, links),
        models=charts.period_table("Model", overview.models, links, costs),
        days=charts.period_table("Day", overview.days[: -_LAST_DAYS - 1 : -1], links, costs),
        failures=_failures(overview.failures, links),
        scores=charts.score_histogram(scores, links),
        states=charts.state_bars(overview.funnel, links),
        curve=charts.threshold_curve(scores, links),
        private=_private(scores),
        tools=charts.tool_bars(overview, links),
        novelty=charts.novelty_band(overview.novelty),
        map=trace_map(overview.points, scores.domains, links),
        removals=charts.removal_bars(overview.removals) if overview.removals else None,
        nearest=_nearest(overview.missed, links),
        last_above=sum((run.margin or 0) >= 0 for run in overview.missed),
    )


def _totals(
    overview: storage.Overview, links: Links, prices: Prices, spent: Spending
) -> Iterator[tuple[str, int | str, str | None, bool]]:
    """Yield the totals: name, value, link, and whether it is a loss."""
    scores, found, (succeeded, failed) = overview.scores, overview.funnel, overview.outcomes
    known = succeeded + failed
    part = percent(succeeded, known) if known else ""
    reached = "cleared" if scores.threshold is None else f"at or above {exact(scores.threshold)}"
    cost = prices.in_words(sum(spent.days.values())) if spent.days else ""
    yield "runs", found.recorded, links.runs(), False
    yield f"succeeded, of {known:,} known", part, links.runs(outcome="succeeded"), False
    yield "failed", failed, links.runs(outcome="failed"), True
    yield reached, scores.above, links.runs(cleared="1"), False
    yield "sent", found.sent, links.runs(state="sent"), False
    yield "waiting to be sent", found.waiting, links.runs(state="pending"), False
    yield "blocked", found.blocked, links.runs(state="blocked"), True
    yield "rejected", found.rejected, links.runs(state="rejected"), True
    yield "spent in 30 days", cost, links.runs(sort="tokens"), False


def _nearest(missed: Sequence[storage.RunSummary], links: Links) -> Table:
    rows = []
    for run in missed:
        score, threshold = run.score or 0.0, run.threshold
        margin = (run.margin or 0.0) if threshold is None else score - threshold
        signed = f"{'−' if margin < 0 else '+'}{distance(margin)}"
        cells = (shortened(run.objective, _CELL), f"{score:.3f}", signed)
        rows.append(TableRow(cells, links.trace(run.id)))
    return Table(("Objective", "Score", "Margin"), rows)


def _failures(failures: Sequence[storage.Failure], links: Links) -> Table:
    rows = []
    for failure in failures:
        error = shortened(failure.error or "(no message)", _CELL)
        href = links.runs(failing=failure.tool) if failure.tool else links.runs(error=failure.error)
        rows.append(TableRow((failure.tool or "(run error)", error, f"{failure.times:,}"), href))
    return Table(("Tool", "Error", "Times"), rows)


def gate_html(scores: storage.ScoreSlices, last: storage.LastDecisions, links: Links) -> Markup:
    return render(
        "gate.html",
        last=last,
        curve=charts.threshold_curve(scores, links),
        private=_private(scores),
        is_fixed=scores.threshold is not None,
    )


def trace_html(
    full: FullRun,
    links: Links,
    *,
    domains: Sequence[str] = (),
    prices: Prices = NO_PRICES,
    extent: Extent = FULL_EXTENT,
) -> Markup:
    """Render one run; pass all domains of the file so that each keeps its color."""
    run, similar, body = full.run, full.similar, full.body
    view, nearest = trace.view_trace(run), len(similar.similarities)
    rows = []
    for point, similarity in zip(similar.points[1:], similar.similarities, strict=False):
        score = "" if point.score is None else f"{point.score:.3f}"
        cells = (shortened(point.objective, _CELL), score, f"{similarity:.3f}".replace("-", "−"))
        rows.append(TableRow(cells, links.trace(point.id)))
    costs = {
        step.number: prices.in_words(prices.cost(step.model, step.input_tokens, step.output_tokens))
        for step in run.steps
    }
    return render(
        "trace.html",
        run=run,
        view=view,
        steps=[trace.view_step(run, step) for step in run.steps],
        cost=prices.in_words(full.cost),
        recalled=run_rows(full.recalled, links),
        timeline=charts.timeline_bars(trace.timed_calls(run), run.duration_ms or 0, costs)
        if extent.is_single
        else Chart(""),
        waterfall=charts.waterfall(
            trace.arithmetic(run), trace.applied_threshold(run), view.delivery_status
        ),
        body=json.dumps(json.loads(body), ensure_ascii=False, indent=2) if body else "",
        body_bytes=len((body or "").encode()),
        similar=Table(("Objective", "Score", "Similarity"), rows),
        compared=storage.MOST_POINTS,
        map=trace_map(similar.points, domains, links, nearest=nearest)
        if extent.is_single and nearest
        else None,
        extent=extent,
    )


def _private(scores: storage.ScoreSlices) -> str:
    shareable = scores.without_private
    private, reach = scores.traces - shareable.traces, scores.above - shareable.above
    return private_note(private, reach) if private and shareable.traces else ""


_REPORT_EXTENT: Final = Extent(steps=20, characters=600, body=4_000, is_single=False)
_TEXTS: Final = (
    *("id", "objective", "result_summary", "domain", "framework", "agent_name", "model", "reason"),
    *("error_type", "agent", "tool", "content", "input", "output_summary", "gate", "nearest_id"),
    *("nearest_objective", "last_error", "registry", "remote_id", "error"),
)
"""The fields of stored records that may hold sensitive text."""

_Record = TypeVar("_Record")


class Redactor:
    """Redact the texts of stored records; leave out what ``redact`` raises RedactionError for."""

    def __init__(self, redact: Callable[[object], Any]) -> None:
        self.left_out = 0
        self._redact = redact
        self.text = cache(lambda text: str(self._value(text)))  # many records have the same

    @classmethod
    def from_settings(cls, settings: "Settings") -> Self:
        from kp_middleware.privacy import Policy, redact_jsonable

        policy, level = Policy.from_settings(settings), settings.privacy_level
        return cls(lambda value: redact_jsonable(value, level=level, policy=policy).value)

    def record(self, record: _Record) -> _Record:
        """Redact the texts of a stored record and of nested records."""
        old: Any = record
        is_tuple = isinstance(record, tuple)
        names = old._fields if is_tuple else [field.name for field in fields(old)]
        clean = {name: self._field(name, value) for name in names if (value := getattr(old, name))}
        cleaned: _Record = old._replace(**clean) if is_tuple else replace(old, **clean)
        return cleaned

    def overview(self, overview: storage.Overview, *, named: set[int]) -> storage.Overview:
        """Redact the data of the charts; the map shows objectives only of the runs ``named``."""
        points, last = overview.points, overview.last
        domains = {self.text(name): score for name, score in last.domains.items()}
        points = tuple(dot if dot.seq in named else dot._replace(objective="") for dot in points)
        models = tuple(model._replace(name=self.text(model.name)) for model in overview.models)
        last = last._replace(domains=domains)
        return self.record(overview._replace(points=points, models=models, last=last))

    def full_run(self, history: storage.History, seq: int) -> FullRun:
        similar = SimilarRuns.from_points(history.points(around=seq))
        similar = similar._replace(points=similar.points[: len(similar.similarities) + 1])
        body = history.outbox_body(seq)
        if body is not None:
            document = json.loads(body)
            body = body if self._value(document) == document else None
        return FullRun(self.record(history.run(seq)), self.record(similar), body)

    def _field(self, name: str, value: Any) -> Any:
        if name in _TEXTS:
            return self.text(value) if isinstance(value, str) else self._value({name: value})[name]
        if hasattr(value, "_fields") or is_dataclass(value):
            return self.record(value)
        if isinstance(value, tuple):
            return tuple(self._field("", item) for item in value)
        return value

    def _value(self, value: object) -> Any:
        try:
            return self._redact(value)
        except RedactionError as error:
            self.left_out += 1
            word = f"[left out: {error.reason}]"
            return dict.fromkeys(value, word) if isinstance(value, dict) else word


class _Anchors(NamedTuple):
    """Links within a single document, which does not contain all runs."""

    trace: Callable[[str], str | None]
    runs: Callable[..., None] = lambda **_: None


def make_report(
    history: storage.History,
    db: Path,
    since: str | None,
    redactor: Redactor,
    level: str | None,
    *,
    progress: Callable[[Iterable[FullRun], int], Iterable[FullRun]],
) -> tuple[str, int, int]:
    """Return the report, and how many runs are in full and listed; no level means unredacted."""
    first = 0 if since is None else history.first_since(since)
    overview = history.overview(since=since)
    in_full = {*history.best(20, first=first), *(run.seq for run in overview.missed)}
    newest = history.runs(storage.Filters(since=since), limit=60)
    listed = history.runs_at(in_full | {run.seq for run in newest})
    listed.sort(key=lambda run: (-1 if run.score is None else run.score, run.seq), reverse=True)
    seqs = [run.seq for run in listed if run.seq in in_full]
    runs = [*progress((redactor.full_run(history, seq) for seq in seqs), len(seqs))]
    overview, title = redactor.overview(overview, named=in_full), redactor.text(db.name)
    links = _Anchors({full.run.id: f"#trace-{full.run.seq}" for full in runs}.get)
    domains = overview.scores.domains
    shown = (trace_html(full, links, domains=domains, extent=_REPORT_EXTENT) for full in runs)
    span = f" since {minute(since)}" if since else ""
    redaction = f"Its texts are redacted at level {level}."
    if level is None:
        redaction = "Its texts are not redacted: check them before you share it."
    html = render(
        "report.html",
        title=title,
        remark=f"From {title}{span}, made {minute(instant(time.time()))} UTC. {redaction}",
        overview=overview_html(overview, links),
        listed=run_rows(map(redactor.record, listed), links),
        runs=[*zip((full.run for full in runs), shown, strict=True)],
    )
    return html, len(runs), len(listed)
