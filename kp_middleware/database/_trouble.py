"""Database errors, and their messages for the user."""

import os
import sqlite3
from pathlib import Path
from typing import Final

from kp_middleware.errors import DatabaseError

TROUBLE: Final = (DatabaseError, sqlite3.Error)
"""The exceptions that opening and using the file may raise."""

PASSING_TROUBLE: Final = (DatabaseError, sqlite3.OperationalError)
"""The exceptions for which a retry may help: a lock, a full disk, a missing folder."""

ANOTHER: Final = "name another file with KP_DB or --db"
"""The last-resort remedy."""

_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_WRITABLE: Final = f"make the file and its folder writable for you, or {ANOTHER}"
_REMEDIES: Final = {
    sqlite3.SQLITE_FULL: f"make room on the disk, or {ANOTHER}",
    sqlite3.SQLITE_PERM: _WRITABLE,
    sqlite3.SQLITE_BUSY: "close the program that keeps it locked",
    sqlite3.SQLITE_CORRUPT: "the next program that records saves what it can, or move it away",
}


def is_damage(error: BaseException) -> bool:
    """Return True if the error means that the file is corrupt, so that a retry cannot help."""
    if isinstance(error, DatabaseError):
        error = error.__cause__ or error
    return _primary_code(error) in _DAMAGED


def in_words(path: Path, error: Exception) -> DatabaseError:
    """Return the error as a `DatabaseError` with the path and a remedy."""
    if isinstance(error, DatabaseError):
        return error
    if isinstance(error, FileNotFoundError) and error.filename == path:
        return DatabaseError(path, "does not exist", f"record a run first, or {ANOTHER}")
    if isinstance(error, PermissionError) and _is_readable(path):
        return DatabaseError(path, f"cannot be written ({error.strerror})", _WRITABLE)
    if isinstance(error, OSError):
        return DatabaseError(path, f"cannot be opened ({error.strerror})", ANOTHER)
    if _primary_code(error) == sqlite3.SQLITE_NOTADB:
        return DatabaseError(path, "is not an SQLite file", ANOTHER)
    if _primary_code(error) == sqlite3.SQLITE_READONLY:
        return DatabaseError(path, f"cannot be written ({error})", _WRITABLE)
    remedy = _REMEDIES.get(_primary_code(error), f"check the folder and the disk, or {ANOTHER}")
    return DatabaseError(path, str(error), remedy)


def _is_readable(path: Path) -> bool:
    """Return True if the file, or the folder it would be created in, is readable."""
    return os.access(path if os.access(path, os.F_OK) else path.parent, os.R_OK)


def _primary_code(error: BaseException) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
