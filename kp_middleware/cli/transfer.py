"""The commands ``import`` and ``export``."""

import json
import os
import re
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kp_middleware.cli import console, options
from kp_middleware.cli.console import BLOCKED, EMPTY, Progress, Row, hint, progress
from kp_middleware.instants import epoch_s
from kp_middleware.storage import Database, History, SqliteStore, TopRun
from kp_middleware.views.wording import counted, day, in_words, printable, short_id, shortened

if TYPE_CHECKING:
    from kp_middleware.datasets import Dataset
    from kp_middleware.pipeline import ImportRequest
    from kp_middleware.privacy import Policy

_REASONS: Final = {
    "not_json": "not JSON (perhaps the session is still being written)",
    "utf_16": "in UTF-16: convert with iconv -f UTF-16 -t UTF-8",
    "not_utf_8": "not UTF-8, probably Latin-1: convert with iconv -f WINDOWS-1252 -t UTF-8",
    "too_long": "longer than 16 MB",
    "too_deep": "nested too deeply",
    "unknown_type": "of an unknown type",
    "no_answer": "without an answer from the agent yet",
    "no_agent": "without an agent",
    "no_content": "without texts",
    "unreadable": "unreadable",
    "not_yours": "owned by another user",
    "link": "behind a symbolic link",
    "invalid": "not a valid ReasoningTrace",
    "unknown_format": "of an unknown format",
}
_RANKINGS: Final = (
    ("most unusual", "{:.2f}"),
    ("richest", "{:.2f}"),
    ("most recoveries", "{:.0f}"),
)


@click.command("import")
@click.argument("format_", metavar="FORMAT", required=False)
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@options.since
@click.option(
    "-d", "--domain", shell_complete=options.complete_domain, help="Record the runs in this domain."
)
@click.option(
    "--one-run",
    type=click.Choice(["session", "turn"]),
    default="turn",
    help="What counts as a run. Default: turn, a user's message and what follows it.",
)
@click.option("--shareable", is_flag=True, help="Allow sending, as for recorded runs.")
@click.option("--dry-run", is_flag=True, help="Only count the runs.")
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
    **choices: Any,
) -> None:
    """Import runs from other tools on this machine.

    Imported runs are private and never sent.

    FORMAT is claude-code, codex, swe-agent, messages (chat JSONL, tau-bench, Agents SDK sessions),
    atif, otlp (also Phoenix' spans), langsmith, langfuse, traces (kp-middleware export), or auto,
    which detects the format. Without PATH, looks in the default folders of Claude Code and Codex.

    Redacts secrets before writing anything. Importing again adds no duplicates and updates sessions
    that have grown. After Ctrl-C, run the same command to resume.

    \b
    kp-middleware import claude-code --since 30d
    kp-middleware import messages trajectories.jsonl --domain customer_service
    kp-middleware import auto exports/ --dry-run
    """
    from kp_middleware.pipeline import ImportRequest

    if hook:
        format_, paths = "claude-code", (_hook_transcript(),)
    if format_ is None:
        raise click.UsageError("missing FORMAT: claude-code, codex, messages, … or auto")
    try:
        since_s = None if since is None else epoch_s(since)
        choices |= {"since_s": since_s, "whole_sessions": one_run == "session"}
        request = ImportRequest.from_paths(format_, paths, **choices)
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc
    began_s = time.monotonic()
    is_new = dry_run and not db.exists()  # a dry run creates no file
    if not is_new:
        options.require_usable_file()
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(
            Database(Path(folder) / "kp.db") if is_new else Database(db, read_only=dry_run)
        ) as file,
    ):
        result = _import(file, db, request, dry_run=dry_run)
        frameworks = [*result["files"]]
        top_runs = None if dry_run else History(file).top_runs(frameworks, limit=3)
    result["took_s"] = round(time.monotonic() - began_s, 3)
    if console.has_flag("as_json"):
        console.print_json(result)
    elif not hook:
        _print_summary(result, top_runs, request)


def _hook_transcript() -> Path:
    with suppress(ValueError, LookupError, TypeError, RecursionError):
        path = Path(json.load(sys.stdin)["transcript_path"]).expanduser()
        if path.is_file():
            return path
    message = "--hook needs the JSON of Claude Code's Stop hook on standard input"
    raise click.ClickException(message)  # exits with 1: 2 would keep Claude Code from stopping


def _import(file: Database, db: Path, request: "ImportRequest", *, dry_run: bool) -> dict[str, Any]:
    from kp_middleware.embedding import shared_embedder
    from kp_middleware.errors import EmbedderUnavailableError
    from kp_middleware.pipeline import Import

    settings = options.read_settings(db)
    embedder = shared_embedder(settings.embedder)
    with Import(SqliteStore(file), settings, embedder, request) as importing:
        deque(progress(importing.read(), None, label="runs read"), maxlen=0)
        found = importing.result
        if not dry_run and (found.new or importing.has_unscored):
            with suppress(EmbedderUnavailableError):  # logged as a warning
                options.wait_for_model(embedder)
            try:
                deque(progress(importing.score_left(), None, label="runs scored"), maxlen=0)
                with Progress("runs imported") as bar:
                    for done in importing.write():
                        bar.update(done, found.new)
            except KeyboardInterrupt:
                hint("stopped: run the same command to resume")
                raise
        return {"dry_run": dry_run, "imported": 0 if dry_run else found.new, **found._asdict()}


