"""What of the file the report shows, clean."""

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from kp_middleware.database import Connection
from kp_middleware.instants import instant
from kp_middleware.storage import (
    History,
    OutboxCare,
    best,
    first_since,
    listed,
    newest,
    read_overview,
    read_points,
    some_of_each_score,
)
from kp_middleware.web.page import Alike
from kp_middleware.web.report._cleaning import Cleaning
from kp_middleware.web.report._page import Report, Told

if TYPE_CHECKING:
    from kp_middleware.settings import Settings

Progress: TypeAlias = Callable[[Iterable[Told], int], Iterable[Told]]
"""Hands on the same items, of a total, and tells how far they are."""

_BEST: Final = 20
_NEWEST: Final = 10
_OF_EACH_SCORE: Final = 3
_MS_A_DAY: Final = 86_400_000


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
    told = progress(_told(connection, seqs, cleaning), len(seqs))
    return Report(
        title=cleaning.text(db.name),
        remark=_remark(cleaning.text(db.name), since, None if raw else settings.privacy_level),
        overview=cleaning.overview(overview, named=in_full),
        listed=cleaning.rows(rows),
        told=[*told],
        memory_days=None if ttl_ms is None else ttl_ms / _MS_A_DAY,
    )


def _told(connection: Connection, seqs: list[int], cleaning: Cleaning) -> Iterator[Told]:
    history = History(connection)
    for seq in seqs:
        alike = Alike.among(read_points(connection, around=seq)).alone()
        body = cleaning.body(OutboxCare(connection).body(seq))
        yield Told(cleaning.trace(history.trace(seq)), cleaning.alike(alike), body)


def _remark(file: str, since: str | None, level: str | None) -> str:
    span = f" since {since[:16].replace('T', ' ')}" if since else ""
    taken_out = (
        "Nothing was taken out of its texts: think before you show it."
        if level is None
        else f"Its texts are redacted at the level {level}."
    )
    made = instant(time.time())[:16].replace("T", " ")
    return f"From {file}{span}, made {made} UTC. {taken_out}"
