"""Options, files, settings and shell completion shared by several commands."""

import math
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import reduce, wraps
from pathlib import Path
from shutil import disk_usage
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import click
from click.shell_completion import CompletionItem

from kp_middleware import locations, storage
from kp_middleware.cli.console import Output, hint, store_option, warn
from kp_middleware.errors import EmbedderNotReadyError, SettingsFileError
from kp_middleware.instants import instant
from kp_middleware.storage import Database, Filters, History
from kp_middleware.views.wording import one_line, short_id

if TYPE_CHECKING:
    from kp_middleware.embedding import Embedder
    from kp_middleware.settings import Settings

Command: TypeAlias = Callable[..., Any]


def pass_db(command: Command) -> Command:
    """Pass the trace database to a command; warn if the settings name an unusable one."""

    @wraps(command)
    def run(*values: Any, **more: Any) -> Any:
        db, problem = find_file(click.get_current_context())
        if problem:
            warn(f"{problem}; using {db}")
        return command(db, *values, **more)

    return run


def named_file(context: click.Context) -> Path | None:
    return cast("Path | None", context.meta.get("kp_middleware.db"))


def find_file(context: click.Context) -> tuple[Path, str | None]:
    """Return the trace database; if the settings name an unusable one, the default and why."""
    if (named := named_file(context)) is not None:
        return named, None
    try:
        path = locations.database_file()
        problem = locations.file_problem(path)
    except SettingsFileError as error:
        problem = str(error)
    return (locations.default_database_file(), one_line(problem)) if problem else (path, None)


def write_problem(db: Path) -> str | None:
    """Return why programs cannot record into an existing file, or soon will not."""
    if not (os.access(db, os.W_OK) and os.access(db.parent, os.W_OK)):
        return f"{db} is not writable for you: make it and its folder writable, or name another"
    free_bytes = disk_usage(db.parent).free
    if free_bytes < 100_000_000:
        free = f"only {free_bytes / 1e6:,.0f} MB are free for {db}"
        return f"{free}: free disk space, or runs will be lost"
    if storage.is_locked(db):
        return f"{db} is locked by another program: close it, or runs will be lost"
    return None


def open_to_write(db: Path) -> Database:
    """Open an existing file for writing; never create one."""
    require_usable_file()
    History.open(db).close()
    return Database(db)


def require_usable_file() -> None:
    """Raise ClickException if ``KP_DB`` or ``settings.toml`` names no usable file."""
    if problem := find_file(click.get_current_context())[1]:
        raise click.ClickException(f"{problem}; nothing was changed")


def read_settings(db: Path) -> "Settings":
    """Return the settings for a file; raise ClickException if any is invalid."""
    settings = lenient_settings({"db": db})
    if problems := [one_line(str(item)) for item in settings.problems if item.name != "db"]:
        raise click.ClickException("; ".join(problems))
    return settings


def lenient_settings(overrides: Mapping[str, Any]) -> "Settings":
    """Return the settings with these arguments; invalid ones elsewhere become ``problems``."""
    from pydantic import ValidationError

    from kp_middleware.setting_values import describe_problem
    from kp_middleware.settings import Settings

    try:
        return Settings(**overrides)
    except ValidationError as error:
        details = error.errors(include_input=False, include_url=False)
        message = "; ".join(describe_problem(item["loc"], item["msg"]) for item in details)
        raise click.UsageError(message) from error


def settings_problems() -> list[str]:
    """Return the problems of settings, one line each. Loads no pydantic if nothing is set."""
    files = [locations.reference_folder() / name for name in ("config.json", "auth.json")]
    is_set = any(name.upper().startswith("KP_") and value for name, value in os.environ.items())
    if not (is_set or any(map(os.path.lexists, (locations.settings_file(), *files)))):
        return []
    return [one_line(str(problem)) for problem in lenient_settings({}).problems]


def shared_url() -> str | None:
    """Return the URL of the shared log, with its password. Loads no pydantic if none is set."""
    names = {name.upper() for name in os.environ}
    with suppress(SettingsFileError):
        names |= {f"KP_{name.upper()}" for name in locations.read_settings_file()}
    shared = lenient_settings({}).shared if "KP_SHARED" in names else None
    return None if shared is None else shared.get_secret_value()


