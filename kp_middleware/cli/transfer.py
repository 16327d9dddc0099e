"""The commands that import runs of other tools, and export runs for training and evaluation."""

import json
import os
import re
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kp_middleware.cli import console, options
from kp_middleware.cli.console import BLOCKED, EMPTY, Progress, Row, hint, progress
from kp_middleware.instants import epoch_s
from kp_middleware.storage import Database, Highlight, History, SqliteStore
from kp_middleware.views.wording import counted, day, in_words, printable, short_id, shortened

if TYPE_CHECKING:
    from kp_middleware.datasets import Dataset
    from kp_middleware.pipeline import ImportRequest

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
@options.since
@click.option(
    "-d", "--domain", shell_complete=options.complete_domain, help="Record them in this domain."
)
@click.option(
    "--one-run",
    type=click.Choice(["session", "turn"]),
    default="turn",
    help="What becomes a run. Default: a turn, a user's message and what follows it.",
)
@click.option("--shareable", is_flag=True, help="Allow sending, like recorded runs.")
@click.option("--dry-run", is_flag=True, help="Only count them.")
@click.option("--hook", is_flag=True, help="Import the session that Claude Code's Stop hook names.")
@options.json_option
@options.pass_db
def import_(
    db: Path,
    *,
    format_: str | None,
    paths: tuple[Path, ...],
    since: str | None,
    one_run: str,
    dry_run: bool,
    hook: bool,
    **how: Any,
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
    from kp_middleware.pipeline import ImportRequest

    if hook:
        format_, paths = "claude-code", (_transcript_of_the_hook(),)
    if format_ is None:
        raise click.UsageError("name a FORMAT: claude-code, codex, messages, … or auto")
    try:
        since_s = None if since is None else epoch_s(since)
        whole = one_run == "session"
        wanted = ImportRequest.from_paths(
            format_, paths, since_s=since_s, whole_sessions=whole, **how
        )
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc
    began_s = time.monotonic()
    is_new = dry_run and not db.exists()  # a dry run makes no file
    if not is_new:
        options.refuse_a_doubtful_file()
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(
            Database(Path(folder) / "kp.db") if is_new else Database(db, read_only=dry_run)
        ) as file,
    ):
        result = _import(file, db, wanted, dry_run=dry_run)
        frameworks = [*result["files"]]
        found = None if dry_run else History(file).highlights(frameworks, limit=_SHOWN)
    result["took_s"] = round(time.monotonic() - began_s, 3)
    if console.has_flag("as_json"):
        console.print_json(result)
    elif not hook:
        _tell(result, found, wanted)


def _transcript_of_the_hook() -> Path:
    with suppress(ValueError, LookupError, TypeError, RecursionError):
        path = Path(json.load(sys.stdin)["transcript_path"]).expanduser()
        if path.is_file():
            return path
    raise click.UsageError("--hook needs the JSON of Claude Code's Stop hook on standard input")


def _import(file: Database, db: Path, wanted: "ImportRequest", *, dry_run: bool) -> dict[str, Any]:
    from kp_middleware.embedding import shared_embedder
    from kp_middleware.errors import EmbedderUnavailableError
    from kp_middleware.pipeline import Import

    settings = options.read_settings(db)
    embedder = shared_embedder(settings.embedder)
    with Import(SqliteStore(file), settings, embedder, wanted) as importing:
        deque(progress(importing.read(), total=None, what="runs read"), maxlen=0)
        found = importing.result
        if not dry_run and (found.new or importing.has_unscored):
            with suppress(EmbedderUnavailableError):  # a warning tells of it
                options.wait_for_model(embedder)
            try:
                deque(progress(importing.score_left(), total=None, what="runs scored"), maxlen=0)
                with Progress("runs imported") as shown:
                    for done in importing.write():
                        shown.reach(done, found.new)
            except KeyboardInterrupt:
                hint("stopped: the same command continues here")
                raise
        return {"dry_run": dry_run, "imported": 0 if dry_run else found.new, **found._asdict()}