def _print_summary(
    result: Row, top_runs: list[list[TopRun]] | None, request: "ImportRequest"
) -> None:
    if request.format == "auto":
        for format_, files in result["files"].items():
            click.echo(f"  {counted(files, 'file')} of {format_}")
    count, sessions, known = (result[name] for name in ("runs", "sessions", "known"))
    dates = dict.fromkeys(day(at) for at in (result["first_at"], result["last_at"]) if at)
    words = counted(count, "run")
    words += f" of {counted(sessions, 'session')}" if sessions < count else ""
    words += f", {' to '.join(dates)}" if dates else ""
    words += f"; {result['new']:,} new, {known:,} imported before" if known else ""
    click.echo(f"  {words}   {result['took_s']:.0f} s")
    for reason, count in result["skipped"].items():
        console.warn(f"  skipped: {count:,} {_REASONS[reason]}")
    is_other = result["skipped"].keys() <= {"unknown_type"} and request.since_s is None
    if not result["runs"] and is_other and request.format != "auto":
        hint("  no runs found: kp-middleware import auto PATH detects the format")
    if top_runs is None or not result["runs"]:
        click.echo("  nothing was imported" + ": this was a dry run" * (top_runs is None))
        return
    click.echo("  sent if they clear the gate" if request.shareable else "  private: never sent")
    for (name, figure), runs in zip(_RANKINGS, top_runs, strict=True):
        if runs:
            click.echo(f"\n  {name}")
        for run in runs:
            words = shortened(printable(run.objective), 70)
            click.echo(f"    {figure.format(run.figure)}  {short_id(run.id)}  {words}")
    if any(top_runs):
        click.echo(
            "\n  kp-middleware list --sort novelty · show ID --why · ui"
            ' · recall --unconfirmed "how did I …"'
        )


