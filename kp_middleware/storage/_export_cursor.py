"""The position of an additional exporter: a cursor over the runs, shared by processes."""

import json
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kp_middleware.database import Connection, Queries, transaction
from kp_middleware.outbox_items import LeasedOutbox, OutboxItem, lease_holder
from kp_middleware.storage._outbox import LEASE_S, LONGEST_WAIT_S
from kp_middleware.storage._records import Run

if TYPE_CHECKING:
    from kp_middleware.storage._history import History

EXPORT: Final = "export "  # the prefix of the positions' keys in `meta`
_CANDIDATES: Final = "SELECT seq, state, decision, visibility, started_at FROM traces"


class CursorState(NamedTuple):
    """An exporter's position: all runs up to ``until`` are done, except those in ``left``."""

    until: int
    left: tuple[int, ...] = ()
    claimed_by: str | None = None
    claimed_until: float = 0.0
    retry_at: float = 0.0
    attempts: int = 0
    sent: int = 0
    failed: int = 0
    last_error: str | None = None

    def due_at(self, now: float) -> float:
        """Return when the next run is due: at once if the clock was set back meanwhile."""
        return self.retry_at if self.retry_at <= now + LONGEST_WAIT_S else 0.0

    def done(self, seq: int, state: str = "") -> "CursorState":
        left = tuple(one for one in self.left if one != seq)
        counts = self.sent + (state == "sent"), self.failed + (state in {"rejected", "blocked"})
        return CursorState(max(self.until, seq), left, None, 0.0, 0.0, 0, *counts, self.last_error)


class ExporterStatus(NamedTuple):
    name: str
    sent: int
    failed: int  # rejected, or tried too often
    last_error: str | None  # even if it was retried


class ExportCandidate(NamedTuple):
    seq: int
    state: str
    decision: str | None  # ``forward`` or ``withhold``; None: not scored
    visibility: str
    started_at: str


class ExportCursor(Queries, LeasedOutbox):
    """The runs that an exporter has not received yet, for all processes."""

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
        self._claimant = lease_holder()

    def claim(self, now: float, /) -> OutboxItem | None:
        while True:
            before = self._place()
            if before.due_at(now) > now or self._is_claimed(before, now):
                return None
            seq, place = self._advance(before)
            if seq is None:
                return None
            document = self._history.document(seq)
            item = document and self._prepare(self._history.run(seq), document, before.attempts)
            if isinstance(item, OutboxItem):
                until = now + LEASE_S
                place = place._replace(claimed_by=self._claimant, claimed_until=until)
                return item if self._move(before, place) else None
            self._move(before, place.done(seq))

    def next_due(self) -> float | None:
        before, now = self._place(), self._clock()
        if self._advance(before)[0] is None:
            return None
        is_claimed = self._is_claimed(before, now)
        return min(before.claimed_until, now + 1.0) if is_claimed else before.due_at(now)

    def retry_now(self) -> None:
        before = self._place()
        self._move(before, before._replace(retry_at=0.0))

    def _rejections(self, item: OutboxItem) -> int:  # noqa: ARG002 - the key never changes
        return 0

    def _end(self, item: OutboxItem, state: str, *, attempts: int = 1, **columns: Any) -> None:
        before = self._place()
        if before.claimed_by != self._claimant:
            return
        after = before._replace(claimed_by=None, claimed_until=0.0)
        if state == "pending":
            retry_at, attempts = columns.get("retry_at", 0.0), item.attempts + attempts
            after = after._replace(retry_at=retry_at, attempts=attempts)
        else:
            after = after.done(item.trace_seq, state)
        error = columns.get("reason", columns.get("last_error"))
        if error is not None:
            after = after._replace(last_error=str(error)[:200])
        self._move(before, after)

    def _is_claimed(self, place: CursorState, now: float) -> bool:
        is_ours = place.claimed_by in {None, self._claimant}
        return not is_ours and now < place.claimed_until <= now + 2 * LEASE_S

    def _advance(self, place: CursorState) -> tuple[int | None, CursorState]:
        """Find the next run, and the place before it; if there is no run, store the place."""
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
        after = place._replace(until=until, left=tuple(left)[-10_000:])
        if found is None:
            self._move(place, after)
        return found, after

    def _candidates(self, place: CursorState) -> Iterator[ExportCandidate]:
        among = f"{_CANDIDATES} WHERE seq IN (SELECT value FROM json_each(?)) ORDER BY seq"
        yield from self._all(ExportCandidate, among, (json.dumps(place.left),))
        until, after = place.until, f"{_CANDIDATES} WHERE seq > ? ORDER BY seq LIMIT ?"
        while found := self._all(ExportCandidate, after, (until, 200)):  # at once
            yield from found
            until = found[-1].seq

    def _place(self) -> CursorState:
        stored = self._meta(self._key)
        if stored is None:
            before = "SELECT coalesce(max(seq), 0) FROM traces WHERE started_at < ?"
            stored = json.dumps(CursorState(self._value(before, (self._since,))))
            self._run("INSERT OR IGNORE INTO meta (key, value) VALUES (?, ?)", (self._key, stored))
            stored = self._meta(self._key) or stored
        until, left, *rest = json.loads(stored)
        return CursorState(until, tuple(left), *rest)

    def _move(self, before: CursorState, after: CursorState) -> bool:
        """Store a position unless another process moved it; return whether it was stored."""
        if before == after:
            return True
        with transaction(self._connection):
            moved = self._value(
                "UPDATE meta SET value = ? WHERE key = ? AND value = ? RETURNING 1",
                (json.dumps(after), self._key, json.dumps(before)),
            )
        return moved is not None
