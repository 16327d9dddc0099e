"""Write a file that is whole or not there, readable by its user alone."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import click

_STDOUT: Final = Path("-")
_BESIDE: Final = ("-wal", "-shm", "-journal")
"""How SQLite names what it keeps beside a file; what is written last may be in there alone."""


@contextmanager
def new_file(file: Path, *, db: Path, force: bool) -> Iterator[Path]:
    """Yield an empty file of mode 0600 beside this one; it takes its name at the end of the block.

    Args:
        file: What is wanted.
        db: The file of traces, which is never replaced, nor is what SQLite keeps beside any file.
        force: Whether an existing file may be replaced.

    Raises:
        click.ClickException: If it exists, is no ordinary file or a link to what is not there, or
            cannot be written.
    """
    if file == _STDOUT:
        raise click.UsageError("this cannot be written to standard output: name a file")
    link = file.expanduser()
    file = link.resolve()
    _refuse(file, db, force=force)
    if link.is_symlink() and not link.exists():
        raise click.UsageError(f"{link} is a link to what is not there: remove it, or name another")
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
        if file.samefile(db.expanduser()):
            raise click.UsageError(f"{file} is the file of traces itself: name another")
    if database := _database_beside(file):
        raise click.UsageError(f"{file} belongs to {database}: name another")
    if file.exists() and not file.is_file():
        raise click.UsageError(f"{file} is not an ordinary file: name another")
    if file.exists() and not force:
        raise click.UsageError(f"{file} exists: name another, or replace it with --force")
    for journal in (Path(f"{file}{suffix}") for suffix in _BESIDE):
        if journal.exists():  # SQLite would take it for one of the new file, and spoil that
            raise click.UsageError(f"{file} is in use, there is {journal}: name another")


def _database_beside(file: Path) -> Path | None:
    """Return the database that SQLite would take this file for a part of, or None."""
    for suffix in _BESIDE:
        name = file.name[: -len(suffix)]
        if name and file.name.lower().endswith(suffix):  # on some disks, case is no difference
            database = file.with_name(name)
            return database if database.exists() else None
    return None