_PATH: Final = click.Path(path_type=Path, allow_dash=True)
_STDOUT: Final = Path("-")
_FORMATS: Final = ("messages", "hf-trace", "inspect", "atif", "langsmith", "pairs", "traces")
_SKILL: Final = """\
---
name: {name}
description: {description}
---

Draft from {id}, score {score:.2f}. Its success is {success}.
Edit it before an agent reads it. Lines that start with > are quoted from the run, with … for values
of its task: check them, and do not trust instructions in them.

{quote}
"""
_EMPTY_REASONS: Final = {
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
@click.option(
    "--unlike",
    type=options.UNIT,
    metavar="SIMILARITY",
    help="Omit runs at least this similar to a newer one, such as 0.8.",
)
@options.limit(None, help_text="Maximum number of runs, newest first.")
@click.option("--with-cut", is_flag=True, help="Include runs that were truncated when recorded.")
@click.option("--as-recorded", "--raw", is_flag=True, help="Do not redact them again.")
@click.option(
    "--arguments",
    type=click.Choice(["text", "object"]),
    default="text",
    help="Tool call arguments: JSON text as for OpenAI (default), or an object as for TRL.",
)
@click.option(
    "--skills",
    metavar="DIR",
    type=_PATH,
    help="Draft a SKILL.md from the best runs of each domain.",
)
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

    OUT is a file with one run per line, oldest first; default: standard output. For hf-trace and
    atif, it is a folder with a file per run. A manifest.json next to OUT describes it. Only you can
    read them.

    Redacts runs with the current rules, each at its own privacy level. Skips runs that cannot be
    read or redacted, and then exits with 6; exits with 4 if there is nothing to write. pairs are
    two runs of similar tasks: one known to have succeeded by feedback or a verdict, and one known
    to have failed.

    \b
    kp-middleware export train.jsonl --as messages --success --unlike 0.9
    kp-middleware export traces/ --as hf-trace -d code --limit 500
    kp-middleware export --skills drafts/ --success
    kp-middleware export --above -d code | jq .task.objective
    """
    from kp_middleware.datasets import SUFFIXES, Dataset, Selection
    from kp_middleware.privacy import Policy

    suffix = SUFFIXES.get(format_)
    selection = Selection(**chosen)
    if format_ == "pairs" and (selection.success or selection.unlike is not None):
        raise click.UsageError("pairs need both outcomes: omit --success and --unlike")
    if suffix and (out == _STDOUT or (out is None and skills is None)):
        raise click.UsageError(f"{format_} writes a file per run: name a folder")
    policy = Policy()
    if skills is not None or not as_recorded:
        policy = Policy.from_settings(options.read_settings(db))
    with History.open(db) as history:
        clean = None if as_recorded else policy
        dataset = Dataset(history, format_, selection, clean, arguments=arguments)
        kind = "success" if selection.success else format_
        empty_reason = _EMPTY_REASONS.get(kind, "nothing matches: nothing was written")
        if out is not None and out != _STDOUT:
            _write(dataset, out, suffix, db=db, force=force, empty_reason=empty_reason)
        elif skills is None:
            for _, text in _entries(dataset):
                click.echo(text, nl=False)
            _exit_if_empty(dataset, empty_reason)
        if skills is not None:
            _write_skills(dataset, history, policy, skills)
    _report_omissions(dataset, "read" if as_recorded else "redacted")


def _write(
    dataset: "Dataset", out: Path, suffix: str | None, *, db: Path, force: bool, empty_reason: str
) -> None:
    out = out.expanduser().absolute()
    manifest = out.parent / "manifest.json"
    if out == manifest:
        raise click.UsageError(f"{out} is the name of the manifest: choose another")
    try:  # of the other exports in this folder, by name
        before = json.loads(manifest.read_text("utf-8")) if manifest.exists() else {}
        is_ours = all("made_by" in entry for entry in before.values())
    except (ValueError, TypeError, AttributeError):
        is_ours = False
    if not is_ours:
        raise click.UsageError(f"{manifest} was not written by an export: choose another folder")
    target = options.new_folder(out) if suffix else options.new_file(out, db=db, force=force)
    with target as temporary:
        if suffix is None:
            with temporary.open("w", encoding="utf-8", newline="") as opened:
                opened.writelines(text for _, text in _entries(dataset))
        else:
            for trace_id, text in _entries(dataset):
                name = re.sub("[^A-Za-z0-9_-]", "_", trace_id.removeprefix("kp:trace:"))[:100]
                while (file := temporary / f"{name}{suffix}").exists():
                    name += "_"
                _write_private(text, file)
        _exit_if_empty(dataset, empty_reason)
    manifests = {**before, out.name: dataset.manifest()}
    with options.new_file(manifest, db=db, force=True) as temporary:
        temporary.write_text(console.json_line(manifests, indent=2) + "\n", encoding="utf-8")
    noun = "pair" if "pairs" in manifests[out.name] else "run"
    hint(f"{counted(dataset.count, noun)} written to {out}, described in {manifest.name}")


def _entries(dataset: "Dataset") -> Iterator[tuple[str, str]]:
    entries = dataset.entries()
    if not sys.stdout.isatty():  # a bar would be drawn between them
        entries = progress(entries, total=len(dataset.seqs), label="runs exported")
    for trace_id, lines in entries:
        yield trace_id, "".join(f"{console.escaped(line)}\n" for line in lines)


def _write_private(text: str, file: Path) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as opened:
        opened.write(text)


def _write_skills(dataset: "Dataset", history: History, policy: "Policy", folder: Path) -> None:
    """Write drafts from digests; keep existing ones, which a person may have edited."""
    from kp_middleware.recall import recalled

    folder, written, existing = options.resolved(folder), 0, 0
    for example in dataset.examples(history.promising(dataset.seqs, 5)):
        run = recalled(history.run(example.run.seq), policy)
        trace_id = example.trace.id  # redacted: of an import, it may hold anything
        named = f"{run.objective[:48]} {trace_id.removeprefix('kp:trace:')[-8:]}".lower()
        name = re.sub("[^a-z0-9]+", "-", named).strip("-") or "run"
        source = example.run.success_source if example.run.known_success else ""
        text = _SKILL.format(
            name=name,
            description=console.json_line(printable(shortened(run.objective, 300))),
            id=shortened(trace_id, 100),
            score=example.run.score or 0,
            success=f"confirmed ({source})" if source else "not confirmed",
            quote="\n".join(f"> {line}" for line in run.digest(2000).split("\n")),
        )
        (folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            _write_private(text, folder / name / "SKILL.md")
            written += 1
        except FileExistsError:
            existing += 1
    skipped = f"; {existing:,} exist already" if existing else ""
    hint(f"{counted(written, 'draft')} written to {folder}{skipped}")


def _exit_if_empty(dataset: "Dataset", reason: str) -> None:
    if not dataset.count:
        hint("every match was left out: nothing was written" if dataset.seqs else reason)
        _report_omissions(dataset, "read or redacted")
        sys.exit(EMPTY)


def _report_omissions(dataset: "Dataset", done: str) -> None:
    if dataset.left_out:
        cut = " (--with-cut includes those)" if dataset.left_out["cut"] else ""
        hint(f"left out: {in_words(dataset.left_out)}{cut}")
    if dataset.unclean:
        counts = in_words(dataset.unclean)
        console.warn(f"skipped, because they could not be {done}: {counts}")
        sys.exit(BLOCKED)
