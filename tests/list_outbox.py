"""An outbox in memory, for the sender and for stores of one's own."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from kp_middleware.errors import RegistryError, RegistryRejectedError
from kp_middleware.export import OutboxItem, Receipt

State: TypeAlias = Literal["pending", "sending", "sent", "rejected", "blocked"]


@dataclass(slots=True)
class Row:
    """One outbox item and its state."""

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
