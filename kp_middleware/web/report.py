"""The report: the notable runs, redacted, as one self-contained page."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from kp_middleware.database import Connection
from kp_middleware.errors import RedactionError
from kp_middleware.instants import instant
from kp_middleware.storage import (
    History,
    MapPoint,
    OutboxAdmin,
    Overview,
    Row,
    best,
    first_since,
    listed,
    newest,
    read_overview,
    read_points,
    some_of_each_score,
)
from kp_middleware.views.wording import minute
from kp_middleware.web.pages import Extent, listed_run, overview_html, trace_html
from kp_middleware.web.templating import render
from kp_middleware.web.trace_map import MostAlike

if TYPE_CHECKING:
    from kp_middleware.settings import Settings

EXTENT: Final = Extent(steps=20, characters=600, body=4_000, draws_map=False)
"""How much of each run the report has."""

_BEST: Final = 20
_NEWEST: Final = 10
_OF_EACH_SCORE: Final = 3
_MS_A_DAY: Final = 86_400_000
_TRACE_TEXTS: Final = (
    *("id", "objective", "result_summary", "domain", "framework", "agent_name", "model"),
    *("error_type", "reason", "gate", "nearest_id", "nearest_objective"),
)
_STEP_TEXTS: Final = ("agent", "tool", "content", "input", "output_summary")
_OUTBOX_TEXTS: Final = ("reason", "last_error", "registry", "remote_id")


class FullRun(NamedTuple):
    """A run that the report shows in full.

    Attributes:
        trace: As `History.trace` gives it.
        alike: The runs most like it.
        body: Exactly what was sent of it, or None.
    """

    trace: Row
    alike: MostAlike
    body: str | None


class ReportSection(NamedTuple):
    """A run in full, rendered."""

    seq: int
    id: str
    html: str


@dataclass(frozen=True, slots=True)
class Report:
    """All that is in a report, clean.

    Attributes:
        title: The name of the file.
        remark: When it was made, of what, and whether anything was taken out.
        listed: The runs in its list, the highest score first.
        runs: Those that it shows in full.
        memory_days: How long an earlier run is compared with, where that is limited.
    """

    title: str
    remark: str
    overview: Overview
    listed: list[Row]
    runs: list[FullRun]
    memory_days: float | None = None


Progress: TypeAlias = Callable[[Iterable[FullRun], int], Iterable[FullRun]]
"""Hands on the same items, of a total, and shows how far they are."""


class Cleaning:
    """Take out of texts what must not be shared; what cannot be cleaned is left out.

    Attributes:
        left_out: How many could not be cleaned, and stand as a word.
    """

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

    def rows(self, rows: Sequence[Row]) -> list[Row]:
        """Clean the rows of a list."""
        return [self._fields(row, _TRACE_TEXTS) for row in rows]

    def trace(self, trace: Row) -> Row:
        """Clean one run with its steps and its delivery."""
        outbox = trace["outbox"]
        return self._fields(trace, _TRACE_TEXTS) | {
            "steps": [self._fields(step, _STEP_TEXTS) for step in trace["steps"]],
            "outbox": outbox and self._fields(outbox, _OUTBOX_TEXTS),
        }

    def body(self, body: str | None) -> str | None:
        """Return exactly what was sent, if nothing has to go from it today; else None."""
        if body is None:
            return None
        document = json.loads(body)
        return body if self._value(document) == document else None

    def alike(self, alike: MostAlike) -> MostAlike:
        """Clean a list of like runs."""
        points = tuple(self._point(point, names=True) for point in alike.points)
        return MostAlike(points, alike.nearest, alike.compared)

    def overview(self, overview: Overview, *, named: set[int]) -> Overview:
        """Clean what the charts draw; on the map only the runs ``named`` say what they were."""
        return overview._replace(
            scores=overview.scores.renamed(self.text),
            last=overview.last._replace(
                gate=self.text(overview.last.gate),
                domains={self.text(name): score for name, score in overview.last.domains.items()},
            ),
            tools=tuple(use._replace(tool=self.text(use.tool)) for use in overview.tools),
            missed=tuple(self.rows(overview.missed)),
            points=tuple(self._point(one, names=one.seq in named) for one in overview.points),
        )

    def _point(self, point: MapPoint, *, names: bool) -> MapPoint:
        return point._replace(
            id=self.text(point.id),
            domain=self.text(point.domain),
            objective=self.text(point.objective) if names else "",
        )

    def _fields(self, row: Row, names: tuple[str, ...]) -> Row:
        cleaned = {name: self._field(name, row[name]) for name in names if row.get(name)}
        return row | cleaned

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
    """Where things in one page lead: to its own rows and runs."""

    def __init__(self, report: Report) -> None:
        self._traces = {run.trace["id"]: f"#trace-{run.trace['seq']}" for run in report.runs}
        self._rows: dict[str, str] = {}
        self._bins: dict[int, str] = {}
        for row in report.listed:
            anchor = f"#row-{row['seq']}"
            self._rows.setdefault(row["domain"], anchor)
            if row["score"] is not None:
                self._bins.setdefault(min(int(row["score"] * 20 + 1e-9), 19), anchor)

    def trace(self, trace_id: str, /) -> str | None:
        return self._traces.get(trace_id)

    def scores(self, low: float, _: float, /) -> str | None:
        """Return the address of the first row with such a score."""
        return self._bins.get(round(low * 20))

    def domain(self, name: str, /) -> str | None:
        """Return the address of the best of it."""
        return self._rows.get(name)

    def tool(self, _: str, /) -> None:
        """Return None: the list does not have all runs that used a tool."""

    def state(self, _: str, /) -> None:
        """Return None: the list does not have all runs in a state."""


def cleaning_by(settings: "Settings") -> Cleaning:
    """Clean by the rules and at the level of the user's settings."""
    from kp_middleware.privacy import Policy, redact_jsonable

    policy, level = Policy.of(settings), settings.privacy_level
    return Cleaning(lambda value: redact_jsonable(value, level=level, policy=policy).value)


