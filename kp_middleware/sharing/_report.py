"""What the shared log knows of the hosts that share it."""

import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kp_middleware.sharing._link import Connection, Link, bounded

_BEAT: Final = """
    INSERT INTO kp.pods (pod, version, settings, cursor, unshipped, oldest_unshipped_at, seen_at)
    VALUES (%s, %s, %s, %s, %s, %s, now())
    ON CONFLICT (pod) DO UPDATE SET version = excluded.version, settings = excluded.settings,
      cursor = excluded.cursor, unshipped = excluded.unshipped,
      oldest_unshipped_at = excluded.oldest_unshipped_at, seen_at = now()
"""
_STATUS: Final = """
    SELECT current_setting('server_version'),
      (SELECT count(*) FROM kp.pods WHERE seen_at > now() - interval '2 minutes'),
      (SELECT extract(epoch FROM now() - decided_at)::float8 FROM kp.log
       WHERE seq = (SELECT head FROM kp.heads WHERE stream = 'main')),
      (SELECT head FROM kp.heads WHERE stream = 'main'),
      (SELECT count(*) FROM kp.outbox WHERE state IN ('pending', 'sending'))
"""
_SETTINGS: Final = """
    SELECT pod, settings FROM kp.pods WHERE seen_at > now() - interval '2 minutes' ORDER BY pod
"""
_SELF: Final = """
    SELECT current_setting('server_version'), extract(epoch FROM clock_timestamp())::float8,
      coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false)
"""
_TRY: Final = "UPDATE kp.heads SET head = head WHERE stream = 'main'"


class Pod(NamedTuple):
    """A pod's report of each half minute; runs wait there ``since`` the first began."""

    name: str
    version: str
    settings: str
    place: int
    waiting: int
    since: str | None


class FleetStatus(NamedTuple):
    """The state of the shared log: pods of the last two minutes, the newest row's age or None."""

    server: str
    pods: int
    newest_s: float | None
    rows: int
    waiting: int

    def in_words(self) -> str:
        """Describe it in one line."""
        newest = "" if self.newest_s is None else f"; newest row {self.newest_s:,.0f} s old"
        pods = f"{self.pods:,} {'pod' if self.pods == 1 else 'pods'} in the last 2 minutes"
        waiting = f"; {self.waiting:,} wait to be sent" if self.waiting else ""
        return f"PostgreSQL {self.server.split()[0]}, {self.rows:,} rows, {pods}{newest}{waiting}"


class Examination(NamedTuple):
    """The log as seen from here; ``settings`` are those of each pod of the last minutes."""

    server: str
    round_trip_s: float
    ahead_s: float
    is_encrypted: bool
    settings: Sequence[tuple[str, str]]


def beat(link: Link, pod: Pod) -> None:
    """Tell the others that a pod is there."""
    link.exchange(lambda connection: connection.execute(_BEAT, pod))


def read_status(link: Link) -> FleetStatus:
    """Read the state of the shared log.

    Raises:
        SharedLogError: If it cannot be read.
    """
    return FleetStatus(*link.exchange(lambda connection: _rows(connection, _STATUS)[0]))


def examine(link: Link) -> Examination:
    """Connect, write and roll back, and measure.

    Raises:
        SharedLogError: If any of this fails.
    """

    def work(connection: Connection) -> Examination:
        with bounded(connection):
            connection.execute(_TRY)
            raise_back(connection)
        took_s = min(_timed(connection) for _ in range(3))
        server, now, is_encrypted = _rows(connection, _SELF)[0]
        ahead_s = now - time.time()
        return Examination(server, took_s, ahead_s, is_encrypted, _rows(connection, _SETTINGS))

    return link.exchange(work)


def raise_back(connection: Connection) -> None:
    """Roll the open transaction back at the end of its block."""
    import psycopg

    connection.execute("SELECT 1").fetchall()  # what was refused is told here
    raise psycopg.Rollback


def _timed(connection: Connection) -> float:
    began_s = time.perf_counter()
    connection.execute("SELECT 1").fetchall()
    return time.perf_counter() - began_s


def _rows(connection: Connection, query: str) -> list[tuple[Any, ...]]:
    return connection.execute(query.encode()).fetchall()
