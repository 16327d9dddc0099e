"""The rate limit that all processes of a user share, stored in one file."""

import json
import logging
import math
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from kp_middleware.database import (
    LOCKED,
    fork_lock,
    is_damage,
    open_to_write,
    primary_code,
    transaction,
)
from kp_middleware.errors import DatabaseError, Problem, ProblemKind
from kp_middleware.outbox_items import lease_holder
from kp_middleware.rate_limit import LocalPace, Pace, PaceChange, pack_pace, unpack_pace
from kp_middleware.shared_log import PostgresPace
from kp_middleware.storage._maintenance import integrity_of

logger = logging.getLogger("kp_middleware")

_REMEDY: Final = "make it writable for you, or name another folder with XDG_STATE_HOME"
_PATIENCE_S: Final = 5.0
_SCHEMA_VERSION: Final = 6
_SCHEMA: Final = """
    CREATE TABLE IF NOT EXISTS paces (
      registry TEXT NOT NULL, -- its URL
      agent    TEXT NOT NULL, -- its id, or 'key ' and the hash of its API key
      pace     TEXT NOT NULL, -- a JSON object: what differs from a new `Pace`
      stops    TEXT NOT NULL, -- a JSON object: key hash → when that key was refused
      PRIMARY KEY (registry, agent)
    ) STRICT, WITHOUT ROWID
"""
_ROWS: Final = "SELECT registry, agent, pace, stops FROM paces"
_DELETE_OLD: Final = "DELETE FROM paces WHERE stops = '{}' AND coalesce(pace ->> 'noted_at', 0) < ?"
_LIFT: Final = "UPDATE paces SET stops = '{}' WHERE stops <> '{}'"
_WRITE: Final = "INSERT OR REPLACE INTO paces (registry, agent, pace, stops) VALUES (?, ?, ?, ?)"


class AgentPace(NamedTuple):
    registry: str
    agent: str  # its id, or ``key `` and the hash of its API key
    pace: Pace  # without a stop
    stops: Mapping[str, float]  # when each refused API key was refused, by its hash


