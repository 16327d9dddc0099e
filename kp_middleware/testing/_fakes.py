"""Fakes of slow or remote parts: a clock, an embedder, an outbox."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from zlib import crc32

from kp_middleware.errors import RegistryError, RegistryRejectedError
from kp_middleware.outbox_items import OutboxItem, Receipt

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_WORD = re.compile(r"\w+")
_DIMENSIONS: Final = 384

State: TypeAlias = Literal["pending", "sending", "sent", "rejected", "blocked"]


class FakeClock:
    """A clock set by hand: call it as ``time.time``; its ``ms`` returns milliseconds.

    >>> clock = FakeClock(1000.0)
    >>> clock.advance(1.5)
    >>> clock(), clock.ms()
    (1001.5, 1001500)
    """

    def __init__(self, now: float = 1_790_000_000.0) -> None:
        self._now = now

    def __call__(self) -> float:
        """Return seconds since the epoch."""
        return self._now

    def ms(self) -> int:
        """Return milliseconds since the epoch, rounded."""
        return round(self._now * 1000)

    def advance(self, seconds: float) -> None:
        """Advance the clock; a negative number sets it back."""
        self._now += seconds


class StandInEmbedder:
    """A deterministic embedder without a model: texts that share words are similar.

    Attributes:
        name: Its fingerprint.
        asked: The texts it was given, in order.

    >>> embedder = StandInEmbedder()
    >>> near = embedder.embed("sort a list") @ embedder.embed("sort a long list")
    >>> far = embedder.embed("sort a list") @ embedder.embed("book flights to Rome")
    >>> bool(near > 0.8 > 0.2 > far), len(embedder.asked)
    (True, 4)
    """

    name: Final = "stand-in"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed(self, text: str, /) -> "NDArray[np.float32]":
        """Return the unit vector of a text: float32, 384 dimensions."""
        import numpy as np

        self.asked.append(text)
        words = _WORD.findall(text.casefold()) or [text]
        counts = np.bincount(
            [crc32(word.encode(errors="replace")) % _DIMENSIONS for word in words],
            minlength=_DIMENSIONS,
        )
        return (counts / np.linalg.norm(counts)).astype(np.float32)


@dataclass(slots=True)
class Row:
    """One outbox item and its state.

    Attributes:
        item: The item, with its counted attempts.
        due_at: Epoch seconds.
        state: As in the table ``outbox``.
        news: The receipt, the last error, or the reason for blocking it.
    """

    item: OutboxItem
    due_at: float
    state: State = "pending"
    news: Receipt | RegistryError | str | None = None


class ListOutbox:
    """An in-memory ``Outbox`` for a ``Sender``; due rows are claimed in order.

    >>> outbox = ListOutbox([Row(OutboxItem(1, b"{}", "key"), due_at=5.0)])
    >>> outbox.claim(4.0), outbox.next_due(), outbox.claim(5.0).trace_seq, outbox.states()
    (None, 5.0, 1, ['sending'])
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = list(rows)

    def states(self) -> list[State]:
        """Return the state of each row."""
        return [row.state for row in self.rows]

    def claim(self, now: float, /) -> OutboxItem | None:
        """Claim and return the first due item, or None; its lease never expires."""
        due = (row for row in self.rows if row.state == "pending" and row.due_at <= now)
        row = next(due, None)
        if row is None:
            return None
        row.state = "sending"
        return row.item

    def next_due(self) -> float | None:
        """Return when the next row is due, or None."""
        return min((row.due_at for row in self.rows if row.state == "pending"), default=None)

    def sent(self, item: OutboxItem, receipt: Receipt, /) -> None:
        """Mark the item as sent, and keep the receipt."""
        self._set(item, "sent", receipt)

    def rejected(self, item: OutboxItem, error: RegistryRejectedError, /) -> None:
        """Mark the item as rejected, and keep the error."""
        self._set(item, "rejected", error)

    def block(self, item: OutboxItem, reason: str, /) -> None:
        """Mark the item as blocked, and keep the reason."""
        self._set(item, "blocked", reason)

    def postpone(
        self, item: OutboxItem, error: RegistryError, /, *, retry_at: float, counted: bool
    ) -> None:
        """Return the item to pending until ``retry_at``, and keep the error."""
        row = self._set(item, "pending", error)
        row.item = replace(item, attempts=item.attempts + counted)
        row.due_at = retry_at

    def release(self, item: OutboxItem, /) -> None:
        """Return the item to pending; it is due as before."""
        self._row(item).state = "pending"

    def retry_now(self) -> None:
        """Make pending rows with fewer than two attempts due now."""
        for row in self.rows:
            if row.state == "pending" and row.item.attempts < 2:
                row.due_at = 0.0

    def _set(self, item: OutboxItem, state: State, news: Receipt | RegistryError | str) -> Row:
        row = self._row(item)
        row.state, row.news = state, news
        return row

    def _row(self, item: OutboxItem) -> Row:
        return next(row for row in self.rows if row.item.trace_seq == item.trace_seq)
