"""Obstacles to sending: since when, until when, and how long the backlog takes."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kp_middleware import locations
from kp_middleware.database import Connection
from kp_middleware.instants import instant
from kp_middleware.logins import why_login_is_unused
from kp_middleware.problems import Problem
from kp_middleware.rate_limit import INTERVAL_S, burst_at
from kp_middleware.storage import Bucket, Pause, Queue, Row, read_buckets, read_pauses, read_queues

BEING_SENT: Final = "being sent by another program, or that was killed: then again at {}"

_REFUSED: Final = (
    "has refused the API key: get another and set KP_API_KEY, or try it again with kp-middleware"
    " outbox retry --failed"
)
_PAUSED: Final = {
    "": "has asked for patience, or was in trouble: nothing to do",
    "limit": "has asked for patience: nothing to do",
    "silence": "was silent when two processes ended, and a third 429 would cost the API key:"
    " nothing to do now; kp.close(timeout_s=…) waits longer for an answer",
    "trouble": "was in trouble: if it lasts, kp-middleware doctor",
}


class Sending(NamedTuple):
    """The backlog of one registry, and how long it will take to send.

    Attributes:
        registry: Its URL.
        waiting: How many traces.
        next_at: When the next request may be made, in epoch seconds; None: now.
        takes_s: From then on, where nothing else goes wrong and a program is running.
        busy: Whether a program is sending to it.
        interval_s: At the pace that the registry has named, or the free tier's.
        claimed_until: Until when one of them is another program's to send, or None.
        stopped: Whether nothing is sent until the user acts.
    """

    registry: str
    waiting: int
    next_at: float | None
    takes_s: float
    busy: bool
    interval_s: float = INTERVAL_S
    claimed_until: str | None = None
    stopped: bool = False

    @classmethod
    def of(cls, queue: Queue, buckets: Sequence[Bucket], now: float) -> "Sending":
        """Return what waits, as far as the last request says; of several paces, the slowest."""
        ours = [one for one in buckets if one.registry.rstrip("/") == queue.registry]
        interval_s = max((one.interval_s for one in ours), default=INTERVAL_S)
        burst, claimed_until = burst_at(interval_s), queue.claimed_until or ""
        has_one_at = max((one.full_at for one in ours), default=0.0) - (burst - 1) * interval_s
        paused_until = max((one.paused_until for one in ours), default=0.0)
        next_at = max(now, queue.due_at, paused_until, has_one_at)
        full_at = max(max((one.full_at for one in ours), default=0.0), next_at)
        last_at = full_at + (queue.waiting - burst) * interval_s
        return cls(
            queue.registry,
            queue.waiting,
            next_at if next_at > now else None,
            max(0.0, last_at - next_at),
            any(one.busy_until > now for one in ours),
            interval_s,
            claimed_until if claimed_until > instant(now) else None,
        )

    def as_row(self) -> Row:
        """Return it as a row for JSON."""
        next_at = None if self.next_at is None else instant(self.next_at)
        said = {"next_at": next_at, "takes_s": round(self.takes_s), "in_words": self.in_words()}
        return self._asdict() | said

    def in_words(self) -> str:
        """Say how fast, whoever sends, and how long it takes."""
        if self.stopped:
            return f"{self.waiting:,} {'waits' if self.waiting == 1 else 'wait'} until you act"
        burst, every = burst_at(self.interval_s), f"one every {self.interval_s:.2g} s"
        pace = f"all of your programs together send {burst} at once, then {every}"
        busy = "a program is sending; " if self.busy else ""
        if self.claimed_until is not None:
            busy = f"one is {BEING_SENT.format(self.claimed_until)}; "
        return f"{busy}{pace}: {self.waiting:,} {_take(self.waiting)} {_about(self.takes_s)}"


class Obstacles(NamedTuple):
    """The obstacles to sending the runs of one file, as far as this machine knows.

    Attributes:
        sending: For each registry that something waits for.
        pauses: Those of these registries.
        login: Why the login of the reference command line is not used, or None.
    """

    sending: Sequence[Sending]
    pauses: Sequence[Pause]
    login: str | None

    def in_words(self) -> Iterator[str]:
        """Yield one sentence for each, with what to do."""
        if self.login is not None:
            yield self.login
        for pause in self.pauses:
            yield _pause_in_words(pause, self.at(pause.registry))

    def as_rows(self) -> list[Row]:
        """Return the pauses as rows for JSON."""
        return [_pause_as_row(pause, self.at(pause.registry)) for pause in self.pauses]

    def what_at(self, registry: str) -> str | None:
        """Return the last problem with one registry, without what to do; None if there is none."""
        kept = (pause.problem for pause in self.pauses if _same(pause.registry, registry))
        return next((Problem.read(problem).what for problem in kept if problem), None)

    def at(self, registry: str) -> Sending:
        """Return what waits for one registry."""
        return next(one for one in self.sending if _same(one.registry, registry))


def find_obstacles(connection: Connection, db: Path) -> Obstacles:
    """Read the outbox of a file, the rate limits beside it, and the login."""
    now, queues, paths = time.time(), read_queues(connection), locations.pacing_files(db)
    buckets = [bucket for path in paths for bucket in read_buckets(path)]
    sending = [Sending.of(queue, buckets, now) for queue in queues]
    waited_for = {one.registry for one in sending}
    pauses = [
        pause
        for path in paths
        for pause in read_pauses(path, now=now)
        if pause.registry.rstrip("/") in waited_for
    ]
    stopped = {pause.registry.rstrip("/") for pause in pauses if pause.until is None}
    sending = [one._replace(stopped=one.registry in stopped) for one in sending]
    return Obstacles(sending, pauses, why_login_is_unused())


def _pause_in_words(pause: Pause, sending: Sending) -> str:
    """Say what pauses sending, since when, how many attempts, when the next, and the remedy."""
    if not pause.problem:
        if pause.until is None:
            return f"nothing is sent: {pause.registry} {_REFUSED}"
        until = instant(pause.until)
        return f"nothing is sent until {until}: {pause.registry} {_PAUSED[pause.paused_by]}"
    problem = Problem.read(pause.problem)
    told = ", ".join(_when(pause, sending))
    if sending.stopped:
        return f"nothing is sent to {pause.registry} ({told}): {problem}"
    then = f"{sending.waiting:,} {_take(sending.waiting)} {_about(sending.takes_s)} then"
    return f"nothing is sent to {pause.registry} ({told}): {problem}; {then}"


def _pause_as_row(pause: Pause, sending: Sending) -> Row:
    """Return a pause as a row for JSON."""
    problem = Problem.read(pause.problem) if pause.problem else None
    return pause._asdict() | {
        "until": None if pause.until is None else instant(pause.until),
        "problem": None if problem is None else str(problem.kind),
        "in_words": None if problem is None else str(problem),
        "since": None if pause.since is None else instant(pause.since),
        "next_at": None if sending.next_at is None else instant(sending.next_at),
    }


def _about(seconds: float) -> str:
    """Return a duration that nobody needs exactly.

    >>> _about(0.2), _about(44.1), _about(200), _about(9000)
    ('about 1 s', 'about 45 s', 'about 4 min', 'about 3 h')
    """
    for unit_s, unit, most in ((1, "s", 90), (60, "min", 90)):
        if seconds <= most * unit_s:
            return f"about {max(1, -int(-seconds // unit_s))} {unit}"
    return f"about {-int(-seconds // 3600):,} h"


def _when(pause: Pause, sending: Sending) -> Iterator[str]:
    if pause.since is not None:
        yield f"since {_second(pause.since)}"
    yield "tried once" if pause.tries == 1 else f"tried {pause.tries:,} times"
    if pause.until is None:
        yield "not tried again until you act"
    elif sending.next_at is not None:
        yield f"next at {_second(sending.next_at)} if a program is running then"
    else:
        yield "next as soon as a program records"


def _take(count: int) -> str:
    return "takes" if count == 1 else "take"


def _second(epoch_s: float) -> str:
    return f"{instant(epoch_s)[:19]}Z"


def _same(registry: str, other: str) -> bool:
    return registry.rstrip("/") == other.rstrip("/")
