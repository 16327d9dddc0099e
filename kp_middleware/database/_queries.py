"""Short ways to ask the connection, and the one way from rows to records."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Final, TypeAlias, TypeVar

from kp_middleware.database._file import Connection, Cursor

T = TypeVar("T")
Values: TypeAlias = Mapping[str, Any] | tuple[Any, ...]

_CASTS: Final[Mapping[Any, Callable[[Any], Any]]] = {
    bool: bool,
    bool | None: lambda value: None if value is None else bool(value),
    Mapping[str, int]: lambda text: json.loads(text or "{}"),
    Mapping[str, Any]: lambda text: json.loads(text or "{}"),
    tuple[str, ...]: lambda text: tuple(json.loads(text or "[]")),
}
"""Converters for what SQLite has no type for, by the annotation of a record's field."""
DISTINCT: Final = """
    WITH RECURSIVE names(name) AS (
      SELECT min({column}) FROM {table} WHERE {column} >= :start
      UNION ALL SELECT (SELECT min({column}) FROM {table} WHERE {column} > name) FROM names
      WHERE name IS NOT NULL
    )
    SELECT name FROM names WHERE name < :end LIMIT :most
"""
"""The values of an indexed column, skipping from one to the next: fast for a large file, too."""


class Queries:
    """Queries on the connection to one file."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def _run(self, sql: str, values: Values = ()) -> Cursor:
        """Run one statement."""
        return self._connection.execute(sql, values)

    def _row(self, sql: str, values: Values = ()) -> Any:
        """Return the first row; None if there is none."""
        return self._run(sql, values).fetchone()

    def _value(self, sql: str, values: Values = ()) -> Any:
        """Return the first value of the first row; None if there is none."""
        row = self._row(sql, values)
        return None if row is None else row[0]

    def _column(self, sql: str, values: Values = ()) -> list[Any]:
        """Return the first value of each row."""
        return [row[0] for row in self._run(sql, values)]

    def _all(self, kind: Callable[..., T], sql: str, values: Values = ()) -> list[T]:
        """Return a record of each row, whose columns are in the order of its fields."""
        return records(kind, self._run(sql, values))

    def _named(self, sql: str, values: Values = ()) -> list[dict[str, Any]]:
        """Return the rows by the names of their columns."""
        cursor = self._run(sql, values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]


def records(kind: Callable[..., T], rows: Iterable[Any]) -> list[T]:
    """Return a record of each row, whose columns are in the order of its fields."""
    casts = [(place, cast) for place, (_, cast) in enumerate(_fields(kind)) if cast is not None]
    found = []
    for row in rows:
        values = [*row]
        for place, cast in casts:
            values[place] = cast(values[place])
        found.append(kind(*values))
    return found


def record(kind: Callable[..., T], row: Mapping[str, Any], **made: Any) -> T:
    """Return a record of a row by the names of its columns, and of what is ``made`` of others."""
    values = {
        name: cast(row[name]) if cast else row[name]
        for name, cast in _fields(kind)
        if name not in made
    }
    return kind(**values, **made)


@cache
def _fields(kind: Callable[..., Any]) -> list[tuple[str, Callable[[Any], Any] | None]]:
    annotations = getattr(kind, "__annotations__", {})
    return [(name, _CASTS.get(annotation)) for name, annotation in annotations.items()]


def beginning_with(start: str, *, most: int) -> dict[str, str | int]:
    """Return the range of texts that begin so, as the queries want it."""
    return {"start": start, "end": start + chr(sys.maxunicode), "most": most}