def _tell(result: Row, found: list[list[Highlight]] | None, wanted: "ImportRequest") -> None:
    if wanted.format == "auto":
        for format_, files in result["files"].items():
            click.echo(f"  {counted(files, 'file')} of {format_}")
    count, sessions, known = (result[name] for name in ("runs", "sessions", "known"))
    dates = dict.fromkeys(day(at) for at in (result["first_at"], result["last_at"]) if at)
    of = f" of {counted(sessions, 'session')}" if sessions < count else ""
    when = f", {' to '.join(dates)}" if dates else ""
    before = f"; {known:,} imported before" if known else ""
    click.echo(f"  {counted(count, 'run')}{of}{when}{before}   {result['took_s']:.0f} s")
    for reason, count in result["skipped"].items():
        console.warn(f"  skipped: {count:,} {_REASONS[reason]}")
    if found is None:
        click.echo("  nothing was imported: this was a dry run")
        return
    goes = "they are sent if they clear the gate" if wanted.shareable else "private: never sent"
    click.echo(f"  {goes}")
    for (name, figure), runs in zip(_HIGHLIGHTS, found, strict=True):
        if runs:
            click.echo(f"\n  {name}")
        for one in runs:
            words = shortened(printable(one.objective), _OBJECTIVE)
            click.echo(f"    {figure.format(one.figure)}  {short_id(one.id)}  {words}")
    if any(found):
        click.echo(
            "\n  kp-middleware list --sort novelty · show ID --why · ui"
            ' · recall --unconfirmed "how did I …"'
        )


_PATH: Final = click.Path(path_type=Path, allow_dash=True)
_STDOUT: Final = Path("-")
_FORMATS: Final = ("messages", "hf-trace", "inspect", "atif", "langsmith", "pairs", "traces")
_UNSAFE: Final = re.compile("[^A-Za-z0-9_-]")  # in a name of a file, on any system
_SKILLS: Final = 5
_WHY_EMPTY: Final = {
    "pairs": "no pairs: they need a success and a failure at similar tasks, both known by feedback"
    " or a verdict: see kp-middleware review",
    "success": "none of these runs is known to have succeeded: see kp-middleware review",
}


@click.command()
@click.argument("out", type=_PATH, required=False)
@click.option(
    "--as", "format_", type=click.Choice(_FORMATS), default="traces", help="Default: traces."
)
@options.filters
@click.option("--success", is_flag=True, help="Only runs known to have succeeded.")
@click.option("--unlike", type=options.UNIT, help="Leave out runs this similar to a newer one.")
@options.limit(None, told="Maximum number of runs, the newest.")
@click.option("--with-cut", is_flag=True, help="Include runs that were cut when recorded.")
@click.option("--as-recorded", is_flag=True, help="Do not redact any further.")
@click.option(
    "--arguments",
    type=click.Choice(["text", "object"]),
    default="text",
    help="Arguments of calls: JSON text as for OpenAI (default), or an object as for TRL.",
)
@click.option("--skills", metavar="DIR", type=_PATH, help="Draft a SKILL.md of each domain's best.")
@click.option("--force", is_flag=True, help="Replace OUT if it is a file.")
@options.pass_db
def export(
    db: Path,
    *,
    out: Path | None,
    format_: str,
    as_recorded: bool,
    arguments: Any,
    skills: Path | None,
    force: bool,
    **chosen: Any,
) -> None:
    """Export runs for training and evaluation.

    OUT is a file with a run per line, oldest first; default: standard output. For hf-trace and
    atif, it is a folder with a file per run. A manifest.json beside it describes it. Only you can
    read them.

    Redacts runs by the current rules, each at its own privacy level. Skips runs that cannot be read
    or redacted, and then exits with 6; exits with 4 if there is nothing to write. pairs are two
    runs of similar tasks: one that succeeded by feedback or a verdict, and one that failed.

    \b
    kp-middleware export train.jsonl --as messages --success --unlike 0.9
    kp-middleware export traces/ --as hf-trace -d code --limit 500
    kp-middleware export --skills drafts/ --success
    kp-middleware export --above -d code | jq .task.objective
    """
    from kp_middleware.datasets import SUFFIXES, Dataset, Picked
    from kp_middleware.privacy import Policy

    suffix = SUFFIXES.get(format_)
    picked = Picked(**chosen)
    if format_ == "pairs" and (picked.success or picked.unlike is not None):
        raise click.UsageError("pairs need both outcomes: leave out --success and --unlike")
    if suffix and (out == _STDOUT or (out is None and skills is None)):
        raise click.UsageError(f"{format_} writes a file per run: name a folder")
    policy = None if as_recorded else Policy.of(options.read_settings(db))
    with History.open(db) as history:
        dataset = Dataset(history, format_, picked, policy, arguments=arguments)
        kind = "success" if picked.success else format_
        why_empty = _WHY_EMPTY.get(kind, "nothing matches: nothing was written")
        if out is not None and out != _STDOUT:
            _write(dataset, out, suffix, db=db, force=force, why_empty=why_empty)
        elif skills is None:
            for _, text in _entries(dataset):
                click.echo(text, nl=False)
            if not dataset.seqs:
                hint(why_empty)
        if skills is not None:
            _write_skills(dataset, skills)
    _tell_what_is_missing(dataset, "read" if as_recorded else "redacted")


