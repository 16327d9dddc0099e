"""A file that is whole or not there: made beside its place, for its user alone."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click


@contextmanager
def new_file(file: Path, *, db: Path, force: bool) -> Iterator[Path]:
    """An empty file beside this one, with mode 0600; it takes its name when the block is done.

    Args:
        file: What is wanted.
        db: The file of traces, which is never replaced.
        force: Whether an existing file may be replaced.

    Raises:
        click.ClickException: If it exists, is no ordinary file, or cannot be written.
    """
    file = file.expanduser().resolve()
    _refuse(file, db, force=force)
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
        os.close(descriptor)
        unfinished = Path(name)
        try:
            yield unfinished
            unfinished.replace(file)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        message = f"{file} cannot be written ({error.strerror}): name another, or make room"
        raise click.ClickException(message) from error


def _refuse(file: Path, db: Path, *, force: bool) -> None:
    with suppress(OSError):
        if file.samefile(db):
            raise click.UsageError(f"{file} is the file of traces itself: name another")
    if file.exists() and not file.is_file():
        raise click.UsageError(f"{file} is not an ordinary file: name another")
    if file.exists() and not force:
        raise click.UsageError(f"{file} exists: name another, or replace it with --force")
    for journal in (Path(f"{file}-wal"), Path(f"{file}-journal")):
        if journal.exists():  # SQLite would take it for one of the new file, and spoil that
            raise click.UsageError(f"{file} is in use, there is {journal}: name another")
