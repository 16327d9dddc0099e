"""Options, files and settings that several commands share, and what the shell completes."""

import math
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import reduce, wraps
from pathlib import Path
from shutil import disk_usage
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import click
from click.shell_completion import CompletionItem

from kp_middleware import locations, storage
from kp_middleware.cli.console import Output, hint, keep, warn
from kp_middleware.errors import EmbedderNotReadyError, SettingsFileError
from kp_middleware.instants import instant
from kp_middleware.storage import Database, Filters, History
from kp_middleware.views.wording import one_line, short_id

if TYPE_CHECKING:
    from kp_middleware.embedding import Embedder
    from kp_middleware.settings import Settings

Command: TypeAlias = Callable[..., Any]
Completer: TypeAlias = Callable[[click.Context, click.Parameter, str], list[Any]]

_LITTLE_BYTES: Final = 100_000_000
_LOOK_AGAIN_S: Final = 1.0


def pass_db(command: Command) -> Command:
    """Pass the trace database to a command; say which it is where settings name it wrongly."""

    @wraps(command)
    def run(*values: Any, **more: Any) -> Any:
        db = named_file(click.get_current_context())
        if db is None:
            db, doubt = _file_and_doubt()
            if doubt:
                warn(f"{one_line(doubt)}; this is about {db}")
        return command(db, *values, **more)

    return run


def named_file(context: click.Context) -> Path | None:
    """Return the file that ``--db`` names; None if it was not given."""
    return cast("Path | None", context.meta.get("kp_middleware.db"))


def file_of(context: click.Context) -> Path:
    """Return the file of traces that is meant, or the default one if that is unknown."""
    return named_file(context) or _file_and_doubt()[0]


def _file_and_doubt() -> tuple[Path, str | None]:
    """Return the file of traces, and why it may not be the one that is meant."""
    try:
        path = locations.database_file()
        doubt = locations.file_problem(path)
    except SettingsFileError as error:
        doubt = str(error)
    return (locations.default_database_file(), doubt) if doubt else (path, None)


def file_trouble(db: Path) -> str | None:
    """Say why programs cannot record into an existing file, or soon will not; None if they can."""
    if not (os.access(db, os.W_OK) and os.access(db.parent, os.W_OK)):
        return f"{db} is read-only for you: make it and its folder writable, or name another"
    free_bytes = disk_usage(db.parent).free
    if free_bytes < _LITTLE_BYTES:
        return f"only {free_bytes / 1e6:,.0f} MB are free for {db}: make room, or runs will be lost"
    return None


def open_to_write(db: Path) -> Database:
    """Open an existing file to change it: a mistyped name must not become a file."""
    refuse_a_doubtful_file()
    History.open(db).close()
    return Database(db)


def refuse_a_doubtful_file() -> None:
    """Change nothing while ``KP_DB`` or ``settings.toml`` names no usable file."""
    context = click.get_current_context()
    if named_file(context) is None and (doubt := _file_and_doubt()[1]):
        raise click.ClickException(f"{one_line(doubt)}; nothing is changed")


def read_settings(db: Path) -> "Settings":
    """Return the settings for a file; fail if any is wrong: the answer would be, too."""
    settings = typed_settings({"db": db})
    if wrong := [one_line(str(one)) for one in settings.problems if one.name != "db"]:
        raise click.ClickException("; ".join(wrong))
    return settings


def typed_settings(keywords: Mapping[str, Any]) -> "Settings":
    """Return the settings with these keywords, whatever else is wrong."""
    from pydantic import ValidationError

    from kp_middleware.setting_values import describe_problem
    from kp_middleware.settings import Settings

    try:
        return Settings.load_lenient(**keywords)
    except ValidationError as error:
        found = error.errors(include_input=False, include_url=False)
        wrong = "; ".join(describe_problem(one["loc"], one["msg"]) for one in found)
        raise click.ClickException(wrong) from error


