"""A connection to PostgreSQL with deadlines, safe forks, and errors without the password."""

import os
import re
import socket
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from kp_middleware.errors import MissingExtraError, SharedLogError
from kp_middleware.forks import at_fork

if TYPE_CHECKING:
    import psycopg

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"
Cursor: TypeAlias = "psycopg.Cursor[tuple[Any, ...]]"
Rows: TypeAlias = list[tuple[Any, ...]]
Values: TypeAlias = Sequence[object] | Mapping[str, object]

SCHEMA: Final = 1
"""The version of the schema ``kp`` that this release writes."""

LOCK: Final = "SELECT head FROM kp.heads WHERE stream = 'main' FOR UPDATE"
"""The lock of the log, held to decide and append."""

LIMITS: Final = """
    SELECT set_config('idle_in_transaction_session_timeout', '3000', true),
           set_config('lock_timeout', '4000', true), set_config('statement_timeout', '5000', true)
"""
"""Timeouts after which the server ends a transaction."""

_URL: Final = re.compile(
    r"postgres(ql)?://([^/?#@]*@)?"
    r"(?P<place>([\w.%-]*|\[[\da-f:]+\])(:\d+)?(,([\w.%-]*|\[[\da-f:]+\])(:\d+)?)*(/[^/?#@]*)?)"
    r"(\?[^@]*)?",
    re.IGNORECASE,
)
_DEADLINE_S: Final = 6.0
_MIGRATE: Final = "kp-middleware shared migrate"
_WAIT: Final = "programs that record retry by themselves"
_CORRECT: Final = "correct KP_SHARED"
_UNTRUSTED: Final = "has a certificate that is not trusted"
_NEVER: Final = "(?!)"
_CAUSES: Final = (
    # SQLSTATE; libpq's message before a session begins, which has no code; problem; remedy
    ("53300", "too many", "has too many connections", _WAIT),
    ("28", 'password|authentication|pg_hba|role "', "refuses this user or password", _CORRECT),
    ("3F|42P01", _NEVER, "has no schema kp", f"run {_MIGRATE}"),
    (
        "42501",
        _NEVER,
        "denies this role a permission",
        "grant it the permissions listed in docs/fleet.md",
    ),
    ("53100", _NEVER, "has a full disk", "free disk space there"),
    ("55P03", _NEVER, "is locked by another program", _WAIT),
    ("57014", _NEVER, "takes too long", _WAIT),
    (_NEVER, "certificate", _UNTRUSTED, "correct sslrootcert in KP_SHARED"),
    ("3D", "does not exist", "has no database of this name", _CORRECT),
    ("57P0[123]", "starting up|shutting down", "is starting or stopping", _WAIT),
    (_NEVER, "refused", "cannot be reached (connection refused)", _WAIT),
    (_NEVER, "no such file", "cannot be reached (nothing is listening)", _WAIT),
    (_NEVER, "resolve|translate", "has an unknown host name", _CORRECT),
    (_NEVER, "ssl", "does not accept TLS", "correct sslmode in KP_SHARED"),
    ("25006", "read-", "is read-only, a standby", "add the primary to KP_SHARED"),
    (_NEVER, "invalid", "has an invalid URL", _CORRECT),
    (_NEVER, "timeout|timed out", "does not respond in time", _WAIT),
)

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
_WRITTEN: Final = {"log": "seq", "documents": "id", "outbox": "seq", "paces": "pace", "pods": "pod"}
_TRY: Final = "UPDATE kp.heads SET head = head WHERE stream = 'main'" + "".join(
    f"; INSERT INTO kp.{table} SELECT * FROM kp.{table} WHERE false"
    f"; UPDATE kp.{table} SET {column} = {column} WHERE false"
    for table, column in _WRITTEN.items()
)
"""A write, and statements that need each permission of a pod."""
_LIFT: Final = "UPDATE kp.paces SET stops = '{}' WHERE stops <> '{}' RETURNING agent"
_EXISTS: Final = "SELECT 1 FROM kp.log WHERE id = %(id)s AND rev = 0"
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


def address(url: str) -> str:
    """Return the hosts and database of a URL, without user, password and options.

    >>> address("postgresql://me:secret@db.internal:5433/agents?sslmode=require")
    'postgresql://db.internal:5433/agents'
    >>> address("postgresql://me:not/quoted@db.internal/agents")
    'postgresql://…'
    """
    found = _URL.fullmatch(url)
    return f"postgresql://{found['place'] if found else '…'}"


