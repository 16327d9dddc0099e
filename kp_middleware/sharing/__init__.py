"""The log that several hosts share, in PostgreSQL."""

from kp_middleware.sharing._link import Link, load, shown
from kp_middleware.sharing._log import PostgresLog
from kp_middleware.sharing._migration import migrate, script
from kp_middleware.sharing._outbox import SharedOutbox, item_states
from kp_middleware.sharing._pacing import PaceOfAll
from kp_middleware.sharing._pulling import pull_runs
from kp_middleware.sharing._records import (
    Decided,
    ItemState,
    Known,
    LogChangedError,
    LoggedRun,
    LoggedVector,
    Place,
    SharedItem,
    SharedLog,
    SharedRun,
)

__all__ = [
    "Decided",
    "ItemState",
    "Known",
    "Link",
    "LogChangedError",
    "LoggedRun",
    "LoggedVector",
    "PaceOfAll",
    "Place",
    "PostgresLog",
    "SharedItem",
    "SharedLog",
    "SharedOutbox",
    "SharedRun",
    "item_states",
    "load",
    "migrate",
    "pull_runs",
    "script",
    "shown",
]
