"""The command that writes what is worth a look into one page, to keep or to show."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kp_middleware.database import Connection, connect
from kp_middleware.errors import TraceNotFoundError
from kp_middleware.inspection._manners import hint
from kp_middleware.inspection._new_file import new_file
from kp_middleware.inspection._progress import progress
from kp_middleware.inspection._since import since_option
from kp_middleware.inspection._user_settings import read_settings
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

if TYPE_CHECKING:
    from kp_middleware.inspection._cleaning import Cleaning
    from kp_middleware.inspection._report_page import Report, Told
    from kp_middleware.settings import Settings

_BEST: Final = 20
_NEWEST: Final = 10
_OF_EACH_SCORE: Final = 3
_MS_A_DAY: Final = 86_400_000


@click.command()
@click.argument("out", type=click.Path(path_type=Path, dir_okay=False), default="kp-report.html")
@since_option
@click.option("--raw", is_flag=True, help="Take nothing out of its texts.")
@click.option("--force", is_flag=True, help="Replace OUT if it exists.")
@click.option("--open", "opens", is_flag=True, help="Show it in the browser.")
@click.pass_obj
def report(db: Path, *, out: Path, since: str | None, raw: bool, force: bool, opens: bool) -> None:
    """Write OUT, one HTML page with all pictures and the traces worth a look.

    It opens from the disk, fetches nothing and needs nothing beside it. What must not be shared is
    taken out of its texts at your privacy_level, unless --raw is given. OUT is for you alone to
    read; without it, kp-report.html.

    \b
    kp-middleware report --since 7d --open
    kp-middleware report november.html --since 2026-11-01
    """
    from kp_middleware.inspection._cleaning import cleaning_by, no_cleaning
    from kp_middleware.inspection._report_page import report_html

    settings = read_settings(db)
    cleaning = no_cleaning() if raw else cleaning_by(settings)
    with new_file(out, db=db, force=force) as unfinished:
        with closing(connect(db, read_only=True)) as connection:
            found = _report(connection, db, since, cleaning, settings, raw=raw)
        unfinished.write_text(report_html(found), encoding="utf-8")
    if cleaning.left_out:
        click.echo(
            f"{cleaning.left_out:,} texts could not be redacted: the report says so in their place",
            err=True,
        )
    hint(f"{len(found.told)} traces in full, {len(found.listed)} listed, in {out}")
    if opens:
        import webbrowser

        webbrowser.open(out.expanduser().resolve().as_uri())


def _report(
    connection: Connection,
    db: Path,
    since: str | None,
    cleaning: "Cleaning",
    settings: "Settings",
    *,
    raw: bool,
) -> "Report":
    from kp_middleware.inspection._report_page import Report

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
    told = progress(_told(connection, seqs, cleaning), total=len(seqs), what="traces written")
    return Report(
        title=db.name,
        remark=_remark(db, since, None if raw else settings.privacy_level),
        overview=cleaning.overview(overview, named=in_full),
        listed=cleaning.rows(rows),
        told=[*told],
        memory_days=None if ttl_ms is None else ttl_ms / _MS_A_DAY,
    )


def _told(connection: Connection, seqs: list[int], cleaning: "Cleaning") -> "Iterator[Told]":
    from kp_middleware.inspection._report_page import Told
    from kp_middleware.inspection.page import Alike

    history = History(connection)
    for seq in seqs:
        alike = Alike.among(read_points(connection, around=seq)).alone()
        body = cleaning.body(_body(connection, seq))
        yield Told(cleaning.trace(history.trace(seq)), cleaning.alike(alike), body)


def _body(connection: Connection, seq: int) -> str | None:
    try:
        body = OutboxCare(connection).entry(seq).body
    except TraceNotFoundError:
        return None
    return None if body is None else body.decode()


def _remark(db: Path, since: str | None, level: str | None) -> str:
    span = f" since {since[:16].replace('T', ' ')}" if since else ""
    taken_out = (
        "Nothing was taken out of its texts: think before you show it."
        if level is None
        else f"Its texts are redacted at the level {level}."
    )
    made = instant(time.time())[:16].replace("T", " ")
    return f"From {db.name}{span}, made {made} UTC. {taken_out}"
