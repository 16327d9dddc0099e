"""One connection to PostgreSQL: its deadlines, forks, and errors in words without the password."""

import os
import re
import socket
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from kp_middleware.errors import MissingExtraError, SharedLogError
from kp_middleware.forks import at_fork

if TYPE_CHECKING:
    import psycopg

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

Cursor: TypeAlias = "psycopg.Cursor[tuple[Any, ...]]"

SCHEMA: Final = 1
"""The version of the schema ``kp`` that this release writes."""

_T = TypeVar("_T")
_URL: Final = re.compile(
    r"postgres(ql)?://([^/?#@]*@)?"
    r"(?P<place>([\w.%-]*|\[[\da-f:]+\])(:\d+)?(,([\w.%-]*|\[[\da-f:]+\])(:\d+)?)*(/[^/?#@]*)?)"
    r"(\?[^@]*)?",
    re.IGNORECASE,
)
_DEADLINE_S: Final = 6.0
_CONNECT_S: Final = 3
_LIMITS: Final = """
    SELECT set_config('idle_in_transaction_session_timeout', '3000', true),
           set_config('lock_timeout', '4000', true), set_config('statement_timeout', '5000', true)
"""
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

    def exchange(self, work: Callable[[Connection], _T], *, needs_schema: bool = True) -> _T:
        """Run some statements within six seconds.

        Raises:
            SharedLogError: If that failed; the connection is opened anew the next time.
        """
        psycopg = _psycopg()
        if not self._lock.acquire(timeout=_DEADLINE_S):
            raise SharedLogError(self.shown, "is used by another thread", _WAIT)
        try:
            connection = self._opened(psycopg, needs_schema=needs_schema)
            with _deadline(connection):
                return work(connection)
        except psycopg.Error as error:
            passed = isinstance(error, psycopg.DataError | psycopg.IntegrityError)
            if not passed:
                self.close()
            raise self._in_words(error) from None  # it may quote the password
        except BaseException:
            self.close()
            raise
        finally:
            self._lock.release()

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

    def _in_words(self, error: Any) -> SharedLogError:
        return in_words(self.shown, error.sqlstate, str(error))


def in_words(where: str, sqlstate: str | None, said: str) -> SharedLogError:
    """Return an error of psycopg in words of ours: its own may quote the URL with its password."""
    state = sqlstate or ""
    found = _BY_STATE.get(state) or _BY_STATE.get(state[:2])
    if found is None and not state:
        found = next((told for word, told in _BY_PHRASE.items() if word in said.lower()), None)
    problem, remedy = found or (f"cannot be used (SQLSTATE {state or 'unknown'})", _WAIT)
    error = SharedLogError(where, problem, remedy)
    error.sqlstate = sqlstate
    return error


@contextmanager
def bounded(connection: Connection) -> "Iterator[psycopg.Pipeline]":
    """Run a transaction that the server ends where this process is frozen or slow.

    Whoever holds a lock syncs the pipeline before anything else is done: between two statements of
    a pipeline, no session counts as idle.
    """
    with connection.pipeline() as pipeline, connection.transaction():
        connection.execute(_LIMITS)
        yield pipeline


def load() -> None:
    """Import psycopg: on a thread of ours, while nothing forks.

    Raises:
        MissingExtraError: If it is not installed.
    """
    _psycopg()


def _psycopg() -> Any:
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


def script() -> str:
    """Return the SQL that creates the schema."""
    return files("kp_middleware.sharing").joinpath("0001.sql").read_text("utf-8")


def migrate(link: Link) -> bool:
    """Create the schema, or leave a current one as it is; return whether it was created.

    Raises:
        SharedLogError: If it cannot be created.
    """
    return link.exchange(_created, needs_schema=False)


def _created(connection: Connection) -> bool:
    with connection.transaction():
        row = connection.execute("SELECT to_regclass('kp.meta') IS NOT NULL").fetchone()
        if row == (True,):
            return False
        connection.execute(script().encode())
        connection.execute("UPDATE kp.meta SET value = %s WHERE key = 'schema'", (str(SCHEMA),))
    return True