def no_cleaning() -> Cleaning:
    """Leave texts as they are in the file."""
    return Cleaning(lambda value: value)


def read_report(
    connection: Connection,
    db: Path,
    since: str | None,
    cleaning: Cleaning,
    settings: "Settings",
    *,
    raw: bool,
    progress: Progress,
) -> Report:
    """Read what the report shows, with its texts cleaned; ``since`` of None means all of it."""
    first = 0 if since is None else first_since(connection, since)
    overview = read_overview(connection, since=since)
    in_full = {*best(connection, _BEST, first=first), *(row["seq"] for row in overview.missed)}
    in_list = in_full | {
        *newest(connection, _NEWEST, first=first),
        *some_of_each_score(connection, _OF_EACH_SCORE, first=first),
    }
    rows = listed(connection, in_list)
    ttl_ms = settings.cache_ttl_ms
    seqs = [row["seq"] for row in rows if row["seq"] in in_full]
    runs = progress(_runs(connection, seqs, cleaning), len(seqs))
    return Report(
        title=cleaning.text(db.name),
        remark=_remark(cleaning.text(db.name), since, None if raw else settings.privacy_level),
        overview=cleaning.overview(overview, named=in_full),
        listed=cleaning.rows(rows),
        runs=[*runs],
        memory_days=None if ttl_ms is None else ttl_ms / _MS_A_DAY,
    )


def report_html(report: Report) -> str:
    """Render the whole page, well-formed as XML, too."""
    links, domains = _Anchors(report), report.overview.scores.domains
    sections = (
        ReportSection(
            run.trace["seq"],
            run.trace["id"],
            trace_html(run.trace, run.alike, links, body=run.body, domains=domains, extent=EXTENT),
        )
        for run in report.runs
    )
    return render(
        "report.html",
        title=report.title,
        remark=report.remark,
        overview=overview_html(report.overview, links, memory_days=report.memory_days),
        listed=[listed_run(row, links) for row in report.listed],
        runs=[*sections],
    )


def _runs(connection: Connection, seqs: list[int], cleaning: Cleaning) -> Iterator[FullRun]:
    history = History(connection)
    for seq in seqs:
        alike = MostAlike.among(read_points(connection, around=seq)).without_others()
        body = cleaning.body(OutboxAdmin(connection).body(seq))
        yield FullRun(cleaning.trace(history.trace(seq)), cleaning.alike(alike), body)


def _remark(file: str, since: str | None, level: str | None) -> str:
    span = f" since {minute(since)}" if since else ""
    taken_out = (
        "Nothing was taken out of its texts: think before you show it."
        if level is None
        else f"Its texts are redacted at the level {level}."
    )
    return f"From {file}{span}, made {minute(instant(time.time()))} UTC. {taken_out}"
