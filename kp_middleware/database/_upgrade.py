"""Bringing a file to today's schema, and nothing else."""

from pathlib import Path
from typing import NamedTuple

from kp_middleware.database._connect import connect, schema_of
from kp_middleware.database._schema import MIGRATIONS, copy_before


class Upgrade(NamedTuple):
    """What became of a file.

    Attributes:
        before: The version of the schema that it had.
        now: The one that it has.
        copy: The file as it was, beside it; None if it had today's schema.
    """

    before: int
    now: int
    copy: Path | None


def bring_up_to_date(path: Path) -> Upgrade:
    """Give a file that exists today's schema; one that has it is only read.

    Raises:
        DatabaseError: If it is empty, another program's or a newer version's, or if it or the copy
            cannot be written.
    """
    before = schema_of(path)
    is_older = 0 < before < len(MIGRATIONS)
    connect(path, read_only=not is_older).close()  # this refuses an empty and a newer one
    copy = copy_before(path.expanduser()) if is_older else None
    return Upgrade(before, len(MIGRATIONS), copy)
