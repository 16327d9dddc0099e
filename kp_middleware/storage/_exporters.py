"""How far each exporter beside the outbox has come, and what became of its runs."""

import json
from typing import Final, NamedTuple

from kp_middleware.database import Connection

KEY: Final = "export "
"""What the keys of `meta` begin with that hold a place."""

MOST_LEFT: Final = 10_000
_MOST_OF_ERROR: Final = 200


class Place(NamedTuple):
    """The place of an exporter: all runs up to ``until`` are done, but those in ``left``."""

    until: int
    left: tuple[int, ...] = ()
    claimed_by: str | None = None
    claimed_until: float = 0.0
    retry_at: float = 0.0
    attempts: int = 0
    sent: int = 0
    failed: int = 0
    last_error: str | None = None

    def done(self, seq: int, *, sent: int = 0, failed: int = 0) -> "Place":
        """Return the place after a run."""
        left = tuple(one for one in self.left if one != seq)
        return self._replace(
            until=max(self.until, seq),
            left=left[-MOST_LEFT:],
            claimed_by=None,
            claimed_until=0.0,
            retry_at=0.0,
            attempts=0,
            sent=self.sent + sent,
            failed=self.failed + failed,
        )

    def troubled(self, error: object) -> "Place":
        """Return the place with what went wrong last."""
        return self._replace(last_error=str(error)[:_MOST_OF_ERROR])


class ExporterStatus(NamedTuple):
    """What has become of the runs for one exporter."""

    name: str
    sent: int
    failed: int  # rejected, or tried too often
    last_error: str | None  # also if it was tried again since


def read_exporters(connection: Connection) -> list[ExporterStatus]:
    """Return the exporters that have been given runs of this file, by name."""
    rows = connection.execute(
        "SELECT key, value FROM meta WHERE key GLOB ? ORDER BY key", (f"{KEY}*",)
    ).fetchall()
    places = ((key.removeprefix(KEY), Place(*json.loads(value))) for key, value in rows)
    return [ExporterStatus(name, one.sent, one.failed, one.last_error) for name, one in places]
