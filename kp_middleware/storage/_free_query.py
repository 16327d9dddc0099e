"""Queries with a time limit: SQL that users type, and what the shell completes."""

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import chain, count
from pathlib import Path
from typing import Any, Final, NamedTuple

from kp_middleware.database import DISTINCT, beginning_with, connect
from kp_middleware.errors import DatabaseError
from kp_middleware.storage._listing import whole_id

_OFTEN: Final = 10_000  # virtual instructions: about a millisecond
_TABLES: Final = 'kp-middleware sql "select name, sql from sqlite_master" shows what there is'
_LESS: Final = "ask for less, or open the file with sqlite3"
_WRITE: Final = "to change it, open it with sqlite3 while no program records"
_USE: Final = "give one statement, and a value for each of its :names with -p NAME VALUE"
_TELLING: Final = ("table_", "index_", "foreign_key_", "quick_", "integrity_")
"""The beginnings of pragmas whose argument names a subject instead of changing a setting."""


class Answer(NamedTuple):
    """The result of a query."""

    columns: Sequence[str]  # made unique
    rows: Iterator[dict[str, Any]]  # read lazily


class FreeQuery:
    """A read-only connection for arbitrary SQL, without access to any other file."""

    def __init__(
        self, path: Path, *, limit_s: float = 5.0, timer: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._limit_s = limit_s
        self._timer = timer
        self._connection = connect(path, read_only=True)
        self._connection.execute("PRAGMA query_only = ON")
        # A cast of bytes to text need not be UTF-8.
        self._connection.text_factory = lambda text: text.decode(errors="replace")
        self._connection.set_authorizer(_verdict)
        self._connection.set_progress_handler(self._is_over, _OFTEN)
        self._until = 0.0
        self._stopped = False

    def close(self) -> None:
        self._connection.close()

    def ask(self, sql: str, values: Mapping[str, object]) -> Answer:
        self._until, self._stopped = self._timer() + self._limit_s, False
        with self._in_words():
            cursor = self._connection.execute(sql, values)
        columns = list[str]()
        for name, *_ in cursor.description or ():
            others = (f"{name}_{number}" for number in count(2))
            columns.append(next(one for one in chain([name], others) if one not in columns))
        return Answer(columns, self._rows(cursor, columns))

    def _rows(self, cursor: sqlite3.Cursor, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        with self._in_words():
            for row in cursor:
                asked_at = self._timer()
                yield dict(zip(columns, row, strict=True))
                self._until += self._timer() - asked_at

    def _is_over(self) -> bool:
        self._stopped = self._timer() > self._until
        return self._stopped

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, sqlite3.Warning, OverflowError) as error:
            code = getattr(error, "sqlite_errorcode", None)
            if code == sqlite3.SQLITE_INTERRUPT and not self._stopped:
                raise KeyboardInterrupt from error  # SQLite swallowed it inside `_is_over`
            misused = isinstance(error, sqlite3.ProgrammingError | sqlite3.Warning)
            told = str(error).rstrip("."), _USE if misused else _TABLES
            if self._stopped:
                told = f"this takes longer than {self._limit_s:g} s", _LESS
            elif code in {sqlite3.SQLITE_AUTH, sqlite3.SQLITE_READONLY}:
                told = "only reading is allowed here", _WRITE
            raise DatabaseError(self._path, *told) from error


def _verdict(action: int, what: str | None, setting: str | None, *_: object) -> int:
    """Deny other files and settings; SQLite itself enforces read-only access."""
    tells = setting is None or (what or "").startswith(_TELLING)
    sets = action == sqlite3.SQLITE_PRAGMA and not tells
    return sqlite3.SQLITE_DENY if sets or action == sqlite3.SQLITE_ATTACH else sqlite3.SQLITE_OK


_COMPLETION_LIMIT_S: Final = 0.2
_OFTEN_ENOUGH: Final = 1_000  # virtual instructions: some microseconds
_MOST: Final = 50


_IDS: Final = """
    SELECT id, objective FROM traces WHERE seq IN (
      SELECT seq FROM traces WHERE id >= :start AND id < :end ORDER BY seq DESC LIMIT :most
    ) ORDER BY seq DESC
"""


def trace_ids(path: Path, start: str) -> list[tuple[str, str]]:
    """Return ids and objectives of the newest traces of a prefix; none if that takes too long."""
    return _completions(path, _IDS, whole_id(start))


def domain_names(path: Path, start: str) -> list[str]:
    return _names(path, start, table="traces", column="domain")


def tool_names(path: Path, start: str) -> list[str]:
    return _names(path, start, table="steps", column="tool")


def _names(path: Path, start: str, **where: str) -> list[str]:
    return [name for (name,) in _completions(path, DISTINCT.format(**where), start)]


def _completions(path: Path, sql: str, start: str) -> list[Any]:
    until = time.monotonic() + _COMPLETION_LIMIT_S
    with suppress(sqlite3.Error, OSError, RuntimeError):
        uri = f"{path.expanduser().resolve().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=_COMPLETION_LIMIT_S)) as connection:
            connection.set_progress_handler(lambda: time.monotonic() > until, _OFTEN_ENOUGH)
            return connection.execute(sql, beginning_with(start, most=_MOST)).fetchall()
    return []
