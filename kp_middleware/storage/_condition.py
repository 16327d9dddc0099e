"""How the file is: its size, its schema, how far it goes back, and what waits in it since when."""

from collections.abc import Mapping
from glob import escape
from pathlib import Path
from typing import NamedTuple

from kp_middleware.database import Connection


class Condition(NamedTuple):
    """Of one file.

    Attributes:
        size_bytes: With what is written, but not yet in the file itself.
        schema: The version of its tables.
        oldest: When the first trace had started; None if there is none.
        newest: When the last one had.
        waiting_since: When what waits had started, the first recorded, by state: ``unscored``,
            ``paused`` and ``pending``; only those that there are.
        registries: Where something waits to be sent to.
        dropped: How many runs were lost because too many waited to be written.
        set_aside: Damaged files that lie beside it.
    """

    size_bytes: int
    schema: int
    oldest: str | None
    newest: str | None
    waiting_since: Mapping[str, str]
    registries: tuple[str, ...]
    dropped: int
    set_aside: tuple[str, ...]


def read_condition(connection: Connection, path: Path) -> Condition:
    """What the file and its folder say."""
    (schema,) = connection.execute("PRAGMA user_version").fetchone()
    oldest, newest, *waiting = connection.execute(
        """
        SELECT (SELECT min(started_at) FROM traces), (SELECT max(started_at) FROM traces),
               (SELECT started_at FROM traces WHERE state = 'recorded' ORDER BY seq LIMIT 1),
               (SELECT started_at FROM traces WHERE state = 'paused' ORDER BY seq LIMIT 1),
               (SELECT started_at FROM traces WHERE seq = (
                  SELECT min(trace_seq) FROM outbox WHERE state IN ('pending', 'sending')))
        """
    ).fetchone()
    since = dict(zip(("unscored", "paused", "pending"), waiting, strict=True))
    registries = connection.execute(
        "SELECT DISTINCT registry FROM outbox WHERE state IN ('pending', 'sending')"
    )
    return Condition(
        sum(map(_size_bytes, (path, Path(f"{path}-wal")))),
        schema,
        oldest,
        newest,
        {name: instant for name, instant in since.items() if instant},
        tuple(registry for (registry,) in registries),
        _dropped(connection),
        tuple(sorted(str(file) for file in path.parent.glob(f"{escape(path.name)}.corrupt-*Z"))),
    )


def _dropped(connection: Connection) -> int:
    row = connection.execute("SELECT value FROM meta WHERE key = 'dropped'").fetchone()
    return int(row[0]) if row else 0


def _size_bytes(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
