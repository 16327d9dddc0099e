"""Rows of traces, one line each: which columns, how they are told, and how many there are."""

from collections.abc import Sequence
from typing import Final

from kp_middleware.cli.output.manners import hint
from kp_middleware.storage import COUNTED, Row
from kp_middleware.views.wording import distance, short_id

_NOISE: Final = 1e-9  # less than this is the last bits of a sum

COLUMNS: Final = (
    "id",
    "started_at",
    "domain",
    "score",
    "margin",
    "step_count",
    "tool_count",
    "success",
    "state",
    "objective",
)
"""What TSV, CSV and a table that has the room show of each trace."""


def tell_how_many(count: int, limit: int) -> None:
    """That not all are shown."""
    if count > limit:
        told = f"{count:,}" if count <= COUNTED else f"more than {COUNTED:,}"
        hint(f"{told} traces in all: -n shows more")


def tell_if_none(rows: Sequence[Row]) -> None:
    """That nothing is no mistake of the terminal."""
    if not rows:
        hint("nothing matches")


def for_people(row: Row) -> Row:
    """A row of a list as it is read: a short id, minutes, a sign, a word for success."""
    margin = row["margin"]
    return row | {
        "id": short_id(row["id"]),
        "started_at": row["started_at"][:16].replace("T", " "),
        "margin": None if margin is None else _signed(margin),
        "success": "yes" if row["success"] else "no",
    }


def _signed(margin: float) -> str:
    sign = "-" if margin < 0 else "+"
    return f"{sign}{distance(margin, least=4)}" if abs(margin) >= _NOISE else f"{sign}0.0000"
