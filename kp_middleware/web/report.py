"""The report: the notable runs, redacted, as one self-contained page."""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from kp_middleware.errors import RedactionError
from kp_middleware.instants import instant
from kp_middleware.storage import History, MapPoint, Overview, Run, RunSummary
from kp_middleware.views.wording import minute
from kp_middleware.web.marks import render
from kp_middleware.web.pages import Extent, FullRun, overview_html, trace_html
from kp_middleware.web.run_list import run_rows
from kp_middleware.web.trace_map import MostAlike

if TYPE_CHECKING:
    from kp_middleware.settings import Settings

EXTENT: Final = Extent(steps=20, characters=600, body=4_000, is_alone=False)
"""How much of each run the report has."""

_BEST: Final = 20
_NEWEST: Final = 10
_OF_EACH_SCORE: Final = 3
_RUN_TEXTS: Final = ("id", "objective", "result_summary", "domain", "framework", "agent_name")
_MORE_RUN_TEXTS: Final = ("model", "error_type", "reason")
_SUMMARY_TEXTS: Final = ("id", "objective", "domain", "reason")
_STEP_TEXTS: Final = ("agent", "tool", "content", "input", "output_summary")
_SCORING_TEXTS: Final = ("gate", "nearest_id", "nearest_objective")
_OUTBOX_TEXTS: Final = ("reason", "last_error", "registry", "remote_id")


Progress: TypeAlias = Callable[[Iterable[FullRun], int], Iterable[FullRun]]
"""Hands on the same items, of a total, and shows how far they are."""


class Cleaning:
    """Take out of texts what must not be shared; what cannot be cleaned is left out."""

    def __init__(self, redact: Callable[[object], Any]) -> None:
        """Clean with ``redact``, which returns the same shape redacted or raises RedactionError."""
        self.left_out = 0
        self._redact = redact
        self._texts: dict[str, str] = {}

    def text(self, text: str) -> str:
        """Clean one text; the same text is asked about once."""
        if text not in self._texts:
            self._texts[text] = str(self._value(text))
        return self._texts[text]

    def summary(self, run: RunSummary) -> RunSummary:
        """Clean a run of a list."""
        return run._replace(**self._fields(run, _SUMMARY_TEXTS))

    def run(self, run: Run) -> Run:
        """Clean one run with its steps and its delivery."""
        scoring, outbox = run.scoring, run.outbox
        return replace(
            run,
            **self._fields(run, (*_RUN_TEXTS, *_MORE_RUN_TEXTS)),
            steps=tuple(replace(one, **self._fields(one, _STEP_TEXTS)) for one in run.steps),
            scoring=scoring and replace(scoring, **self._fields(scoring, _SCORING_TEXTS)),
            outbox=outbox and replace(outbox, **self._fields(outbox, _OUTBOX_TEXTS)),
        )

    def body(self, body: str | None) -> str | None:
        """Return exactly what was sent, if nothing has to go from it today; else None."""
        if body is None:
            return None
        document = json.loads(body)
        return body if self._value(document) == document else None

    def alike(self, alike: MostAlike) -> MostAlike:
        """Clean a list of like runs; the others are left out."""
        shown = alike.points[: len(alike.similarities) + 1]
        return alike._replace(points=tuple(self._point(point, names=True) for point in shown))

    def overview(self, overview: Overview, *, named: set[int]) -> Overview:
        """Clean what the charts draw; on the map only the runs ``named`` say what they were."""
        return overview._replace(
            scores=overview.scores.renamed(self.text),
            last=overview.last._replace(
                gate=self.text(overview.last.gate),
                domains={self.text(name): score for name, score in overview.last.domains.items()},
            ),
            tools=tuple(use._replace(tool=self.text(use.tool)) for use in overview.tools),
            missed=tuple(
                one._replace(**self._fields(one, ("id", "objective"))) for one in overview.missed
            ),
            points=tuple(self._point(one, names=one.seq in named) for one in overview.points),
            activity=overview.activity._replace(
                models=tuple(
                    one._replace(name=self.text(one.name)) for one in overview.activity.models
                ),
                failures=tuple(
                    one._replace(tool=one.tool and self.text(one.tool), error=self.text(one.error))
                    for one in overview.activity.failures
                ),
            ),
        )

    def _point(self, point: MapPoint, *, names: bool) -> MapPoint:
        return point._replace(
            id=self.text(point.id),
            domain=self.text(point.domain),
            objective=self.text(point.objective) if names else "",
        )

    def _fields(self, record: object, names: tuple[str, ...]) -> dict[str, Any]:
        values = {name: getattr(record, name) for name in names}
        return {name: self._field(name, value) for name, value in values.items() if value}

    def _field(self, name: str, value: object) -> object:
        return self.text(value) if isinstance(value, str) else self._value({name: value})[name]

    def _value(self, value: object) -> Any:
        try:
            return self._redact(value)
        except RedactionError as error:
            self.left_out += 1
            word = f"[left out: {error.reason}]"
            return dict.fromkeys(value, word) if isinstance(value, dict) else word


