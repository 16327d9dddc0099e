"""The traces before and after one."""

from typing import NamedTuple

from kp_middleware.database import Connection


class Beside(NamedTuple):
    """The ids of those recorded just before and just after it; None where there is no such."""

    earlier: str | None
    later: str | None


def read_beside(connection: Connection, seq: int) -> Beside:
    """Those beside the trace at this ``seq``."""
    found = connection.execute(
        """
        SELECT (SELECT id FROM traces WHERE seq < :seq ORDER BY seq DESC LIMIT 1),
               (SELECT id FROM traces WHERE seq > :seq ORDER BY seq LIMIT 1)
        """,
        {"seq": seq},
    )
    return Beside._make(found.fetchone())
