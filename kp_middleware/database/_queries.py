"""Short ways to ask the connection, and the one way from rows to records."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from kp_middleware.database._file import Connection, transaction

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
        self._run = connection.execute

    def _add(self, table: str, **row: Any) -> int:
        """Insert a row, and return its ``rowid``."""
        names = ", ".join(row)
        values = ", ".join(f":{name}" for name in row)
        cursor = self._run(f"INSERT INTO {table} ({names}) VALUES ({values})", row)
        return cursor.lastrowid or 0

    def _write(self, sql: str, values: Values = ()) -> None:
        """Run one statement in a transaction, of its own unless one is open."""
        with transaction(self._connection):
            self._run(sql, values)

    def _write_each(self, sql: str, rows: Iterable[Values]) -> None:
        """Run one statement for each row, in a transaction."""
        with transaction(self._connection):
            self._connection.executemany(sql, rows)

    def _row(self, sql: str, values: Values = ()) -> Any:
        """Return the first row; None if there is none."""
        return next(iter(self._run(sql, values)), None)

    def _value(self, sql: str, values: Values = ()) -> Any:
        """Return the first value of the first row; None if there is none."""
        for row in self._run(sql, values):
            return row[0]
        return None

    def _column(self, sql: str, values: Values = ()) -> list[Any]:
        """Return the first value of each row."""
        return [row[0] for row in self._run(sql, values)]

    def _all(self, kind: Callable[..., T], sql: str, values: Values = ()) -> list[T]:
        """Return a record of each row, whose columns are in the order of its fields."""
        casts = [(place, cast) for place, (_, cast) in enumerate(_fields(kind)) if cast]
        found = []
        for row in self._run(sql, values):
            facts = [*row]
            for place, cast in casts:
                facts[place] = cast(facts[place])
            found.append(kind(*facts))
        return found

    def _named(self, sql: str, values: Values = ()) -> list[dict[str, Any]]:
        """Return the rows by the names of their columns."""
        cursor = self._run(sql, values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]


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


_CHUNK: Final = 1024  # rows: 1.6 MB

# One row for a thousand: sqlite3 releases the GIL for each, and a busy agent keeps it for 5 ms.
# Flat lists: one for each vector would trigger the garbage collector, 25 ms with the GIL.
_SINCE: Final = f"""
    SELECT json_group_array(seq), json_group_array(added_at_ms), json_group_array(key),
           CAST(group_concat(vector, '') AS BLOB)
    FROM (SELECT seq, added_at_ms, key, vector FROM vectors
          WHERE embedder = ? AND seq > ? AND length(vector) = ? AND added_at_ms > ?
          ORDER BY seq LIMIT {_CHUNK})
"""


class StoredVectors(NamedTuple):
    """Some vectors as columns, oldest first."""

    units: bytes  # float32, little-endian, one after the other, of length 1 or all zero
    keys: Sequence[str | None]
    stamps_ms: Sequence[int]  # since the epoch
    seqs: Sequence[int]


class VectorTable(Queries):
    """The vectors of one file. A cache never deletes a row that a trace owns."""

    def __init__(self, connection: Connection, dimensions: int = 384) -> None:
        super().__init__(connection)
        self._size_bytes = 4 * dimensions

    def before_newest(self, embedder: str, limit: int) -> int:
        """Return the ``seq`` of the row before an embedder's last ``limit``, 0 if there is none."""
        seq = self._value(
            "SELECT seq FROM vectors WHERE embedder = ? ORDER BY seq DESC LIMIT 1 OFFSET ?",
            (embedder, limit),
        )
        return int(seq or 0)

    def since(
        self, embedder: str, seq: int, *, after_ms: int | None = None
    ) -> Iterator[StoredVectors]:
        """Yield an embedder's vectors after a ``seq``, of any process, in order and in chunks."""
        while True:
            *facts, units = self._row(
                _SINCE, (embedder, seq, self._size_bytes, -1 if after_ms is None else after_ms)
            )
            if units is None:
                return
            seqs, stamps_ms, keys = map(json.loads, facts)
            yield StoredVectors(units, keys, stamps_ms, seqs)
            if len(seqs) < _CHUNK:
                return
            seq = seqs[-1]

    def embedders(self) -> list[str]:
        """Return the embedders that have vectors, with one index look-up for each."""
        sql = DISTINCT.format(table="vectors", column="embedder")
        return self._column(sql, beginning_with("", most=-1))

    def last_seq(self) -> int:
        return int(self._value("SELECT coalesce(max(seq), 0) FROM vectors"))

    def insert(self, embedder: str, unit: bytes, *, key: str | None, added_at_ms: int) -> int:
        """Insert a row, owned by the trace with the key as id if stored, and return its ``seq``."""
        cursor = self._run(
            "INSERT INTO vectors (trace_seq, key, embedder, added_at_ms, vector)"
            " VALUES ((SELECT seq FROM traces WHERE id = ?), ?, ?, ?, ?)",
            (key, key, embedder, added_at_ms, unit),
        )
        return cursor.lastrowid or 0

    def forget(self, seqs: Iterable[int]) -> None:
        """Delete these rows, except those that a trace owns."""
        sql = "DELETE FROM vectors WHERE seq = ? AND trace_seq IS NULL"
        self._write_each(sql, ((seq,) for seq in seqs))

    def forget_all(self, *, up_to_ms: int | None = None) -> None:
        """Delete the rows that no trace owns: all, or those added at this time or earlier."""
        self._write(
            "DELETE FROM vectors WHERE trace_seq IS NULL AND (?1 IS NULL OR added_at_ms <= ?1)",
            (up_to_ms,),
        )