def wrong_settings() -> list[str]:
    """Return what is wrong with what is set outside of programs, each in one line.

    Does not load pydantic where nothing is set.
    """
    files = [locations.reference_folder() / name for name in ("config.json", "auth.json")]
    is_set = any(name.upper().startswith("KP_") and value for name, value in os.environ.items())
    if not (is_set or any(map(os.path.lexists, (locations.settings_file(), *files)))):
        return []
    return [one_line(str(one)) for one in typed_settings({}).problems]


def shared_url() -> str | None:
    """Return the URL of the shared log that is set outside of programs, with its password."""
    is_set = any(name.upper() == "KP_SHARED" for name in os.environ)  # without loading pydantic
    shared = typed_settings({}).shared if is_set else None
    return None if shared is None else shared.get_secret_value()


def wait_for_model(embedder: "Embedder | None") -> None:
    """Wait while the model is being downloaded."""
    told = False
    while embedder:
        try:
            _ = embedder.name
            return
        except EmbedderNotReadyError as error:
            if not told:
                hint(f"waiting for the model: {error}")
            told = True
            time.sleep(_LOOK_AGAIN_S)


_HELP_WIDTH: Final = 60


def complete_trace_id(context: click.Context, _: click.Parameter, start: str) -> list[Any]:
    """Return the newest runs whose ids start with what was typed, with objectives as help."""
    told = {"@last": "the newest run", "@best": "the run with the highest score"}
    for trace_id, objective in storage.trace_ids(file_of(context), start):
        forms = short_id(trace_id), trace_id.removeprefix("kp:trace:"), trace_id
        shortest = next(form for form in forms if form.startswith(start))
        told[shortest] = one_line(objective)[:_HELP_WIDTH]
    return complete(told, start)


def complete(told: Mapping[str, str], start: str) -> list[CompletionItem]:
    """Return the words that start with what was typed, with a help text for each."""
    return [CompletionItem(name, help=told[name]) for name in told if name.startswith(start)]


def _completes(names: Callable[[Path, str], list[str]]) -> Completer:
    """Complete with names of a file, if they steer no terminal: a model may choose them."""
    return lambda context, _, start: [
        name for name in names(file_of(context), start) if name == one_line(name)
    ]


complete_domain: Final = _completes(storage.domain_names)
_complete_tool: Final = _completes(storage.tool_names)
FILE: Final = click.Path(path_type=Path, dir_okay=False)


class DefaultGroup(click.Group):
    """A group that runs one of its commands if none is named."""

    def __init__(self, *values: Any, default: str, **more: Any) -> None:
        super().__init__(*values, **more)
        self._default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the default command before the first option that is not the group's."""
        own = {name: one for one in self.get_params(ctx) for name in one.opts + one.secondary_opts}
        at = 0
        while at < len(args) and args[at].partition("=")[0] in own:
            option = own[args[at].partition("=")[0]]
            has_value = isinstance(option, click.Option) and not option.is_flag
            at += 2 if has_value and "=" not in args[at] else 1
        typed = args[at] if at < len(args) else ""
        if typed.startswith("-") or not (typed or ctx.resilient_parsing):
            args = [*args[:at], self._default, *args[at:]]
        return super().parse_args(ctx, args)


