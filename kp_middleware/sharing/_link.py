"""One connection to PostgreSQL: its deadlines, forks, and errors in words without the password."""

import os
import re
import socket
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
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
"""The one lock of the log: who holds it decides, and appends."""

LIMITS: Final = """
    SELECT set_config('idle_in_transaction_session_timeout', '3000', true),
           set_config('lock_timeout', '4000', true), set_config('statement_timeout', '5000', true)
"""
"""Limits by which the server ends a transaction."""

_URL: Final = re.compile(
    r"postgres(ql)?://([^/?#@]*@)?"
    r"(?P<place>([\w.%-]*|\[[\da-f:]+\])(:\d+)?(,([\w.%-]*|\[[\da-f:]+\])(:\d+)?)*(/[^/?#@]*)?)"
    r"(\?[^@]*)?",
    re.IGNORECASE,
)
_DEADLINE_S: Final = 6.0
_CONNECT_S: Final = 3
_MIGRATE: Final = "kp-middleware shared migrate"
_WAIT: Final = "programs that record try again by themselves"
_CORRECT: Final = "correct KP_SHARED"
_BY_STATE: Final = {
    "28": ("refuses this user or password", _CORRECT),
    "3D": ("has no database of this name", _CORRECT),
    "3F": ("has no schema kp", f"a person runs {_MIGRATE}"),
    "42P01": ("has no schema kp", f"a person runs {_MIGRATE}"),
    "42501": ("does not let this role do it", "grant it what docs/fleet.md lists"),
    "53300": ("has too many connections", _WAIT),
    "57P03": ("is starting or stopping", _WAIT),
    "25006": ("is read-only, a standby", "name the primary as well in KP_SHARED"),
    "53100": ("has a full disk", "make room there"),
    "55P03": ("is locked by another program", _WAIT),
    "57014": ("takes too long", _WAIT),
}
_BY_PHRASE: Final = {  # libpq has no code for what fails before a session begins
    "too many": _BY_STATE["53300"],
    "password": _BY_STATE["28"],
    "authentication": _BY_STATE["28"],
    "pg_hba": _BY_STATE["28"],
    "certificate": ("has a certificate that is not trusted", "correct sslrootcert in KP_SHARED"),
    'role "': _BY_STATE["28"],
    "does not exist": _BY_STATE["3D"],
    "starting up": _BY_STATE["57P03"],
    "shutting down": _BY_STATE["57P03"],
    "refused": ("cannot be reached (connection refused)", _WAIT),
    "no such file": ("cannot be reached (nothing listens there)", _WAIT),
    "resolve": ("has a host name that is not known here", _CORRECT),
    "translate": ("has a host name that is not known here", _CORRECT),
    "ssl": ("cannot be spoken to by TLS", "correct sslmode in KP_SHARED"),
    "read-only": _BY_STATE["25006"],
    "read-write": _BY_STATE["25006"],
    "invalid": ("is named by a URL that is not valid", _CORRECT),
    "timeout": ("does not answer in time", _WAIT),
    "timed out": ("does not answer in time", _WAIT),
}


def shown(url: str) -> str:
    """Return a URL as it may be shown: hosts and database, where it is certain which they are.

    >>> shown("postgresql://me:secret@db.internal:5433/agents?sslmode=require")
    'postgresql://db.internal:5433/agents'
    >>> shown("postgresql://me:not/quoted@db.internal/agents")
    'postgresql://…'
    """
    found = _URL.fullmatch(url)
    return f"postgresql://{found['place'] if found else '…'}"


class Transaction(NamedTuple):
    """An open transaction: what it executes goes to the server together, at its end."""

    connection: Connection
    pipeline: "psycopg.Pipeline"

    def read(self, *asked: tuple[str, Values]) -> list[Rows]:
        """Return the rows of some queries, all asked in one round trip.

        Its sync matters to whoever holds a lock: between two statements of a pipeline no session
        counts as idle, and the server would not end one of a frozen process.
        """
        cursors = [self.connection.execute(query, values, binary=True) for query, values in asked]
        self.pipeline.sync()
        return [cursor.fetchall() for cursor in cursors]


