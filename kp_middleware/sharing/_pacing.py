"""The pace of an agent for all hosts, in PostgreSQL."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any, Final

from kp_middleware.errors import KnowledgePulseError
from kp_middleware.rate_limit import Pace
from kp_middleware.sharing._link import Connection, Link, bounded

_NEW: Final[Mapping[str, Any]] = asdict(Pace())
_BEGIN: Final = """
    INSERT INTO kp.paces (registry, agent, pace) VALUES (%s, %s, '') ON CONFLICT DO NOTHING
"""
_LIFT: Final = "UPDATE kp.paces SET stops = '{}' WHERE stops <> '{}'"
_LOCK: Final = """
    SELECT pace, stops, extract(epoch FROM clock_timestamp())::float8
    FROM kp.paces WHERE registry = %s AND agent = %s FOR UPDATE
"""


class PaceOfAll:
    """The rate limit state of one agent, for the processes of all hosts.

    Its clock is the server's: each change measures how far it is from ours.
    """

    def __init__(self, link: Link, *, registry: str, agent_id: str | None, key_hash: str) -> None:
        self._link = link
        self._row = (registry, agent_named(agent_id, key_hash))
        self._key_hash = key_hash
        self._ahead_s = 0.0

    def clock(self) -> float:
        """Return the server's time in epoch seconds, as far as it is known."""
        return time.time() + self._ahead_s

    def change(
        self,
        change: Callable[[Pace | None], Pace],
        *,
        patience_s: float | None = None,  # noqa: ARG002 - the link has a deadline of its own
    ) -> Pace:
        """Apply a function to the state in one transaction, and return the new state.

        Raises:
            TimeoutError: If the shared log cannot be asked: then nothing is sent. It is never
                `DatabaseError`, or each process would send at a pace of its own.
        """
        try:
            return self._link.exchange(lambda connection: self._changed(connection, change))
        except KnowledgePulseError as error:
            raise TimeoutError(str(error)) from None

    def look(self) -> Pace | None:
        """Return None: there is no reading without asking."""

    def was_damaged(self) -> bool:
        """Return False: no row is set aside."""
        return False

    def _changed(self, connection: Connection, change: Callable[[Pace | None], Pace]) -> Pace:
        with bounded(connection) as pipeline:
            connection.execute(_BEGIN, self._row)
            locked = connection.execute(_LOCK, self._row)
            pipeline.sync()
            said, kept, now = locked.fetchall()[0]
            self._ahead_s = now - time.time()
            stops = json.loads(kept)
            before = Pace(**json.loads(said)) if said else None
            if before is not None and self._key_hash in stops:
                before = replace(before, stopped_at=stops[self._key_hash])
            after = change(before)
            if after != before:
                self._write(connection, after, stops)
        return after

    def _write(self, connection: Connection, pace: Pace, stops: dict[str, float]) -> None:
        said = {name: value for name, value in asdict(pace).items() if value != _NEW[name]}
        stopped_at = said.pop("stopped_at", None)
        stops.pop(self._key_hash, None)
        if stopped_at is not None:
            stops[self._key_hash] = stopped_at
        connection.execute(
            "UPDATE kp.paces SET pace = %s, stops = %s WHERE registry = %s AND agent = %s",
            (json.dumps(said), json.dumps(stops), *self._row),
        )


def lift_stops_of_all(link: Link) -> bool:
    """Allow every host to try refused API keys again; return True if there was one."""
    return link.exchange(lambda connection: connection.execute(_LIFT).rowcount > 0)


def agent_named(agent_id: str | None, key_hash: str) -> str:
    """Return whose bucket it is: the agent's id, or ``key `` and the hash of its API key."""
    return f"key {key_hash}" if agent_id is None else agent_id