def wait_for_model(embedder: "Embedder | None") -> None:
    hinted = False
    while embedder:
        try:
            _ = embedder.name
            return
        except EmbedderNotReadyError as error:
            if not hinted:
                hint(f"waiting for the model: {error}")
            hinted = True
            time.sleep(1)


def complete_trace_id(context: click.Context, _: click.Parameter, start: str) -> list[Any]:
    descriptions = {"@last": "the newest run", "@best": "the run with the highest score"}
    for trace_id, objective in storage.trace_ids(find_file(context)[0], start):
        forms = short_id(trace_id), trace_id.removeprefix("kp:trace:"), trace_id
        shortest = next(form for form in forms if form.startswith(start))
        descriptions[shortest] = one_line(objective)[:60]
    return complete(descriptions, start)


def complete(descriptions: Mapping[str, str], start: str) -> list[CompletionItem]:
    items = (CompletionItem(name, help=text) for name, text in descriptions.items())
    return [item for item in items if item.value.startswith(start)]


def _completes(names: Callable[[Path, str], list[str]]) -> Callable[..., list[Any]]:
    return lambda context, _, start: [
        name for name in names(find_file(context)[0], start) if name == one_line(name)
    ]


complete_domain: Final = _completes(storage.domain_names)
_complete_tool: Final = _completes(storage.tool_names)
FILE: Final = click.Path(path_type=Path, dir_okay=False)


class DefaultGroup(click.Group):
    def __init__(self, *values: Any, default: str, **more: Any) -> None:
        super().__init__(*values, **more)
        self._default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the default command before the first option that is not the group's."""
        params = self.get_params(ctx)
        options = {name: param for param in params for name in param.opts + param.secondary_opts}
        index = 0
        while index < len(args) and args[index].partition("=")[0] in options:
            option = options[args[index].partition("=")[0]]
            has_value = isinstance(option, click.Option) and not option.is_flag
            index += 2 if has_value and "=" not in args[index] else 1
        typed = args[index] if index < len(args) else ""
        is_cut = index > len(args)  # the last option lacks its value
        if typed.startswith("-") or not (typed or is_cut or ctx.resilient_parsing):
            args = [*args[:index], self._default, *args[index:]]
        return super().parse_args(ctx, args)