class Link:
    """A connection that opens on demand, for one thread at a time.

    A process that was forked never uses or closes what its parent opened. A standby will do unless
    it ``writes``.
    """

    def __init__(self, url: str, pod: str, *, writes: bool = True) -> None:
        self._url = url
        self._name = f"kp-middleware/{version('kp-middleware')} {pod}"[:63]
        self._lock = threading.Lock()  # at its end, a program hands over from another thread
        self._session = "read-write" if writes else "any"
        self._connection: Connection | None = None
        self.shown = shown(url)
        _links.add(self)

    @contextmanager
    def session(self, *, needs_schema: bool = True) -> Iterator[Connection]:
        """Lend the connection for some statements, which have six seconds.

        Raises:
            SharedLogError: If that failed; the connection is opened anew the next time.
        """
        psycopg = load()
        if not self._lock.acquire(timeout=_DEADLINE_S):
            raise SharedLogError(self.shown, "is used by another thread", _WAIT)
        try:
            connection = self._opened(psycopg, needs_schema=needs_schema)
            with _deadline(connection):
                yield connection
        except psycopg.Error as error:
            passed = isinstance(error, psycopg.DataError | psycopg.IntegrityError)
            if not passed:
                self.close()
            # without the cause: it may quote the password
            raise _in_words(self.shown, error.sqlstate, str(error)) from None
        except BaseException:
            self.close()
            raise
        finally:
            self._lock.release()

    @contextmanager
    def transaction(self) -> "Iterator[Transaction]":
        """Begin a transaction that the server ends where this process is frozen or slow."""
        with (
            self.session() as connection,
            connection.pipeline() as pipeline,
            connection.transaction(),
        ):
            connection.execute(LIMITS)
            yield Transaction(connection, pipeline)

    def ask(self, query: str, values: Values = ()) -> Rows:
        """Run one statement by itself; return its rows."""
        with self.session() as connection:
            cursor = connection.execute(query, values)
            return cursor.fetchall() if cursor.description else []

    @property
    def is_open(self) -> bool:
        """Whether the session of the last use goes on, as far as is known."""
        return self._connection is not None and not self._connection.closed

    def close(self) -> None:
        """Close the connection until the next use."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()

    def leave_to_the_parent(self) -> None:
        """Forget the connection in a forked child: to close it would end the parent's session."""
        self._lock = threading.Lock()
        connection, self._connection = self._connection, None
        if connection is not None:
            _of_the_parent.append(connection)
            with suppress(Exception):
                nothing = os.open(os.devnull, os.O_RDWR)
                os.dup2(nothing, connection.fileno())
                os.close(nothing)

    def _opened(self, psycopg: Any, *, needs_schema: bool) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(
                self._url,
                autocommit=True,
                prepare_threshold=None,  # behind pgbouncer another session would have them
                connect_timeout=_CONNECT_S,
                target_session_attrs=self._session,
                application_name=self._name,
            )
            if needs_schema:
                with _deadline(self._connection):
                    self._check_schema(self._connection)
        return self._connection

    def _check_schema(self, connection: Connection) -> None:
        rows = connection.execute("SELECT key, value FROM kp.meta").fetchall()
        told = {key: int(value) for key, value in rows if key in {"schema", "oldest_client"}}
        if told.get("schema", 0) < SCHEMA:
            raise SharedLogError(self.shown, "has an older schema", f"a person runs {_MIGRATE}")
        if told.get("oldest_client", 0) > SCHEMA:
            raise SharedLogError(self.shown, "has a newer schema", "upgrade kp-middleware")


def _in_words(where: str, sqlstate: str | None, said: str) -> SharedLogError:
    """Return an error of psycopg in words of ours: its own may quote the URL with its password."""
    state = sqlstate or ""
    found = _BY_STATE.get(state) or _BY_STATE.get(state[:2])
    if found is None and not state:
        found = next((told for word, told in _BY_PHRASE.items() if word in said.lower()), None)
    problem, remedy = found or (f"cannot be used (SQLSTATE {state or 'unknown'})", _WAIT)
    error = SharedLogError(where, problem, remedy)
    error.sqlstate = sqlstate
    return error


def load() -> Any:
    """Import and return psycopg: on a thread of ours, while nothing forks.

    Raises:
        MissingExtraError: If it is not installed.
    """
    try:
        import psycopg
    except ImportError:
        raise MissingExtraError("fleet") from None
    return psycopg


@contextmanager
def _deadline(connection: Connection) -> Iterator[None]:
    """Shut the socket down when the time is over: a silent proxy keeps TCP alive for ever."""
    twin = socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM)
    timer = threading.Timer(_DEADLINE_S, _shut_down, [twin])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        twin.close()


def _shut_down(twin: socket.socket) -> None:
    with suppress(OSError):
        twin.shutdown(socket.SHUT_RDWR)


_links: Final[weakref.WeakSet[Link]] = weakref.WeakSet()
_of_the_parent: Final[list[Connection]] = []


def _leave_to_the_parent() -> None:
    for link in list(_links):
        link.leave_to_the_parent()


at_fork(after_in_child=_leave_to_the_parent)
