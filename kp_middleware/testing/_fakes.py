"""Fakes of what is slow or far away: a clock, an embedder, an outbox."""

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
    """Call it for seconds since the epoch, as ``time.time``; its bound ``ms`` is the same in ms.

    >>> clock = FakeClock(1000.0)
    >>> clock.advance(1.5)
    >>> clock(), clock.ms()
    (1001.5, 1001500)
    """

    def __init__(self, now: float = 1_790_000_000.0) -> None:
        self._now = now

    def __call__(self) -> float:
        """Seconds since the epoch."""
        return self._now

    def ms(self) -> int:
        """Milliseconds since the epoch, rounded."""
        return round(self._now * 1000)

    def advance(self, seconds: float) -> None:
        """Let time pass; a negative number sets the clock back."""
        self._now += seconds


class StandInEmbedder:
    """Counts hashed words: texts that share words are near. The same everywhere, at once, no model.

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
        """The vector of one text: float32, 384 numbers, of length 1, also where no word is."""
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
    """One item and what became of it.

    Attributes:
        item: With its counted attempts.
        due_at: Epoch seconds.
        state: As in the table of the same name.
        news: The receipt, the last error, or the reason for blocking it.
    """

    item: OutboxItem
    due_at: float
    state: State = "pending"
    news: Receipt | RegistryError | str | None = None


class ListOutbox:
    """An ``Outbox`` for a ``Sender``: of the rows that are due, the first one goes first.

    >>> outbox = ListOutbox([Row(OutboxItem(1, b"{}", "key"), due_at=5.0)])
    >>> outbox.claim(4.0), outbox.next_due(), outbox.claim(5.0).trace_seq, outbox.states()
    (None, 5.0, 1, ['sending'])
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = list(rows)

    def states(self) -> list[State]:
        """The state of each row."""
        return [row.state for row in self.rows]

    def claim(self, now: float, /) -> OutboxItem | None:
        """The first row that is due; its lease never ends."""
        due = (row for row in self.rows if row.state == "pending" and row.due_at <= now)
        row = next(due, None)
        if row is None:
            return None
        row.state = "sending"
        return row.item

    def next_due(self) -> float | None:
        """When the next row is due, or None."""
        return min((row.due_at for row in self.rows if row.state == "pending"), default=None)

    def sent(self, item: OutboxItem, receipt: Receipt, /) -> None:
        """Keep the receipt."""
        self._set(item, "sent", receipt)

    def rejected(self, item: OutboxItem, error: RegistryRejectedError, /) -> None:
        """Keep the error."""
        self._set(item, "rejected", error)

    def block(self, item: OutboxItem, reason: str, /) -> None:
        """Keep the reason."""
        self._set(item, "blocked", reason)

    def postpone(
        self, item: OutboxItem, error: RegistryError, /, *, retry_at: float, counted: bool
    ) -> None:
        """Keep the error, and let the row wait."""
        row = self._set(item, "pending", error)
        row.item = replace(item, attempts=item.attempts + counted)
        row.due_at = retry_at

    def release(self, item: OutboxItem, /) -> None:
        """Let the row be due as before."""
        self._row(item).state = "pending"

    def retry_now(self) -> None:
        """Let the rows that have hardly been tried be due now."""
        for row in self.rows:
            if row.state == "pending" and row.item.attempts < 2:
                row.due_at = 0.0

    def _set(self, item: OutboxItem, state: State, news: Receipt | RegistryError | str) -> Row:
        row = self._row(item)
        row.state, row.news = state, news
        return row

    def _row(self, item: OutboxItem) -> Row:
        return next(row for row in self.rows if row.item.trace_seq == item.trace_seq)
