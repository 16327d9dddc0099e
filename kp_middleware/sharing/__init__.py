"""The log that several hosts share, in PostgreSQL."""

from kp_middleware.sharing._link import Link, load, migrate, script, shown
from kp_middleware.sharing._log import Known, PostgresLog, SharedLog, delete, pull_runs
from kp_middleware.sharing._records import (
    Decided,
    ItemState,
    LogChangedError,
    LoggedRun,
    LoggedVector,
    Place,
    SharedItem,
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
from kp_middleware.sharing._sending import (
    PaceOfAll,
    SharedOutbox,
    cancel_items,
    item_states,
    lift_stops_of_all,
)

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