class NumberRange(click.FloatRange):
    """Numbers within bounds; ``nan`` is within none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or fail with a usage error."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


UNIT: Final = NumberRange(0, 1)

_FLAGS: Final = {
    ("--no-color",): "Disable colour, as NO_COLOR and TERM=dumb do.",
    ("--no-progress",): "Hide progress bars.",
    ("--quiet",): "Print only warnings and errors.",
    ("-v", "--verbose"): "Print log messages.",
}


def common(*, hidden: bool = False) -> list[click.Option]:
    """Return the options of all commands; a command after which they are typed hides them."""
    kept: dict[str, Any] = {"expose_value": False, "hidden": hidden, "callback": keep}
    told = "Trace database. Default: KP_DB, or kp.db in your data folder."
    flags = (click.Option(names, is_flag=True, help=text, **kept) for names, text in _FLAGS.items())
    return [click.Option(["--db"], type=FILE, help=told, **kept), *flags]


def bundled(
    name: str, fields: Iterable[str], make: Callable[..., object], options: Sequence[Command]
) -> Callable[[Command], Command]:
    """Add these options; the command gets what ``make`` makes of their values as one keyword."""

    def decorate(command: Command) -> Command:
        @wraps(command)
        def run(*values: Any, **more: Any) -> Any:
            made = make(**{field: more.pop(field) for field in fields if field in more})
            return command(*values, **{name: made}, **more)

        return reduce(lambda made, option: option(made), reversed(options), run)

    return decorate


def trace_id(name: str = "trace_id", *, metavar: str = "ID", **more: Any) -> Command:
    """Return an argument that names a run."""
    return click.argument(name, metavar=metavar, shell_complete=complete_trace_id, **more)


def limit(
    default: int | None = 20, *, least: int = 1, told: str = "Maximum number of rows."
) -> Command:
    """Return ``-n``; without a default, the command gets None if it is not given."""
    return click.option(
        "-n",
        "--limit",
        type=click.IntRange(min=least),
        default=default,
        show_default=default is not None,
        help=told,
    )


_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?) *(ms|[smhdwy])")
_UNITS_S: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "y": 31536000}


def _span_s(text: str) -> float | None:
    """Return a number with a unit in seconds; None if it is something else.

    >>> _span_s("1.5s"), _span_s("2 m"), _span_s("soon")
    (1.5, 120.0, None)
    """
    match = _SPAN.fullmatch(text.strip())
    return float(match[1]) * _UNITS_S[match[2]] if match else None


def _instant(value: str) -> str:
    try:
        age_s = _span_s(value)
        if age_s is not None:
            return instant(time.time() - age_s)
        moment = datetime.fromisoformat(value)
        return instant(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp())
    except (ValueError, OverflowError, OSError) as error:
        told = f"{value!r} is not a date (2026-11-01) or an age (30s, 5m, 36h, 7d, 1y)"
        raise click.BadParameter(told) from error


def _milliseconds(value: str) -> float:
    seconds = _span_s(value)
    if seconds is None:
        raise click.BadParameter(f"{value} is not a duration: type 500ms, 10s, 5m or 2h")
    return seconds * 1000


class _State(click.Choice[str]):
    """States, of which some have a blank: completed and typed with a hyphen."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(value.replace(" ", "-"), param, ctx).replace("-", " ")


domain = click.option("-d", "--domain", shell_complete=complete_domain, help="Only this domain.")
since = click.option(
    "--since",
    metavar="DATE|AGE",
    type=_instant,
    help="Only runs started since a UTC date (2026-11-01) or age (30s, 5m, 36h, 7d, 2w, 1y).",
)
older = click.option(
    "--older",
    metavar="DATE|AGE",
    type=_instant,
    help="Only runs started before a UTC date or age: 2026-11-01, 90d, 1y.",
)
filters = bundled(
    "filters",
    Filters._fields,
    Filters,
    (
        domain,
        click.option(
            "--above/--below", default=None, help="Only runs at or above / below their threshold."
        ),
        click.option(
            "--state",
            type=_State([state.replace(" ", "-") for state in storage.STATES]),
            help="Only runs in this state; failed: could not be scored.",
        ),
        click.option("--tool", shell_complete=_complete_tool, help="Only with this tool."),
        click.option("--failed", is_flag=True, help="Only runs whose task failed."),
        click.option(
            "--slower",
            "slower_ms",
            metavar="TIME",
            type=_milliseconds,
            help="Only runs that took at least this long: 500ms, 10s, 5m.",
        ),
        since,
        click.option(
            "--after",
            metavar="ID",
            shell_complete=complete_trace_id,
            help="Only runs recorded after this one.",
        ),
        click.option("-q", "--text", help='Search texts: leak*, "memory leak", leak OR crash.'),
    ),
)
"""Adds the options that say which runs are meant; the command gets them as ``filters``."""