class PacingTable:
    def __init__(
        self,
        path: Path,
        *,
        registry: str,
        agent_id: str | None,
        key_hash: str,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._path = path
        self._row_key = (registry, f"key {key_hash}" if agent_id is None else agent_id)
        self._key_hash = key_hash
        self._patience_s = patience_s

    def change(
        self, change: Callable[[Pace | None], Pace], *, patience_s: float | None = None
    ) -> Pace:
        """Apply a function to the state in one transaction, and return the new state.

        Raises:
            TimeoutError: If another program keeps the file locked, or this one forks for long.
            DatabaseError: If the file cannot be used; a damaged one is set aside, and the next
                call creates a new one.
        """
        busy_s = self._patience_s if patience_s is None else patience_s
        with fork_lock:  # outside of `try`: its own `TimeoutError` is not about the file
            try:
                with closing(open_to_write(self._path.expanduser(), busy_s=busy_s)) as connection:
                    self._prepare(connection)
                    with transaction(connection):
                        return self._changed(connection, change)
            except (sqlite3.Error, OSError, RuntimeError) as error:  # RuntimeError: no home folder
                if primary_code(error) in LOCKED:
                    locked = f"{self._path} is locked by another program: close it"
                    raise TimeoutError(locked) from error
                problem, remedy = "cannot be used", _REMEDY
                if is_damage(error):
                    problem, remedy = "is damaged", "remove it"
                    with suppress(sqlite3.Error, OSError):
                        _rename_damaged(self._path.expanduser())
                detail = getattr(error, "strerror", error)
                raise DatabaseError(self._path, f"{problem} ({detail})", remedy) from error

    def read(self) -> Pace | None:
        """Return the state without writing, for example from a full disk, or None."""
        for registry, agent, pace, stops in read_paces(self._path):
            if (registry, agent) == self._row_key:
                return replace(pace, stopped_at=stops.get(self._key_hash, -math.inf))
        return None

    def _prepare(self, connection: sqlite3.Connection) -> None:
        # Not WAL: home folders may be on network drives. FULL: spent requests survive a power cut.
        connection.execute("PRAGMA synchronous = FULL")
        version = _version(connection)
        if version > _SCHEMA_VERSION:
            problem = f"has schema {version}, from a newer kp-middleware"
            raise DatabaseError(self._path, problem, "upgrade kp-middleware")
        if version < _SCHEMA_VERSION:
            with transaction(connection):  # a second process waits here, then has nothing to do
                connection.execute(_SCHEMA)
                connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")

    def _changed(
        self, connection: sqlite3.Connection, change: Callable[[Pace | None], Pace]
    ) -> Pace:
        sql = "SELECT pace, stops FROM paces WHERE registry = ? AND agent = ?"
        row = connection.execute(sql, self._row_key).fetchone()
        before = unpack_pace(row[0], row[1], self._key_hash) if row else None
        stops = row[1] if row else "{}"
        after = change(before)
        if before is None:
            connection.execute(_DELETE_OLD, (after.noted_at - 30 * 86_400.0,))  # a month
        if after != before:
            connection.execute(_WRITE, (*self._row_key, *pack_pace(after, stops, self._key_hash)))
        return after


def _rename_damaged(path: Path) -> None:
    """Rename a damaged file, or each trace file would fall back to its own rate limit."""
    with closing(open_to_write(path)) as connection:
        if integrity_of(connection) == "sound":
            return  # another process was first
    aside = path.with_name(f"{path.name}.corrupt-{time.time():.0f}")
    path.replace(aside)
    logger.warning("%s was damaged and is now %s: a new file is started", path, aside)


def read_paces(path: Path) -> list[AgentPace]:
    """Read all rows of a file without writing; return an empty list if it cannot be read."""
    with suppress(sqlite3.Error, OSError, RuntimeError):
        uri = f"{path.expanduser().resolve().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=0.2)) as connection:
            return [unpack_agent_pace(*row) for row in connection.execute(_ROWS)]
    return []


def unpack_agent_pace(registry: str, agent: str, pace: str, stops: str) -> AgentPace:
    return AgentPace(registry, agent, unpack_pace(pace, "{}", ""), json.loads(stops))


def lift_stops(path: Path) -> bool:
    """Let every refused API key be tried again; return True if there was one."""
    try:
        path = path.expanduser()
        if not path.exists():
            return False
        with closing(sqlite3.connect(path, timeout=_PATIENCE_S)) as connection, connection:
            if _version(connection) != _SCHEMA_VERSION:
                return False
            return connection.execute(_LIFT).rowcount > 0
    except (sqlite3.Error, OSError, RuntimeError) as error:
        problem = f"cannot be changed to retry the API key ({error})"
        raise DatabaseError(path, problem, "make it writable for you, or remove it") from error


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


_LOOK_AGAIN_S: Final = 0.5
_LONG_S: Final = 600.0
_HOLD_S: Final = 30.0  # a program that has sent will soon send more, unless it exits


class SharedPace(LocalPace):
    """One rate limit for all processes, of which one sends at a time. No method raises.

    Each request is written to the file before it is made; if no file can be used, nothing is sent.
    If ``table`` cannot be used, ``fallback`` is, next to the trace file, which must be writable
    anyway. A process that is silent for ``longest_request_s`` plus 30 s loses its turn.
    """

    def __init__(
        self,
        table: PacingTable | PostgresPace,
        *,
        longest_request_s: float,
        fallback: PacingTable | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(Pace(), clock)
        self._table = table
        self._fallback = fallback
        self._lease_s = longest_request_s + 30.0
        self._holder = lease_holder()
        self._known: Pace | None = None
        self._unsaved_pace: Pace | None = None
        self._unsaved_changes: list[PaceChange] = []
        self._warned: set[str] = set()

    @property
    def problem(self) -> Problem:
        pace = self._known or Pace()
        # another key of this agent may have been accepted since this one was refused
        unknown = ProblemKind.DEAD_KEY if pace.stopped_at > -math.inf else ProblemKind.OTHER
        return Problem.parse(pace.problem or str(unknown))

    def take(self) -> float:
        pace = self._change(self._taken)
        if pace is None:
            return _LOOK_AGAIN_S
        if pace.holder == self._holder:
            return 0.0
        now = self._clock()
        wait_s = pace.wait_s(now)
        if wait_s > _LONG_S:
            how_long = "nothing is sent" if wait_s == math.inf else f"no sending for {wait_s:.0f} s"
            self._warn_once("long", "%s: %s", how_long, self.problem)
        return wait_s or min(max(pace.held_until - now, 0.01), _LOOK_AGAIN_S)

    def spend(self) -> Pace | None:
        pace = self._change(self._spent)
        return pace if pace and pace.holder == self._holder else None

    def settle(self, answer: PaceChange, /) -> float:
        """Apply the answer, later if the file is locked; return the seconds to the next request."""
        settled = partial(self._settled, answer)
        pace, now = self._change(settled), self._clock()
        if pace is None:
            self._unsaved_changes.append(settled)
            pace = answer(self._known or Pace(), now)
        wait_s = pace.wait_s(now)
        if wait_s > _LONG_S:
            self._warned.add("long")  # the sender logs the registry's reason
        return wait_s

    def settle_and_release(self, answer: PaceChange, /) -> None:
        # If the file is locked, the turn expires, and the request counts as unanswered.
        self._change(
            lambda pace, now: self._released(self._settled(answer, pace, now), now, ended=True),
            patience_s=0.3,
        )

    def release(self, *, ended: bool = False) -> None:
        if self._known and (ended or self._known.holder == self._holder):
            self._change(partial(self._released, ended=ended))  # else the turn expires

    def _change(self, change: PaceChange, *, patience_s: float | None = None) -> Pace | None:
        """Change the shared state; return None if no file can be used now."""
        update = partial(self._after, change)
        try:
            try:
                pace = self._table.change(update, patience_s=patience_s)
            except DatabaseError as error:
                if not is_damage(error):
                    raise
                self._unsaved_pace = self._known or Pace().without_burst(self._clock())
                pace = self._table.change(update, patience_s=patience_s)
        except TimeoutError as error:
            self._warn_once("locked", "nothing is sent for now: %s", error)
            return None
        except DatabaseError as error:
            if self._fallback is None:
                self._warn_once("unusable", "nothing is sent for now: %s", error)
                return None
            self._warn_once(
                "fallback", "the rate limit state is stored next to the trace file: %s", error
            )
            self._unsaved_pace = self._unsaved_pace or self._known or self._table.read()
            self._table, self._fallback = self._fallback, None
            return self._change(change, patience_s=patience_s)
        self._known, self._unsaved_pace, self._unsaved_changes = pace, None, []
        return pace

    def _after(self, change: PaceChange, before: Pace | None) -> Pace:
        now = self._clock()
        pace = before or self._known or Pace()  # if the file was removed, use its last known state
        if self._unsaved_pace is not None:
            pace = self._unsaved_pace if before is None else before.stricter(self._unsaved_pace)
        pace = pace.plausible(now)
        pace = replace(pace, held_until=min(pace.held_until, now + self._lease_s))
        for settled in self._unsaved_changes:
            pace = settled(pace, now)
        after = change(pace, now)
        return after if after == before else replace(after, noted_at=now)

    def _taken(self, pace: Pace, now: float) -> Pace:
        if pace.holder not in {None, self._holder} and pace.held_until > now:
            return pace
        if pace.holder != self._holder:
            pace = pace.answer_lost()
        if pace.wait_s(now) > 0:
            return self._free(pace, now)
        return replace(pace, holder=self._holder, held_until=now + self._lease_s)

    def _spent(self, pace: Pace, now: float) -> Pace:
        taken = self._taken(pace, now)
        return taken.spent(now) if taken.holder == self._holder else taken

    def _settled(self, answer: PaceChange, before: Pace, now: float) -> Pace:
        after = answer(before, now)
        if before.holder == self._holder:
            return replace(after, held_until=now + self._lease_s)
        return replace(after, asked_at=before.asked_at)  # another process's request

    def _released(self, pace: Pace, now: float, *, ended: bool = False) -> Pace:
        if pace.holder not in {None, self._holder}:
            return pace
        if ended:
            return replace(pace, holder=None, held_until=-math.inf)
        return self._free(pace, now) if pace.holder else pace

    def _free(self, pace: Pace, now: float) -> Pace:
        return replace(pace, holder=None, held_until=min(pace.held_until, now + _HOLD_S))

    def _warn_once(self, kind: str, message: str, *args: object) -> None:
        logger.log(logging.DEBUG if kind in self._warned else logging.WARNING, message, *args)
        self._warned.add(kind)
