"""The command that imports runs which other tools have kept."""

import json
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kp_middleware.cli.console import Progress, Row, hint, plain, progress, show
from kp_middleware.cli.options import complete_domain, since_option
from kp_middleware.cli.rows import json_option, print_json
from kp_middleware.cli.user_settings import (
    pass_db,
    read_settings,
    refuse_a_doubtful_file,
    wait_for_model,
)
from kp_middleware.instants import epoch_s
from kp_middleware.storage import Database, Highlight, History, SqliteStore
from kp_middleware.views.wording import counted, day, printable, short_id, shortened

if TYPE_CHECKING:
    from kp_middleware.pipeline import Wanted

_REASONS: Final = {
    "not_json": "not JSON (perhaps the session is still being written)",
    "too_long": "longer than 16 MB",
    "too_deep": "nested too deeply",
    "unknown_type": "of an unknown type",
    "no_answer": "without an answer of the agent yet",
    "no_agent": "traces without an agent",
    "no_content": "without texts",
    "unreadable": "unreadable",
    "not_yours": "owned by another user",
    "link": "symbolic links",
    "invalid": "invalid ReasoningTraces",
    "unknown_format": "of an unknown format",
}
_HIGHLIGHTS: Final = (
    ("most unlike all others", "{:.2f}"),
    ("richest", "{:.2f}"),
    ("took most to get right", "{:.0f} recoveries"),
)
_SHOWN: Final = 3
_OBJECTIVE: Final = 70


@click.command("import")
@click.argument("format_", metavar="FORMAT", required=False)
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@since_option
@click.option(
    "-d",
    "--domain",
    shell_complete=complete_domain,
    help="The domain of these runs, which picks the weights of their scores.",
)
@click.option(
    "--one-run",
    type=click.Choice(["session", "turn"]),
    default="turn",
    show_default=True,
    help="What becomes a run: a session, or a turn (a user's message and what follows it).",
)
@click.option("--shareable", is_flag=True, help="Allow sending, like recorded runs.")
@click.option("--dry-run", is_flag=True, help="Only count them.")
@click.option("--hook", is_flag=True, help="Import the session that Claude Code's Stop hook names.")
@json_option
@pass_db
def import_(
    db: Path,
    *,
    format_: str | None,
    paths: tuple[Path, ...],
    since: str | None,
    domain: str | None,
    one_run: str,
    shareable: bool,
    dry_run: bool,
    hook: bool,
    as_json: bool,
) -> None:
    """Import runs from other tools on this machine.

    Imported runs are private: never sent.

    FORMAT is claude-code, codex, messages (chat JSONL, tau-bench, Agents SDK sessions), swe_agent,
    atif, otlp (also Phoenix' spans), langsmith, langfuse, traces (kp-middleware export), or auto,
    which reads the first lines. Without PATH, looks in the default folders of Claude Code and
    Codex.

    Redacts secrets before writing anything. Importing again adds no duplicates and updates sessions
    that have grown. After Ctrl-C, run the same command to resume.

    \b
    kp-middleware import claude-code --since 30d
    kp-middleware import messages trajectories.jsonl --domain customer_service
    kp-middleware import auto exports/ --dry-run
    """
    from kp_middleware.pipeline import Wanted

    if hook:
        format_, paths = "claude-code", (_transcript(sys.stdin.read()),)
    if format_ is None:
        raise click.UsageError("name a FORMAT: claude-code, codex, messages, … or auto")
    try:
        wanted = Wanted.of(
            format_,
            paths,
            since_s=None if since is None else epoch_s(since),
            domain=domain,
            whole_sessions=one_run == "session",
            shareable=shareable,
        )
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc
    began_s = time.monotonic()
    with _opened(db, dry_run=dry_run) as file:
        result = _import(file, db, wanted, dry_run=dry_run)
        frameworks = [*result["files"]]
        found = None if dry_run else History(file).highlights(frameworks, limit=_SHOWN)
    result["took_s"] = round(time.monotonic() - began_s, 3)
    if as_json:
        print_json(result)
    elif not hook:
        _tell(result, found, wanted)


def _transcript(said: str) -> Path:
    with suppress(ValueError, LookupError, TypeError, RecursionError):
        path = json.loads(said)["transcript_path"]
        if "\0" not in path and Path(path).expanduser().is_file():
            return Path(path).expanduser()
    raise click.UsageError("--hook needs the JSON of Claude Code's Stop hook on standard input")


@contextmanager
def _opened(db: Path, *, dry_run: bool) -> Iterator[Database]:
    """Open the file of traces; a dry run makes none."""
    with tempfile.TemporaryDirectory() as folder:
        if dry_run and not db.exists():
            opened = Database(Path(folder) / "kp.db")
        else:
            refuse_a_doubtful_file()
            opened = Database(db, read_only=dry_run)
        with closing(opened) as file:
            yield file


def _import(file: Database, db: Path, wanted: "Wanted", *, dry_run: bool) -> dict[str, Any]:
    from kp_middleware.embedding import shared_embedder
    from kp_middleware.errors import EmbedderUnavailableError
    from kp_middleware.pipeline import Import

    settings = read_settings(db)
    embedder = shared_embedder(settings.embedder)
    with Import(SqliteStore(file), settings, embedder, wanted) as importing:
        deque(progress(importing.read(), total=None, what="runs read"), maxlen=0)
        found = importing.found
        if not dry_run and (found.new or importing.has_unscored):
            with suppress(EmbedderUnavailableError):  # a warning tells of it
                wait_for_model(embedder)
            try:
                deque(progress(importing.score_left(), total=None, what="runs scored"), maxlen=0)
                with Progress("runs imported") as shown:
                    for done in importing.write():
                        shown.reach(done, found.new)
            except KeyboardInterrupt:
                hint("stopped: the same command continues here")
                raise
        return {"dry_run": dry_run, "imported": 0 if dry_run else found.new, **found._asdict()}


def _tell(result: Row, found: list[list[Highlight]] | None, wanted: "Wanted") -> None:
    if wanted.format == "auto":
        for format_, files in result["files"].items():
            click.echo(f"  {counted(files, 'file')} of {format_}")
    dates = [*dict.fromkeys(day(at[:10]) for at in (result["first_at"], result["last_at"]) if at)]
    told = f"  {counted(result['runs'], 'run')}"
    if result["sessions"] < result["runs"]:
        told += f" of {counted(result['sessions'], 'session')}"
    told += f", {' to '.join(dates)}" if dates else ""
    told += f"; {result['known']:,} imported before" if result["known"] else ""
    click.echo(f"{told}   {result['took_s']:.0f} s")
    for reason, count in result["skipped"].items():
        click.echo(f"  skipped: {count:,} {_REASONS[reason]}", err=True)
    if found is None:
        click.echo("  nothing was imported: this was a dry run")
        return
    goes = "they are sent if they clear the gate" if wanted.shareable else "private: never sent"
    click.echo(f"  {goes}")
    for (name, figure), rows in zip(_HIGHLIGHTS, found, strict=True):
        if rows:
            show("", f"  {name}")
        for one in rows:
            words = shortened(printable(one.objective), _OBJECTIVE)
            show(plain(f"    {figure.format(one.figure)}  {short_id(one.id)}  {words}"))
    if any(found):
        click.echo(
            "\n  kp-middleware list --sort novelty · show ID --why · ui"
            ' · recall --unconfirmed "how did I …"'
        )