_FORMATS: Final = {
    "json": "One JSON array.",
    "nl": "One JSON object per line.",
    "csv": "Comma-separated.",
    "tsv": "Tab-separated.",
    "table": "A table: the default on a terminal.",
}


def output_options(*, in_pipe: str = "tsv") -> Callable[[Command], Command]:
    """Add the options that say how rows are wanted; the command gets them as ``output``."""
    told = _FORMATS | {in_pipe: f"{_FORMATS[in_pipe].removesuffix('.')}: the default in a pipe."}
    if in_pipe == "table":
        told["table"] = "Text: the default."
    formats = (
        click.option(f"--{name}", "format", flag_value=name, default=None, help=text)
        for name, text in told.items()
    )

    def make(**chosen: Any) -> Output:
        chosen["format"] = chosen["format"] or ("table" if sys.stdout.isatty() else in_pipe)
        return Output(**chosen)

    return bundled("output", Output._fields, make, (*formats, *_ROW_OPTIONS))


_ROW_OPTIONS: Final = (
    click.option(
        "-c",
        "--column",
        "columns",
        multiple=True,
        callback=lambda _context, _option, typed: tuple(re.findall(r"[^,\s]+", ",".join(typed))),
        help="Columns to print: -c id,score. Repeatable.",
    ),
    click.option("--headers/--no-headers", default=True, help="Print a header row."),
    click.option("--fail-empty", is_flag=True, help="Exit with 4 if there are no rows."),
)
json_option = click.option(
    "--json", "as_json", is_flag=True, expose_value=False, callback=keep, help="Print JSON."
)
"""Adds ``--json``, of which `answer` and `has_flag` know."""

_BESIDE: Final = ("-wal", "-shm", "-journal")  # SQLite's; the last writes may be in them


@contextmanager
def new_file(file: Path, *, force: bool, db: Path | None = None) -> Iterator[Path]:
    """Yield an empty file of mode 0600 beside this one, which takes its place in the end."""
    file, db = resolved(file), db and db.expanduser().resolve()
    if file.name == "-":
        raise click.UsageError("this cannot go to standard output: name a file")
    if file == db or file in {Path(f"{db}{suffix}") for suffix in _BESIDE}:
        raise click.UsageError(f"{file} is part of the trace database: choose another name")
    if file.exists() and not file.is_file():
        raise click.UsageError(f"{file} is not a regular file: choose another name")
    if file.exists() and not force:
        raise click.UsageError(f"{file} exists: choose another name, or replace it with --force")
    if any(Path(f"{file}{suffix}").exists() for suffix in _BESIDE):  # which would spoil a new one
        raise click.UsageError(f"{file} is in use by SQLite: choose another name")
    with _takes_its_place(file) as unfinished:
        unfinished.touch(0o600)
        yield unfinished


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder of mode 0700 beside this one, whose name it takes in the end."""
    folder = resolved(folder)
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise click.UsageError(f"{folder} exists and is not an empty folder: choose another")
    with _takes_its_place(folder) as unfinished:
        unfinished.mkdir(0o700)
        yield unfinished


def resolved(path: Path) -> Path:
    """Return where a path leads; refuse a dangling link."""
    path = path.expanduser()
    if path.is_symlink() and not path.exists():
        raise click.UsageError(f"{path} is a dangling link: remove it, or choose another name")
    return path.resolve()


@contextmanager
def _takes_its_place(path: Path) -> Iterator[Path]:
    try:
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
            unfinished = Path(folder) / path.name
            yield unfinished
            unfinished.replace(path)
    except OSError as error:
        message = f"cannot write {path}: {error.strerror}; choose another place, or make room"
        raise click.ClickException(message) from error
