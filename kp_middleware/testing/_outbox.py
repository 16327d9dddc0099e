"""An outbox without a file."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from kp_middleware.errors import RegistryError, RegistryRejectedError
from kp_middleware.parcels import Parcel, Receipt

State: TypeAlias = Literal["pending", "sending", "sent", "rejected", "blocked"]


@dataclass(slots=True)
class Row:
    """One parcel and what became of it.

    Attributes:
        parcel: With its counted attempts.
        due_at: Epoch seconds.
        state: As in the table of the same name.
        news: The receipt, the last error, or the reason for blocking it.
    """

    parcel: Parcel
    due_at: float
    state: State = "pending"
    news: Receipt | RegistryError | str | None = None


class ListOutbox:
    """An ``Outbox`` for a ``Forwarder``: of the rows that are due, the first one goes first.

    >>> outbox = ListOutbox([Row(Parcel(1, b"{}", "key"), due_at=5.0)])
    >>> outbox.claim(4.0), outbox.next_due(), outbox.claim(5.0).trace_seq, outbox.states()
    (None, 5.0, 1, ['sending'])
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = list(rows)

    def states(self) -> list[State]:
        """The state of each row."""
        return [row.state for row in self.rows]

    def claim(self, now: float, /) -> Parcel | None:
        """The first row that is due; its lease never ends."""
        due = (row for row in self.rows if row.state == "pending" and row.due_at <= now)
        row = next(due, None)
        if row is None:
            return None
        row.state = "sending"
        return row.parcel

    def next_due(self) -> float | None:
        """When the next row is due, or None."""
        return min((row.due_at for row in self.rows if row.state == "pending"), default=None)

    def sent(self, parcel: Parcel, receipt: Receipt, /) -> None:
        """Keep the receipt."""
        self._set(parcel, "sent", receipt)

    def rejected(self, parcel: Parcel, error: RegistryRejectedError, /) -> None:
        """Keep the error."""
        self._set(parcel, "rejected", error)

    def block(self, parcel: Parcel, reason: str, /) -> None:
        """Keep the reason."""
        self._set(parcel, "blocked", reason)

    def postpone(
        self, parcel: Parcel, error: RegistryError, /, *, retry_at: float, counted: bool
    ) -> None:
        """Keep the error, and let the row wait."""
        row = self._set(parcel, "pending", error)
        row.parcel = replace(parcel, attempts=parcel.attempts + counted)
        row.due_at = retry_at

    def give_back(self, parcel: Parcel, /) -> None:
        """Let the row be due as before."""
        self._row(parcel).state = "pending"

    def hasten(self) -> None:
        """Let the rows that have hardly been tried be due now."""
        for row in self.rows:
            if row.state == "pending" and row.parcel.attempts < 2:
                row.due_at = 0.0

    def _set(self, parcel: Parcel, state: State, news: Receipt | RegistryError | str) -> Row:
        row = self._row(parcel)
        row.state, row.news = state, news
        return row

    def _row(self, parcel: Parcel) -> Row:
        return next(row for row in self.rows if row.parcel.trace_seq == parcel.trace_seq)
