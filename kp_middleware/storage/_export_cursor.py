"""The position of an exporter beside the outbox: a cursor over the runs, shared by processes."""

import json
import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from kp_middleware.database import Connection, Queries, transaction
from kp_middleware.errors import RegistryError, RegistryRejectedError
from kp_middleware.outbox_items import OutboxItem, Receipt
from kp_middleware.storage._records import Run

if TYPE_CHECKING:
    from kp_middleware.storage._history import History

EXPORT: Final = "export "  # what the keys of `meta` begin with that hold a place
_MOST_LEFT: Final = 10_000
_MOST_OF_ERROR: Final = 200
_LEASE_S: Final = 40.0
_LOOK_AGAIN_S: Final = 1.0
_AT_ONCE: Final = 200
_CANDIDATES: Final = "SELECT seq, state, decision, visibility, started_at FROM traces"


class CursorState(NamedTuple):
    """The place of an exporter: all runs up to ``until`` are done, but those in ``left``."""

    until: int
    left: tuple[int, ...] = ()
    claimed_by: str | None = None
    claimed_until: float = 0.0
    retry_at: float = 0.0
    attempts: int = 0
    sent: int = 0
    failed: int = 0
    last_error: str | None = None

    def done(self, seq: int, *, sent: int = 0, failed: int = 0) -> "CursorState":
        left = tuple(one for one in self.left if one != seq)
        counts = self.sent + sent, self.failed + failed
        return CursorState(max(self.until, seq), left, None, 0.0, 0.0, 0, *counts, self.last_error)


class ExporterStatus(NamedTuple):
    """The progress of one exporter."""

    name: str
    sent: int
    failed: int  # rejected, or tried too often
    last_error: str | None  # also if it was tried again since


class ExportCandidate(NamedTuple):
    """A run that may be for an exporter."""

    seq: int
    state: str
    decision: str | None  # ``forward`` or ``withhold``; None: not scored
    visibility: str
    started_at: str


class ExportCursor(Queries):
    """The runs that one exporter has not been given yet: an `Outbox` that all processes share."""

    def __init__(
        self,
        connection: Connection,
        name: str,
        *,
        history: "History",
        choose: Callable[[ExportCandidate], bool | None],
        prepare: Callable[[Run, str, int], OutboxItem | None],
        since: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(connection)
        self._history = history
        self._key = f"{EXPORT}{name}"
        self._choose = choose
        self._prepare = prepare
        self._since = since
        self._clock = clock
        self._claimant = f"{os.getpid()}-{os.urandom(4).hex()}"

    def claim(self, now: float, /) -> OutboxItem | None:
        while True:
            before = self._place()
            if before.retry_at > now or self._is_claimed(before, now):
                return None
            seq, place = self._next(before)
            if seq is None:
                self._move(before, place)
                return None
            document = self._history.document(seq)
            item = document and self._prepare(self._history.run(seq), document, before.attempts)
            if isinstance(item, OutboxItem):
                until = now + _LEASE_S
                place = place._replace(claimed_by=self._claimant, claimed_until=until)
                return item if self._move(before, place) else None
            self._move(before, place.done(seq))

    def next_due(self) -> float | None:
        before, now = self._place(), self._clock()
        seq, place = self._next(before)
        if seq is None:
            self._move(before, place)
            return None
        is_claimed = self._is_claimed(before, now)
        return min(before.claimed_until, now + _LOOK_AGAIN_S) if is_claimed else before.retry_at

    def sent(self, item: OutboxItem, receipt: Receipt, /) -> None:  # noqa: ARG002
        self._end(lambda place: place.done(item.trace_seq, sent=1))

    def rejected(self, item: OutboxItem, error: RegistryRejectedError, /) -> None:
        self.block(item, str(error))

    def block(self, item: OutboxItem, reason: str, /) -> None:
        """Pass a run that was tried too often."""
        self._end(lambda place: place.done(item.trace_seq, failed=1), error=reason)

    def postpone(
        self, item: OutboxItem, error: RegistryError, /, *, retry_at: float, counted: bool
    ) -> None:
        tried = item.attempts + int(counted)
        self._end(lambda place: place._replace(retry_at=retry_at, attempts=tried), error=error)

    def release(self, item: OutboxItem, /) -> None:  # noqa: ARG002
        self._end(lambda place: place)

    def retry_now(self) -> None:
        before = self._place()
        self._move(before, before._replace(retry_at=0.0))

    def _end(self, change: Callable[[CursorState], CursorState], *, error: object = None) -> None:
        """Change the place and give the claim up; do nothing if another process has it."""
        before = self._place()
        if before.claimed_by == self._claimant:
            after = change(before)._replace(claimed_by=None, claimed_until=0.0)
            if error is not None:
                after = after._replace(last_error=str(error)[:_MOST_OF_ERROR])
            self._move(before, after)

    def _is_claimed(self, place: CursorState, now: float) -> bool:
        is_ours = place.claimed_by in {None, self._claimant}
        return not is_ours and now < place.claimed_until <= now + 2 * _LEASE_S

    def _next(self, place: CursorState) -> tuple[int | None, CursorState]:
        """Return the next run for the exporter, and the place before it."""
        found, left, until = None, list[int](), place.until
        for candidate in self._candidates(place):
            wanted = self._choose(candidate)
            if wanted:
                found = candidate.seq
                left += [one for one in place.left if one >= found]
                break
            if wanted is None:
                left.append(candidate.seq)
            until = max(until, candidate.seq)
        return found, place._replace(until=until, left=tuple(left)[-_MOST_LEFT:])

    def _candidates(self, place: CursorState) -> Iterator[ExportCandidate]:
        among = f"{_CANDIDATES} WHERE seq IN (SELECT value FROM json_each(?)) ORDER BY seq"
        yield from self._all(ExportCandidate, among, (json.dumps(place.left),))
        until, after = place.until, f"{_CANDIDATES} WHERE seq > ? ORDER BY seq LIMIT ?"
        while found := self._all(ExportCandidate, after, (until, _AT_ONCE)):
            yield from found
            until = found[-1].seq

    def _place(self) -> CursorState:
        sql = "SELECT value FROM meta WHERE key = ?"
        stored = self._text(sql, (self._key,))
        if stored is None:
            before = "SELECT coalesce(max(seq), 0) FROM traces WHERE started_at < ?"
            stored = json.dumps(CursorState(self._value(before, (self._since,))))
            self._run("INSERT OR IGNORE INTO meta (key, value) VALUES (?, ?)", (self._key, stored))
            stored = self._text(sql, (self._key,)) or stored
        until, left, *rest = json.loads(stored)
        return CursorState(until, tuple(left), *rest)

    def _move(self, before: CursorState, after: CursorState) -> bool:
        """Store a place unless another process has moved; return whether it was stored."""
        if before == after:
            return True
        with transaction(self._connection):
            moved = self._value(
                "UPDATE meta SET value = ? WHERE key = ? AND value = ? RETURNING 1",
                (json.dumps(after), self._key, json.dumps(before)),
            )
        return moved is not None
