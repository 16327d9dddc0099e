"""The report: the notable runs, redacted, as one self-contained page."""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

from kp_middleware.errors import RedactionError
from kp_middleware.instants import instant
from kp_middleware.storage import History, Overview
from kp_middleware.views.wording import minute
from kp_middleware.web.marks import render
from kp_middleware.web.pages import Extent, FullRun, overview_html, trace_html
from kp_middleware.web.run_pages import run_rows
from kp_middleware.web.trace_map import MostAlike

if TYPE_CHECKING:
    from kp_middleware.settings import Settings

EXTENT: Final = Extent(steps=20, characters=600, body=4_000, is_alone=False)
"""How much of each run the report has."""

_BEST: Final = 20
_NEWEST: Final = 10
_OF_EACH_SCORE: Final = 3
_TEXTS: Final = (
    *("id", "objective", "result_summary", "domain", "framework", "agent_name", "model", "reason"),
    *("error_type", "agent", "tool", "content", "input", "output_summary", "gate", "nearest_id"),
    *("nearest_objective", "last_error", "registry", "remote_id", "error"),
)
"""The fields of stored records that hold texts of users, or of what they used."""


Progress: TypeAlias = Callable[[Iterable[FullRun], int], Iterable[FullRun]]
"""Hands on the same items, of a total, and shows how far they are."""


_Record = TypeVar("_Record")


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

    def record(self, record: _Record) -> _Record:
        """Clean the texts of a stored record, and those of the records in it."""
        one: Any = record
        is_tuple = isinstance(record, tuple)
        names = one._fields if is_tuple else [each.name for each in fields(one)]
        values = {name: getattr(one, name) for name in names}
        clean = {name: self._field(name, value) for name, value in values.items() if value}
        cleaned: _Record = one._replace(**clean) if is_tuple else replace(one, **clean)
        return cleaned

    def body(self, body: str | None) -> str | None:
        """Return exactly what was sent, if nothing has to go from it today; else None."""
        if body is None:
            return None
        document = json.loads(body)
        return body if self._value(document) == document else None

    def alike(self, alike: MostAlike) -> MostAlike:
        """Clean a list of like runs; the others are left out."""
        return self.record(alike._replace(points=alike.points[: len(alike.similarities) + 1]))

    def overview(self, overview: Overview, *, named: set[int]) -> Overview:
        """Clean what the charts draw; on the map only the runs ``named`` say what they were."""
        activity, last = overview.activity, overview.last
        models = tuple(one._replace(name=self.text(one.name)) for one in activity.models)
        domains = {self.text(name): score for name, score in last.domains.items()}
        points = (
            one if one.seq in named else one._replace(objective="") for one in overview.points
        )
        return self.record(
            overview._replace(
                points=tuple(points),
                activity=activity._replace(models=models),
                last=last._replace(domains=domains),
            )
        )

    def _field(self, name: str, value: Any) -> Any:
        if name in _TEXTS:
            return self.text(value) if isinstance(value, str) else self._value({name: value})[name]
        if hasattr(value, "_fields") or is_dataclass(value):
            return self.record(value)
        if isinstance(value, tuple):
            return tuple(self._field("", one) for one in value)
        return value

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
        listed=run_rows(map(cleaning.record, listed), links),
        runs=[*zip((one.run for one in runs), shown, strict=True)],
    )
    return Report(html, len(runs), len(listed))


def _runs(history: History, seqs: list[int], cleaning: Cleaning) -> Iterator[FullRun]:
    for seq in seqs:
        alike = MostAlike.among(history.points(around=seq))
        body = cleaning.body(history.outbox_body(seq))
        yield FullRun(cleaning.record(history.run(seq)), cleaning.alike(alike), body)


def _remark(file: str, since: str | None, level: str | None) -> str:
    span = f" since {minute(since)}" if since else ""
    taken_out = (
        "Nothing was taken out of its texts: think before you show it."
        if level is None
        else f"Its texts are redacted at the level {level}."
    )
    return f"From {file}{span}, made {minute(instant(time.time()))} UTC. {taken_out}"