class NumberRange(click.FloatRange):
    """A range of finite numbers."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


UNIT: Final = NumberRange(0, 1)

_FLAGS: Final = {
    ("--no-color",): "Disable color, as NO_COLOR and TERM=dumb do.",
    ("--no-progress",): "Hide progress bars.",
    ("--quiet",): "Print only warnings and errors.",
    ("-v", "--verbose"): "Print log messages.",
}


def common(*, hidden: bool = False) -> list[click.Option]:
    """Return the options of every command; subcommands accept them ``hidden``."""
    more: dict[str, Any] = {"expose_value": False, "hidden": hidden, "callback": store_option}
    db_help = "Trace database. Default: KP_DB, or kp.db in your data folder."
    flags = (click.Option(names, is_flag=True, help=text, **more) for names, text in _FLAGS.items())
    return [click.Option(["--db"], type=FILE, help=db_help, **more), *flags]


def bundled(
    name: str, fields: Iterable[str], make: Callable[..., object], options: Sequence[Command]
) -> Callable[[Command], Command]:
    """Add these options; pass ``make(**values)`` to the command as the keyword ``name``."""

    def decorate(command: Command) -> Command:
        @wraps(command)
        def run(*values: Any, **more: Any) -> Any:
            bundle = make(**{field: more.pop(field) for field in fields if field in more})
            return command(*values, **{name: bundle}, **more)

        return reduce(lambda decorated, option: option(decorated), reversed(options), run)

    return decorate


def trace_id(name: str = "trace_id", *, metavar: str = "ID", **more: Any) -> Command:
    return click.argument(name, metavar=metavar, shell_complete=complete_trace_id, **more)


def limit(
    default: int | None = 20, *, minimum: int = 1, help_text: str = "Maximum number of rows."
) -> Command:
    return click.option(
        "-n",
        "--limit",
        type=click.IntRange(min=minimum),
        default=default,
        show_default=default is not None,
        help=help_text,
    )


_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?) *(ms|[smhdwy])")
_UNITS_S: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "y": 31536000}


def _duration_s(text: str) -> float | None:
    match = _DURATION.fullmatch(text.strip())
    return float(match[1]) * _UNITS_S[match[2]] if match else None


def _parse_instant(value: str) -> str:
    try:
        if (age_s := _duration_s(value)) is not None:
            return instant(time.time() - age_s)
        date = datetime.fromisoformat(value)
        return instant(date.replace(tzinfo=date.tzinfo or UTC).timestamp())
    except (ValueError, OverflowError, OSError) as error:
        message = f"{value!r} is not a date (2026-11-01) or an age (30s, 5m, 36h, 7d, 1y)"
        raise click.BadParameter(message) from error


def _parse_milliseconds(value: str) -> float:
    if (seconds := _duration_s(value)) is None:
        raise click.BadParameter(f"{value!r} is not a duration (500ms, 10s, 5m, 2h)")
    return seconds * 1000


domain = click.option("-d", "--domain", shell_complete=complete_domain, help="Only this domain.")
since = click.option(
    "--since",
    metavar="DATE|AGE",
    type=_parse_instant,
    help="Only runs started since a UTC date (2026-11-01) or age (30s, 5m, 36h, 7d, 2w, 1y).",
)
older = click.option(
    "--older",
    metavar="DATE|AGE",
    type=_parse_instant,
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
            type=click.Choice(storage.STATES),
            help="Only runs in this state (failed: could not be scored).",
        ),
        click.option(
            "--tool", shell_complete=_complete_tool, help="Only runs that used this tool."
        ),
        click.option("--failed", is_flag=True, help="Only runs whose task failed."),
        click.option(
            "--slower",
            "slower_ms",
            metavar="TIME",
            type=_parse_milliseconds,
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
"""Adds the options that select runs; passes them as ``filters``."""

_FORMATS: Final = {
    "json": "One JSON array.",
    "nl": "One JSON object per line.",
    "csv": "Comma-separated.",
    "tsv": "Tab-separated.",
    "table": "A table: the default on a terminal.",
}


def output_options(
    *, in_pipe: str = "tsv", json_help: str = _FORMATS["json"]
) -> Callable[[Command], Command]:
    helps = _FORMATS | {"json": json_help}
    helps |= {in_pipe: f"{helps[in_pipe].removesuffix('.')}: the default in a pipe."}
    if in_pipe == "table":
        helps["table"] = "Text: the default."
    formats = (
        click.option(f"--{name}", "format", flag_value=name, default=None, help=text)
        for name, text in helps.items()
    )

    def make(**values: Any) -> Output:
        values["format"] = values["format"] or ("table" if sys.stdout.isatty() else in_pipe)
        return Output(**values)

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
    "--json", "as_json", is_flag=True, expose_value=False, callback=store_option, help="Print JSON."
)
"""Adds ``--json``; read by `print_result` and ``has_flag("as_json")``."""

_SQLITE_FILES: Final = ("-wal", "-shm", "-journal")  # the last writes may be in them


@contextmanager
def new_file(file: Path, *, force: bool, db: Path | None = None) -> Iterator[Path]:
    """Yield an empty temporary file of mode 0600 that atomically replaces ``file``."""
    file, db = resolved(file), db and db.expanduser().resolve()
    if file.name == "-":
        raise click.UsageError("cannot write this to standard output: give a file name")
    if file == db or file in {Path(f"{db}{suffix}") for suffix in _SQLITE_FILES}:
        raise click.UsageError(f"{file} is part of the trace database: choose another name")
    if file.exists() and not file.is_file():
        raise click.UsageError(f"{file} is not a regular file: choose another name")
    if file.exists() and not force:
        raise click.UsageError(f"{file} exists: choose another name, or replace it with --force")
    if any(Path(f"{file}{suffix}").exists() for suffix in _SQLITE_FILES):
        raise click.UsageError(f"{file} is in use by SQLite: choose another name")
    with _replacing(file) as temporary:
        temporary.touch(0o600)
        yield temporary


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    folder = resolved(folder)
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise click.UsageError(f"{folder} exists and is not an empty folder: choose another")
    with _replacing(folder) as temporary:
        temporary.mkdir(0o700)
        yield temporary


def resolved(path: Path) -> Path:
    path = path.expanduser()
    if path.is_symlink() and not path.exists():
        raise click.UsageError(f"{path} is a dangling link: remove it, or choose another name")
    return path.resolve()


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    try:
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
            temporary = Path(folder) / path.name
            yield temporary
            temporary.replace(path)
    except OSError as error:
        message = f"cannot write {path}: {error.strerror}; choose another path"
        raise click.ClickException(message) from error