class Transaction(NamedTuple):
    """An open transaction, whose statements are sent together at its end."""

    connection: Connection
    pipeline: "psycopg.Pipeline"

    def read(self, *queries: tuple[str, Values]) -> list[Rows]:
        """Return the rows of several queries, in one round trip.

        The sync makes the session idle: otherwise the server would not end the transaction of a
        frozen process, and its lock would last.
        """
        cursors = [self.connection.execute(query, values, binary=True) for query, values in queries]
        self.pipeline.sync()
        return [cursor.fetchall() for cursor in cursors]


class Diagnosis(NamedTuple):
    """The state of the log; ``settings`` are those of each recent pod."""

    server: str
    round_trip_s: float
    ahead_s: float
    is_encrypted: bool
    settings: Sequence[tuple[str, str]]


class Link:
    """A connection that opens on demand, for one thread at a time.

    A forked process never uses or closes its parent's connection. Without ``writes``, a standby
    will do.
    """

    def __init__(self, url: str, pod: str, *, writes: bool = True) -> None:
        self._url = url
        self._pod, self._version = pod, version("kp-middleware")
        self._name = f"kp-middleware/{self._version} {pod}"[:63]
        self._lock = threading.Lock()  # at exit, another thread hands over
        self._session = "read-write" if writes else "any"
        self._connection: Connection | None = None
        self._deadline_s = _DEADLINE_S
        self.address = address(url)
        _links.add(self)

    @contextmanager
    def session(self, *, needs_schema: bool = True) -> Iterator[Connection]:
        """Lend the connection for statements that take up to six seconds, or less in a `hurry`.

        Raises `SharedLogError` if they fail; the next session reconnects.
        """
        psycopg = load()
        if not self._lock.acquire(timeout=self._deadline_s):
            raise SharedLogError(self.address, "is used by another thread", _WAIT)
        try:
            connection = self._connect(psycopg, needs_schema=needs_schema)
            with _deadline(connection, self._deadline_s):
                yield connection
        except psycopg.Error as error:
            passed = isinstance(error, psycopg.DataError | psycopg.IntegrityError)
            if not passed:
                self.close()
            raise self._to_error(error.sqlstate or "", str(error).lower()) from None
        except BaseException:
            self.close()
            raise
        finally:
            self._lock.release()

    @contextmanager
    def transaction(self) -> "Iterator[Transaction]":
        """Begin a transaction that the server ends if this process is frozen or slow."""
        with (
            self.session() as connection,
            connection.pipeline() as pipeline,
            connection.transaction(),
        ):
            connection.execute(LIMITS)
            yield Transaction(connection, pipeline)

    def ask(self, query: str, values: Values = ()) -> Rows:
        with self.session() as connection:
            cursor = connection.execute(query, values)
            return cursor.fetchall() if cursor.description else []

    def report(self, settings: str, place: int, unshipped: int, since: str | None) -> None:
        """Report the state of this pod to the others."""
        self.ask(_BEAT, (self._pod, self._version, settings, place, unshipped, since))

    def migrate(self) -> bool:
        """Create the schema unless it exists; return whether it was created."""
        with self.session(needs_schema=False) as connection, connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(hashtext('kp-middleware'))")
            row = connection.execute("SELECT to_regclass('kp.meta') IS NOT NULL").fetchone()
            if row == (True,):
                return False
            connection.execute(schema_sql())
            connection.execute("UPDATE kp.meta SET value = %s WHERE key = 'schema'", (str(SCHEMA),))
        return True

    def status(self) -> str:
        [(server, rows, pods, newest_s, waiting)] = self.ask(_STATUS)
        newest = "" if newest_s is None else f"; newest row {newest_s:,.0f} s old"
        seen = f"{pods:,} {'pod' if pods == 1 else 'pods'} in the last 2 minutes"
        left = f"; {waiting:,} waiting to be sent" if waiting else ""
        return f"PostgreSQL {server.split()[0]}, {rows:,} rows, {seen}{newest}{left}"

    def paces(self) -> Rows:
        """Return the rate limits: registry, agent, pace and stops, packed."""
        return self.ask("SELECT registry, agent, pace, stops FROM kp.paces")

    def diagnose(self) -> Diagnosis:
        """Connect, write, roll back, and measure the round trip."""
        took_s = []
        with self.session() as connection:
            with connection.transaction(force_rollback=True):
                connection.execute(LIMITS)
                connection.execute(_TRY)
            for _ in range(3):
                began_s = time.perf_counter()
                connection.execute("SELECT 1").fetchall()
                took_s.append(time.perf_counter() - began_s)
            [(server, now, is_encrypted)] = connection.execute(_SELF).fetchall()
            ahead_s = now - time.time()
            pods = connection.execute(_SETTINGS).fetchall()
        return Diagnosis(server, min(took_s), ahead_s, is_encrypted, pods)

    def delete(self, trace_id: str) -> bool:
        """Delete a run's document and vector on all hosts; return whether it existed."""
        key = {"id": trace_id}
        with self.transaction() as opened:
            _, found = opened.read((LOCK, ()), (_EXISTS, key))
            for statement in _DELETE if found else ():
                opened.connection.execute(statement, key)
        return bool(found)

    def lift_stops(self) -> bool:
        """Let all hosts retry refused API keys; return whether there was one."""
        return bool(self.ask(_LIFT))

    @property
    def is_open(self) -> bool:
        return self._connection is not None and not self._connection.closed

    def hurry(self) -> None:
        """Wait no longer than a moment from now on: the program ends."""
        self._deadline_s = 0.5

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()

    def detach(self) -> None:
        """Detach from the connection in a forked child: closing would end the parent's session."""
        self._lock = threading.Lock()
        connection, self._connection = self._connection, None
        if connection is not None:
            _left_to_the_parent.append(connection)
            with suppress(Exception):
                nothing = os.open(os.devnull, os.O_RDWR)
                os.dup2(nothing, connection.fileno())
                os.close(nothing)

    def _to_error(self, state: str, message: str) -> SharedLogError:
        """Convert an error of psycopg, whose message may quote the URL's password."""
        problem, remedy = f"cannot be used (SQLSTATE {state})", _WAIT
        if not state:  # libpq's words may be in the server's language
            problem = "cannot be reached, refuses this login, or closed the connection"
            remedy = f"{_WAIT}; if it persists, {_CORRECT}"
        for states, phrases, *words in _CAUSES:
            if re.search(f"^({states})" if state else phrases, state or message):
                problem, remedy = words
                break
        error = SharedLogError(self.address, problem, remedy)
        error.sqlstate = state or None
        return error

    def _connect(self, psycopg: Any, *, needs_schema: bool) -> Connection:
        if self._connection is not None and not self._connection.closed:
            return self._connection
        if self._deadline_s < _DEADLINE_S:
            raise SharedLogError(self.address, "is not connected", _WAIT)
        connection: Connection = psycopg.connect(
            self._url,
            autocommit=True,
            prepare_threshold=None,  # with pgbouncer, another session may have them
            connect_timeout=3,
            target_session_attrs=self._session,
            application_name=self._name,
        )
        self._connection = connection
        if needs_schema:
            with _deadline(connection, self._deadline_s):
                rows = connection.execute("SELECT key, value FROM kp.meta").fetchall()
            versions = {
                key: int(value) for key, value in rows if key in {"schema", "oldest_client"}
            }
            if versions.get("schema", 0) < SCHEMA:
                raise SharedLogError(self.address, "has an older schema", f"run {_MIGRATE}")
            if versions.get("oldest_client", 0) > SCHEMA:
                raise SharedLogError(self.address, "has a newer schema", "upgrade kp-middleware")
        return connection


def schema_sql() -> str:
    return files("kp_middleware.shared_log").joinpath("0001.sql").read_text("utf-8")


def load() -> Any:
    try:
        import psycopg
    except ImportError:
        raise MissingExtraError("fleet") from None
    return psycopg


@contextmanager
def _deadline(connection: Connection, seconds: float) -> Iterator[None]:
    """Shut the socket down at the deadline: a silent proxy keeps TCP alive forever."""
    duplicate = socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM)

    def shut_down() -> None:
        with suppress(OSError):
            duplicate.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, shut_down)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        duplicate.close()


_links: Final[weakref.WeakSet[Link]] = weakref.WeakSet()
_left_to_the_parent: Final[list[Connection]] = []


def _detach_all() -> None:
    for link in list(_links):
        link.detach()


at_fork(after_in_child=_detach_all)