def _write(
    dataset: "Dataset", out: Path, suffix: str | None, *, db: Path, force: bool, why_empty: str
) -> None:
    out = out.expanduser().absolute()
    manifest = out.parent / "manifest.json"
    if out == manifest:
        raise click.UsageError(f"{out} is the name of the manifest: choose another")
    try:  # the manifests of the exports beside which another is written, by name
        before = json.loads(manifest.read_text("utf-8")) if manifest.exists() else {}
        is_ours = all("made_by" in one for one in before.values())
    except (ValueError, TypeError, AttributeError):
        is_ours = False
    if not is_ours:
        raise click.UsageError(f"{manifest} is not of an export: choose another folder")
    made = options.new_folder(out) if suffix else options.new_file(out, db=db, force=force)
    with made as unfinished:
        for trace_id, text in _entries(dataset):
            file = unfinished
            if suffix:
                name = _UNSAFE.sub("_", trace_id.removeprefix("kp:trace:"))[:100]
                while (file := unfinished / f"{name}{suffix}").exists():
                    name += "_"
            _add(text, file, os.O_APPEND)
        if not dataset.count:
            hint("all matches are left out: nothing was written" if dataset.seqs else why_empty)
            _tell_what_is_missing(dataset, "read or redacted")
            sys.exit(EMPTY)
    told = {**before, out.name: dataset.manifest()}
    with options.new_file(manifest, db=db, force=True) as unfinished:
        unfinished.write_text(console.json_line(told, indent=2) + "\n", encoding="utf-8")
    what = "pair" if "pairs" in told[out.name] else "run"
    hint(f"{counted(dataset.count, what)} written to {out}, described in {manifest.name}")


def _entries(dataset: "Dataset") -> Iterator[tuple[str, str]]:
    """Yield the id of the run of each entry, and its text."""
    entries: Iterable[tuple[str, list[str]] | None] = dataset.entries()
    if not sys.stdout.isatty():  # a bar would be drawn between them
        entries = progress(entries, total=len(dataset.seqs), what="runs exported")
    for entry in entries:
        if entry is not None:
            yield entry[0], "".join(f"{console.escaped(line)}\n" for line in entry[1])


def _add(text: str, file: Path, flag: int) -> None:
    """Write to a file; a new one has mode 0600."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | flag, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as opened:
        opened.write(text)


def _write_skills(dataset: "Dataset", folder: Path) -> None:
    """Write drafts; one that is there is a person's already."""
    from kp_middleware.datasets import skill_of

    folder, written, there = options.resolved(folder), 0, 0
    for example in map(dataset.example, dataset.best(_SKILLS)):
        if example is None:
            continue
        name, text = skill_of(example)
        (folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            _add(text, folder / name / "SKILL.md", os.O_EXCL)
            written += 1
        except FileExistsError:
            there += 1
    kept = f"; {there:,} exist already" if there else ""
    hint(f"{counted(written, 'draft')} written to {folder}{kept}")


def _tell_what_is_missing(dataset: "Dataset", done: str) -> None:
    if dataset.left_out:
        cut = " (--with-cut includes those)" if dataset.left_out["cut"] else ""
        hint(f"left out: {in_words(dataset.left_out)}{cut}")
    if dataset.unclean:
        counts = in_words(dataset.unclean)
        console.warn(f"skipped, because they could not be {done}: {counts}")
        sys.exit(BLOCKED)
