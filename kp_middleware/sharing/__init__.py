"""The log that several hosts share, in PostgreSQL."""

from kp_middleware.sharing._link import Link, load, shown
from kp_middleware.sharing._log import PostgresLog
from kp_middleware.sharing._migration import migrate, script
from kp_middleware.sharing._outbox import SharedOutbox, cancel_items, item_states
from kp_middleware.sharing._pacing import PaceOfAll, lift_stops_of_all
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
from kp_middleware.sharing._report import (
    Examination,
    FleetStatus,
    Pod,
    beat,
    examine,
    read_status,
)
from kp_middleware.sharing._revising import delete

__all__ = [
    "Decided",
    "Examination",
    "FleetStatus",
    "ItemState",
    "Known",
    "Link",
    "LogChangedError",
    "LoggedRun",
    "LoggedVector",
    "PaceOfAll",
    "Place",
    "Pod",
    "PostgresLog",
    "SharedItem",
    "SharedLog",
    "SharedOutbox",
    "SharedRun",
    "beat",
    "cancel_items",
    "delete",
    "examine",
    "item_states",
    "lift_stops_of_all",
    "load",
    "migrate",
    "pull_runs",
    "read_status",
    "script",
    "shown",
]
