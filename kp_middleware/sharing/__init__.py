"""The log that several hosts share, in PostgreSQL."""

from kp_middleware.sharing._link import Link, load, shown
from kp_middleware.sharing._log import Known, PostgresLog, SharedLog, pages, pull_runs
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
from kp_middleware.sharing._sending import (
    PaceOfAll,
    SharedOutbox,
    cancel_items,
    item_states,
    lift_stops_of_all,
)
from kp_middleware.sharing._upkeep import (
    Examination,
    Pod,
    beat,
    delete,
    examine,
    migrate,
    script,
    status,
)

__all__ = [
    "Decided",
    "Examination",
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
    "pages",
    "pull_runs",
    "script",
    "shown",
    "status",
]
