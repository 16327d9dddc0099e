"""Whether a command would decide by another gate than the program that recorded."""

from typing import TYPE_CHECKING

from kp_middleware.cli.output.manners import hint
from kp_middleware.database import Connection
from kp_middleware.storage import read_last_decisions

if TYPE_CHECKING:
    from kp_middleware.settings import Settings


def hint_at_another_gate(connection: Connection, settings: "Settings") -> None:
    """Say so, because a keyword of a program is not known here."""
    from kp_middleware.core.gates import gate_of

    theirs = read_last_decisions(connection).gate
    ours = gate_of(settings).name
    if theirs and theirs != ours:
        hint(f"decides by {ours}; the last run was decided by {theirs}: KP_THRESHOLD sets the same")