class _Anchors:
    """Where things in one page lead: to the runs that it shows in full."""

    def __init__(self, runs: list[FullRun]) -> None:
        self._runs = {one.run.id: f"#trace-{one.run.seq}" for one in runs}

    def trace(self, trace_id: str, /) -> str | None:
        return self._runs.get(trace_id)

    def runs(self, **_: str) -> None:
        """Return None: the list does not have all runs that match."""


def cleaning_by(settings: "Settings") -> Cleaning:
    """Clean by the rules and at the level of the user's settings."""
    from kp_middleware.privacy import Policy, redact_jsonable

    policy, level = Policy.of(settings), settings.privacy_level
    return Cleaning(lambda value: redact_jsonable(value, level=level, policy=policy).value)


class Report(NamedTuple):
    """The whole page, well-formed as XML, too; and how many runs it tells in full and lists."""

    html: str
    runs: int
    listed: int


def make_report(
    history: History,
    db: Path,
    since: str | None,
    cleaning: Cleaning,
    level: str | None,
    *,
    progress: Progress,
) -> Report:
    """Show the runs since an instant, or all; a level of None says that nothing was taken out."""
    first = 0 if since is None else history.first_since(since)
    overview = history.overview(since=since)
    in_full = {*history.best(_BEST, first=first), *(run.seq for run in overview.missed)}
    samples = history.samples(newest=_NEWEST, of_each_score=_OF_EACH_SCORE, first=first)
    listed = history.runs_at(in_full | samples)
    listed.sort(key=lambda run: (-1 if run.score is None else run.score, run.seq), reverse=True)
    seqs = [run.seq for run in listed if run.seq in in_full]
    runs = [*progress(_runs(history, seqs, cleaning), len(seqs))]
    overview, title = cleaning.overview(overview, named=in_full), cleaning.text(db.name)
    links, domains = _Anchors(runs), overview.scores.domains
    shown = (trace_html(one, links, domains=domains, extent=EXTENT) for one in runs)
    html = render(
        "report.html",
        title=title,
        remark=_remark(title, since, level),
        overview=overview_html(overview, links),
        listed=run_rows(map(cleaning.summary, listed), links),
        runs=[*zip((one.run for one in runs), shown, strict=True)],
    )
    return Report(html, len(runs), len(listed))


def _runs(history: History, seqs: list[int], cleaning: Cleaning) -> Iterator[FullRun]:
    for seq in seqs:
        alike = MostAlike.among(history.points(around=seq))
        body = cleaning.body(history.outbox_body(seq))
        yield FullRun(cleaning.run(history.run(seq)), cleaning.alike(alike), body)


def _remark(file: str, since: str | None, level: str | None) -> str:
    span = f" since {minute(since)}" if since else ""
    taken_out = (
        "Nothing was taken out of its texts: think before you show it."
        if level is None
        else f"Its texts are redacted at the level {level}."
    )
    return f"From {file}{span}, made {minute(instant(time.time()))} UTC. {taken_out}"
