"""The shared log as people look after it: its schema, its state, and what they delete."""

import time
from collections.abc import Sequence
from importlib.resources import files
from typing import Final, NamedTuple

from kp_middleware.sharing._link import LIMITS, LOCK, SCHEMA, Link

_BEAT: Final = """
    INSERT INTO kp.pods (pod, version, settings, cursor, unshipped, oldest_unshipped_at, seen_at)
    VALUES (%s, %s, %s, %s, %s, %s, now())
    ON CONFLICT (pod) DO UPDATE SET version = excluded.version, settings = excluded.settings,
      cursor = excluded.cursor, unshipped = excluded.unshipped,
      oldest_unshipped_at = excluded.oldest_unshipped_at, seen_at = now()
"""
_STATUS: Final = """
    SELECT current_setting('server_version'), head,
      (SELECT count(*) FROM kp.pods WHERE seen_at > now() - interval '2 minutes'),
      (SELECT extract(epoch FROM now() - decided_at)::float8 FROM kp.log WHERE seq = head),
      (SELECT count(*) FROM kp.outbox WHERE state IN ('pending', 'sending'))
    FROM kp.heads WHERE stream = 'main'
"""
_SETTINGS: Final = """
    SELECT pod, settings FROM kp.pods WHERE seen_at > now() - interval '2 minutes' ORDER BY pod
"""
_SELF: Final = """
    SELECT current_setting('server_version'), extract(epoch FROM clock_timestamp())::float8,
      coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false)
"""
_TRY: Final = "UPDATE kp.heads SET head = head WHERE stream = 'main'"
_FOUND: Final = "SELECT 1 FROM kp.log WHERE id = %(id)s AND rev = 0"
_DELETE: Final = (
    "DELETE FROM kp.documents WHERE id = %(id)s",
    "UPDATE kp.log SET vector = NULL WHERE id = %(id)s",
    "DELETE FROM kp.outbox WHERE id = %(id)s AND state <> 'sending'",
    """
    WITH h AS (UPDATE kp.heads SET head = head + 1 WHERE stream = 'main' RETURNING head)
    INSERT INTO kp.log (seq, id, rev, kind, pod, domain, started_at)
    SELECT h.head, id, (SELECT max(rev) + 1 FROM kp.log WHERE id = %(id)s), 'gone', pod,
           domain, started_at
    FROM kp.log, h WHERE id = %(id)s AND rev = 0
    """,
)


class Pod(NamedTuple):
    """A pod's report of each half minute; runs wait there ``since`` the first began."""

    name: str
    version: str
    settings: str
    place: int
    waiting: int
    since: str | None


class Examination(NamedTuple):
    """The log as seen from here; ``settings`` are those of each pod of the last minutes."""

    server: str
    round_trip_s: float
    ahead_s: float
    is_encrypted: bool
    settings: Sequence[tuple[str, str]]


def script() -> str:
    """Return the SQL that creates the schema."""
    return files("kp_middleware.sharing").joinpath("0001.sql").read_text("utf-8")


def migrate(link: Link) -> bool:
    """Create the schema, or leave a current one as it is; return whether it was created.

    Raises:
        SharedLogError: If it cannot be created.
    """
    with link.session(needs_schema=False) as connection, connection.transaction():
        row = connection.execute("SELECT to_regclass('kp.meta') IS NOT NULL").fetchone()
        if row == (True,):
            return False
        connection.execute(script())
        connection.execute("UPDATE kp.meta SET value = %s WHERE key = 'schema'", (str(SCHEMA),))
    return True


def beat(link: Link, pod: Pod) -> None:
    """Tell the others that a pod is there."""
    link.ask(_BEAT, pod)


def status(link: Link) -> str:
    """Describe the state of the log in one line: pods are those of the last two minutes.

    Raises:
        SharedLogError: If it cannot be read.
    """
    [(server, rows, pods, newest_s, waiting)] = link.ask(_STATUS)
    newest = "" if newest_s is None else f"; newest row {newest_s:,.0f} s old"
    seen = f"{pods:,} {'pod' if pods == 1 else 'pods'} in the last 2 minutes"
    left = f"; {waiting:,} wait to be sent" if waiting else ""
    return f"PostgreSQL {server.split()[0]}, {rows:,} rows, {seen}{newest}{left}"


def examine(link: Link) -> Examination:
    """Connect, write and roll back, and measure.

    Raises:
        SharedLogError: If any of this fails.
    """
    with link.session() as connection:
        with connection.transaction(force_rollback=True):
            connection.execute(LIMITS)
            connection.execute(_TRY)
        took_s = []
        for _ in range(3):
            began_s = time.perf_counter()
            connection.execute("SELECT 1").fetchall()
            took_s.append(time.perf_counter() - began_s)
        [(server, now, is_encrypted)] = connection.execute(_SELF).fetchall()
        ahead_s = now - time.time()
        pods = connection.execute(_SETTINGS).fetchall()
    return Examination(server, min(took_s), ahead_s, is_encrypted, pods)


def delete(link: Link, trace_id: str) -> bool:
    """Delete a run's document and vector, and tell all hosts; return whether it was there."""
    asked = {"id": trace_id}
    with link.transaction() as opened:
        _, found = opened.read((LOCK, ()), (_FOUND, asked))
        if found:
            for statement in _DELETE:
                opened.connection.execute(statement, asked)
    return bool(found)
