"""Rows of the outbox that go once more, prepared by the user's settings here."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kp_middleware.cli.installation.user_settings import read_settings
from kp_middleware.database import Connection, transaction
from kp_middleware.storage import CANCELLED_BY_HAND, OutboxCare

if TYPE_CHECKING:
    from kp_middleware.pipeline import Rescan


STILL_SENT: Final = "still sent"
"""What became of a row that was sent, and may not go again: it says so as before."""


class _NotQueuedError(Exception):
    """What was sent is not queued again: the transaction is rolled back."""


def try_again(db: Path, connection: Connection, seqs: Sequence[int], *, force: bool) -> list[str]:
    """What became of each row.

    Args:
        db: The file of traces.
        connection: Of that file.
        seqs: Of the traces.
        force: Also what was sent, once more: cleaned by the settings here, and by whoever sent it.
            Of what was not sent, apply the settings here alone.

    Raises:
        click.ClickException: If there is nothing to try again, or a setting is wrong.
    """
    from kp_middleware.pipeline import Rescan

    settings, care = read_settings(db), OutboxCare(connection)
    by_both, by_ours = Rescan(connection, settings), Rescan(connection, settings, alone=force)

    def tried(seq: int) -> str:
        try:
            with transaction(connection):
                if not (force and care.reopen(seq)):
                    return _tried_again(care, by_ours, seq, settings.agent_id)
                result = _tried_again(care, by_both, seq, settings.agent_id)
                if care.entry(seq).state != "pending":
                    raise _NotQueuedError
                return result
        except _NotQueuedError:
            return STILL_SENT

    return [tried(seq) for seq in seqs]


def _tried_again(care: OutboxCare, rescan: "Rescan", seq: int, agent_id: str | None) -> str:
    entry = care.entry(seq)
    if entry.state not in {"rejected", "blocked"} and entry.reason != CANCELLED_BY_HAND:
        force = "; --force sends it again" if entry.state == "sent" else ""
        raise click.ClickException(f"there is nothing to try again: it is {entry.state}{force}")
    result = rescan.row(seq)
    if result in {"unchanged", "rewritten"} and care.retry(seq, agent_id=agent_id):
        state = care.entry(seq).state
        return "waiting" if state == "pending" else state
    return result
