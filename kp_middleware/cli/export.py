"""The command that exports runs for training and evaluation."""

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kp_middleware.cli.console import BLOCKED, EMPTY, hint, progress
from kp_middleware.cli.options import UNIT, filter_options, limit_option
from kp_middleware.cli.rows import escaped, json_line, new_file, new_folder, resolved
from kp_middleware.cli.user_settings import pass_db, read_settings
from kp_middleware.storage import Filters, History
from kp_middleware.views.wording import counted, in_words

if TYPE_CHECKING:
    from kp_middleware.datasets import Dataset, Entry

_STDOUT: Final = Path("-")
_FORMATS: Final = ("messages", "hf-trace", "inspect", "atif", "langsmith", "pairs", "traces")
_SKILLS: Final = 5
_WHY_EMPTY: Final = {
    "pairs": "no pairs: they need a success and a failure at similar tasks, both known by feedback"
    " or a verdict: see kp-middleware review",
    "success": "none of these runs is known to have succeeded: see kp-middleware review",
    "": "nothing matches: nothing was written",
}


@click.command()
@click.argument("out", type=click.Path(path_type=Path, allow_dash=True), required=False)
@click.option(
    "--as",
    "format_",
    type=click.Choice(_FORMATS),
    default="traces",
    show_default=True,
    help="The format.",
)
@filter_options
@click.option("--success", is_flag=True, help="Only runs known to have succeeded.")
@click.option(
    "--unlike",
    type=UNIT,
    metavar="SIMILARITY",
    help="Leave out runs this similar to a newer one, such as 0.8.",
)
@limit_option(None, told="Maximum number of runs, the newest.")
@click.option("--with-cut", is_flag=True, help="Include runs that were cut when recorded.")
@click.option("--as-recorded", is_flag=True, help="Do not redact any further.")
@click.option(
    "--arguments",
    type=click.Choice(["text", "object"]),
    default="text",
    show_default=True,
    help="Arguments of tool calls: JSON text as for OpenAI, or an object as for TRL.",
)
@click.option(
    "--skills",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Draft a SKILL.md in DIR from the best runs of each domain.",
)
@click.option("--force", is_flag=True, help="Replace OUT if it is a file.")
@pass_db
def export(
    db: Path,
    *,
    out: Path | None,
    format_: str,
    filters: Filters,
    success: bool,
    unlike: float | None,
    limit: int | None,
    with_cut: bool,
    as_recorded: bool,
    arguments: Any,
    skills: Path | None,
    force: bool,
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
    from kp_middleware.datasets import FORMATS, Dataset, Selection
    from kp_middleware.privacy import Policy

    suffix = FORMATS[format_].suffix
    if format_ == "pairs" and (success or unlike is not None):
        raise click.UsageError("pairs need both outcomes: leave out --success and --unlike")
    if suffix and (out == _STDOUT or (out is None and skills is None)):
        raise click.UsageError(f"{format_} writes a file per run: name a folder")
    policy = None if as_recorded else Policy.of(read_settings(db))
    selection = Selection(filters, success, unlike, limit, with_cut)
    with History.open(db) as history:
        dataset = Dataset(history, format_, selection, policy, arguments=arguments)
        why_empty = _WHY_EMPTY["success" if success else format_ if format_ == "pairs" else ""]
        if out is not None and out != _STDOUT:
            _write(dataset, out, suffix, db=db, force=force, why_empty=why_empty)
        elif skills is None:
            for entry in _entries(dataset):
                click.echo(_text(entry), nl=False)
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
    before = _manifests_in(manifest)
    with new_folder(out) if suffix else new_file(out, db=db, force=force) as unfinished:
        for entry in _entries(dataset):
            file = _unused(unfinished, entry.trace_id, suffix) if suffix else unfinished
            _add(_text(entry), file, os.O_APPEND)
        if not dataset.count:
            hint("all matches are left out: nothing was written" if dataset.seqs else why_empty)
            _tell_what_is_missing(dataset, "read or redacted")
            sys.exit(EMPTY)
    told = {**before, out.name: dataset.manifest()}
    with new_file(manifest, db=db, force=True) as unfinished:
        unfinished.write_text(json_line(told, indent=2) + "\n", encoding="utf-8")
    what = "pair" if "pairs" in told[out.name] else "run"
    hint(f"{counted(dataset.count, what)} written to {out}, described in {manifest.name}")


def _manifests_in(file: Path) -> dict[str, Any]:
    """Return the manifests of the exports beside which another is written, by name."""
    if not file.exists():
        return {}
    with suppress(ValueError):
        found = json.loads(file.read_text("utf-8"))
        if isinstance(found, dict) and all(
            isinstance(one, dict) and "made_by" in one for one in found.values()
        ):
            return found
    raise click.UsageError(f"{file} is not of an export: choose another folder")


def _entries(dataset: "Dataset") -> "Iterator[Entry]":
    entries: Iterable[Entry | None] = dataset.entries()
    if not sys.stdout.isatty():  # a bar would be drawn between them
        entries = progress(entries, total=len(dataset.seqs), what="runs exported")
    return (entry for entry in entries if entry is not None)


def _text(entry: "Entry") -> str:
    return "".join(f"{escaped(line)}\n" for line in entry.lines)


def _unused(folder: Path, trace_id: str, suffix: str) -> Path:
    """Return a file that is not there yet, whose name is safe on any system."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", trace_id.removeprefix("kp:trace:"))[:100]
    while (file := folder / f"{name}{suffix}").exists():
        name += "_"
    return file


def _add(text: str, file: Path, flag: int) -> None:
    """Write to a file; a new one has mode 0600."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | flag, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as opened:
        opened.write(text)


def _write_skills(dataset: "Dataset", folder: Path) -> None:
    """Write drafts; one that is there is a person's already."""
    from kp_middleware.datasets import skill_of

    folder, written, there = resolved(folder), 0, 0
    for example in map(dataset.example, dataset.best(_SKILLS)):
        if example is None:
            continue
        skill = skill_of(example)
        try:
            (folder / skill.name).mkdir(mode=0o700, parents=True, exist_ok=True)
            _add(skill.text, folder / skill.name / "SKILL.md", os.O_EXCL)
            written += 1
        except FileExistsError:
            there += 1
        except OSError as error:
            message = f"cannot write {folder}: {error.strerror}; choose another"
            raise click.ClickException(message) from error
    kept = f"; {there:,} exist already" if there else ""
    hint(f"{counted(written, 'draft')} written to {folder}{kept}")


def _tell_what_is_missing(dataset: "Dataset", done: str) -> None:
    if dataset.left_out:
        cut = " (--with-cut includes those)" if dataset.left_out["cut"] else ""
        hint(f"left out: {in_words(dataset.left_out)}{cut}")
    if dataset.unclean:
        counts = in_words(dataset.unclean)
        click.echo(f"skipped, because they could not be {done}: {counts}", err=True)
        sys.exit(BLOCKED)
