"""Obstacles to sending, with times and durations; and the state of the shared log."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import reduce
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from kp_middleware import locations
from kp_middleware.errors import KnowledgePulseError, Problem, ProblemKind
from kp_middleware.instants import instant
from kp_middleware.locations import unused_default_login_reason
from kp_middleware.rate_limit import Pace, burst_at
from kp_middleware.shared_log import Link
from kp_middleware.storage import (
    AgentPace,
    Queue,
    SharedBacklog,
    read_paces,
    unpack_agent_pace,
)

_UNITS: Final = ((1, "s"), (60, "min"), (3600, "h"))
BEING_SENT: Final = "being sent by another program; if that program was killed, retried at {}"


class Sending(NamedTuple):
    """The backlog of one registry, and how long it takes from ``next_at`` on, None for now."""

    registry: str
    waiting: int
    next_at: str | None
    takes_s: float
    busy: bool
    claimed_until: str | None  # the end of another program's claim on an item
    stopped: bool

    @classmethod
    def of(cls, queue: Queue, paces: Sequence[Pace], now: float, *, stopped: bool) -> Self:
        pace = reduce(Pace.stricter, paces, Pace())
        next_at = max(now, queue.due_at, pace.ready_at, pace.paused_until)
        last_at = max(pace.full_at, next_at) - burst_at(pace.interval_s) * pace.interval_s
        return cls(
            queue.registry,
            queue.waiting,
            instant(next_at) if next_at > now else None,
            max(0.0, last_at + queue.waiting * pace.interval_s - next_at),
            any(pace.held_until > now for pace in paces),
            queue.claimed_until if (queue.claimed_until or "") > instant(now) else None,
            stopped,
        )

    def as_row(self) -> dict[str, Any]:
        return self._asdict() | {"takes_s": round(self.takes_s), "in_words": self.in_words()}

    def in_words(self) -> str:
        if self.stopped:
            return f"{self.waiting:,} {'waits' if self.waiting == 1 else 'wait'} until you fix it"
        busy = "a program is sending; " if self.busy else ""
        if self.claimed_until is not None:
            busy = f"one is {BEING_SENT.format(self.claimed_until)}; "
        return f"{busy}{self.duration_in_words()}"

    def duration_in_words(self) -> str:
        takes = "takes" if self.waiting == 1 else "take"
        unit_s, unit = next((unit for unit in _UNITS if self.takes_s <= 90 * unit[0]), _UNITS[-1])
        return f"{self.waiting:,} {takes} about {max(1, math.ceil(self.takes_s / unit_s)):,} {unit}"


class Pause(NamedTuple):
    """A registry that accepts nothing until an epoch second; None: until the user fixes it."""

    pace: Pace
    until: float | None
    sending: Sending
    problem: Problem

    def in_words(self) -> str:
        pace, sending, facts = self.pace, self.sending, []
        if pace.tries:
            facts.append(f"since {instant(pace.problem_since)[:19]}Z")
            facts.append("tried once" if pace.tries == 1 else f"tried {pace.tries:,} times")
        if self.until is None:
            facts.append("paused until you fix it")
        elif sending.next_at is not None:
            facts.append(f"next at {sending.next_at[:19]}Z if a program is running then")
        else:
            facts.append("next as soon as a program records")
        then = "" if sending.stopped else f"; {sending.duration_in_words()} then"
        return f"nothing is sent to {sending.registry} ({', '.join(facts)}): {self.problem}{then}"

    def as_row(self) -> dict[str, Any]:
        return {
            "registry": self.sending.registry,
            "until": None if self.until is None else instant(self.until),
            "refused": self.until is None,
            "problem": str(self.problem.kind),
            "in_words": str(self.problem),
            "since": instant(self.pace.problem_since) if self.pace.tries else None,
            "tries": self.pace.tries,
            "next_at": self.sending.next_at,
        }


class Obstacles(NamedTuple):
    """The obstacles to sending the runs of one file that this machine knows of."""

    sending: Sequence[Sending]
    pauses: Sequence[Pause]
    login: str | None

    def in_words(self) -> list[str]:
        sentences = (self.login, *(pause.in_words() for pause in self.pauses))
        return [sentence for sentence in sentences if sentence is not None]

    def problem_at(self, registry: str) -> str | None:
        for pause in self.pauses:
            if pause.sending.registry.rstrip("/") == registry.rstrip("/"):
                return pause.problem.description
        return None


def find_obstacles(
    backlog: Sequence[Queue], db: Path, shared: Sequence[AgentPace] = ()
) -> Obstacles:
    """Read the rate limits, those of a shared log if there is one, and the login."""
    now = time.time()
    rows = shared or [row for path in locations.pacing_files(db) for row in read_paces(path)]
    pauses: list[Pause] = []
    sending: list[Sending] = []
    for queue in backlog:
        ours = [row for row in rows if row.registry.rstrip("/") == queue.registry.rstrip("/")]
        found = [*_pauses(ours, now)]
        stopped = any(until is None for _, until in found)
        sending.append(Sending.of(queue, [row.pace for row in ours], now, stopped=stopped))
        for pace, until in found:
            unknown = ProblemKind.DEAD_KEY if until is None else ProblemKind.OTHER
            problem = Problem.parse(pace.problem or str(unknown))
            pauses.append(Pause(pace, until, sending[-1], problem))
    return Obstacles(sending, pauses, unused_default_login_reason())


def _pauses(rows: Sequence[AgentPace], now: float) -> Iterator[tuple[Pace, float | None]]:
    """Yield the pauses of one registry, except those ended by a later answer."""
    last_at = max((row.pace.noted_at for row in rows), default=0.0)
    for row in rows:
        pace = row.pace
        if pace.paused_until > now or (pace.failures and pace.noted_at >= last_at):
            yield pace, pace.paused_until
        accepted_at = max(  # when the registry last accepted another key of this agent
            other.pace.noted_at if other.pace.answering else 0.0
            for other in rows
            if other.agent == row.agent or {other.agent[:4], row.agent[:4]} == {"key "}
        )
        if any(accepted_at <= refused_at for refused_at in row.stops.values()):
            yield pace, None


def shared_paces(link: Link) -> list[AgentPace]:
    try:
        return [unpack_agent_pace(*row) for row in link.paces()]
    except KnowledgePulseError:
        return []


def shared_log_as_row(
    url: str | None, unshared: SharedBacklog
) -> tuple[dict[str, Any] | None, list[AgentPace]]:
    """Return the state of the shared log, None if no run waits for one, and its rate limits."""
    address = state = problem = None
    paces: list[AgentPace] = []
    if url is not None:
        with closing(Link(url, "status", writes=False)) as link:
            address = link.address  # without the password
            try:
                state = link.status()
                paces = shared_paces(link)
            except KnowledgePulseError as error:
                problem = str(error)
    elif unshared.since is None:
        return None, paces
    words = problem or (f"{address}: {state}" if url else "not set here: set KP_SHARED")
    row = {"url": address, "state": state, "problem": problem, **unshared._asdict()}
    return {**row, "in_words": words}, paces
