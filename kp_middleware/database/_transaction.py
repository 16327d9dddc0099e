"""All of a block or nothing of it."""

from collections.abc import Iterator
from contextlib import contextmanager

from kp_middleware.database._file import Connection


@contextmanager
def transaction(connection: Connection) -> Iterator[None]:
    """All of the block or nothing of it; joins the transaction that is open already.

    ``IMMEDIATE``, because a deferred one that reads before it writes fails at once when another
    process writes in between, however long the busy timeout.
    """
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.commit()
    except BaseException:  # also of the commit: a full disk is often found out there
        connection.rollback()
        raise
