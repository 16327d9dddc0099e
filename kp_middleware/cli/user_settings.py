"""The settings and the file of the user who types a command."""

import os
import time
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from pathlib import Path
from shutil import disk_usage
from typing import TYPE_CHECKING, Any, Final, cast

import click

from kp_middleware import locations
from kp_middleware.cli.console import hint
from kp_middleware.core.formula import PROFILES, Weights
from kp_middleware.core.gates import gate_of
from kp_middleware.errors import EmbedderNotReadyError, SettingsFileError
from kp_middleware.storage import Database, History
from kp_middleware.views.wording import one_line

if TYPE_CHECKING:
    from kp_middleware.embedding import Embedder
    from kp_middleware.settings import Settings

FILE: Final = "kp_middleware.file"  # the key of --db in the context
_LITTLE_BYTES: Final = 100_000_000
_LOOK_AGAIN_S: Final = 1.0
_ANY_TEXT: Final = {"KP_AGENT_ID", "KP_DOMAIN", "KP_MODEL_PATH", "KP_TRACING"}  # never wrong


def pass_db(command: Callable[..., Any]) -> Callable[..., Any]:
    """Pass the trace database to a command; say which it is where settings name it wrongly."""

    @wraps(command)
    def run(*values: Any, **more: Any) -> Any:
        context = click.get_current_context()
        db = named_file(context)
        if db is None:
            db, doubt = _file_and_doubt()
            if doubt:
                click.echo(f"{one_line(doubt)}; this is about {db}", err=True)
        return command(db, *values, **more)

    return run


def file_of(context: click.Context) -> Path:
    """Return the file of traces that is meant, or the default one if that is unknown."""
    return named_file(context) or _file_and_doubt()[0]


def named_file(context: click.Context) -> Path | None:
    """Return the file that ``--db`` names; None if it was not given."""
    return cast("Path | None", context.meta.get(FILE))


def read_settings(db: Path) -> "Settings":
    """Return the settings for a file; fail if any is wrong: the answer would be, too."""
    if problems := settings_problems(but={"db"}):
        raise click.ClickException("; ".join(problems))
    return typed_settings({"db": db})


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


def hint_at_another_gate(history: History, settings: "Settings") -> None:
    """Say so if the program that recorded had another gate: its keywords are unknown here."""
    theirs, ours = history.last_decisions().gate, gate_of(settings).name
    if theirs and theirs != ours:
        hint(f"uses {ours}, but the last run was decided by {theirs}: set KP_THRESHOLD to match")


def profile_weights(db: Path, profile: str) -> Weights:
    """Return what each signal counts in a profile, of the protocol's or the user's own."""
    profiles = {**PROFILES, **read_settings(db).profiles}
    if profile not in profiles:
        raise click.UsageError(f"no such profile: {profile} (choose from {', '.join(profiles)})")
    return profiles[profile]


def wait_for_model(embedder: "Embedder | None") -> None:
    """Wait while the model is being downloaded."""
    told = False
    while embedder:
        try:
            _ = embedder.name
        except EmbedderNotReadyError as error:
            if not told:
                hint(f"waiting for the model: {error}")
            told = True
            time.sleep(_LOOK_AGAIN_S)
        else:
            return


def typed_settings(keywords: Mapping[str, Any]) -> "Settings":
    """Return the settings with these keywords, whatever else is wrong."""
    from pydantic import ValidationError

    from kp_middleware.setting_values import problem_in_words
    from kp_middleware.settings import Settings

    try:
        return Settings.as_far_as_usable(**keywords)
    except ValidationError as error:
        found = error.errors(include_input=False, include_url=False)
        wrong = (problem_in_words(one["loc"], one["msg"]) for one in found)
        raise click.ClickException("; ".join(wrong)) from error


def settings_problems(*, but: Collection[str] = ()) -> list[str]:
    """Return what is wrong with what is set outside of programs, each in one line."""
    from kp_middleware.settings import Settings

    problems = Settings.as_far_as_usable().problems
    return [one_line(str(problem)) for problem in problems if problem.name not in but]


def wrong_settings() -> list[str]:
    """Return the same, without loading pydantic where nothing is set that could be wrong."""
    variables = {name.upper() for name, value in os.environ.items() if value}
    if any(name.startswith("KP_") for name in variables - _ANY_TEXT):
        return settings_problems()
    folder = locations.reference_folder()
    if any(os.path.lexists(folder / name) for name in ("config.json", "auth.json")):
        return settings_problems()
    try:
        return settings_problems() if locations.settings_lines() else []
    except SettingsFileError:
        return settings_problems()


def shared_url() -> str | None:
    """Return the URL of the shared log that is set outside of programs, with its password."""
    if not any(name.upper() == "KP_SHARED" and value for name, value in os.environ.items()):
        return None  # without loading pydantic
    shared = typed_settings({}).shared
    return None if shared is None else shared.get_secret_value()


def _file_and_doubt() -> tuple[Path, str | None]:
    """Return the file of traces, and why it may not be the one that is meant."""
    try:
        path = locations.database_file()
        doubt = locations.why_no_file(path)
    except SettingsFileError as error:
        doubt = str(error)
    return (locations.default_database_file(), doubt) if doubt else (path, None)
