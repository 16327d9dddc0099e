"""The log that several hosts share, in PostgreSQL."""

from kp_middleware.sharing._link import (
    BEAT,
    Examination,
    Link,
    load,
    script,
    shown,
)
from kp_middleware.sharing._log import (
    Decisions,
    LockedLog,
    LogChangedError,
    LoggedRun,
    LoggedVector,
    Place,
    PostgresLog,
    is_refusal,
    pages,
    pull_runs,
    refused,
)
from kp_middleware.sharing._rows import (
    ItemState,
    PaceOfAll,
    SharedItem,
    SharedOutbox,
    SharedRun,
    cancel_items,
    item_states,
)

__all__ = [
    "BEAT",
    "Decisions",
    "Examination",
    "ItemState",
    "Link",
    "LockedLog",
    "LogChangedError",
    "LoggedRun",
    "LoggedVector",
    "PaceOfAll",
    "Place",
    "PostgresLog",
    "SharedItem",
    "SharedOutbox",
    "SharedRun",
    "cancel_items",
    "is_refusal",
    "item_states",
    "load",
    "pages",
    "pull_runs",
    "refused",
    "script",
    "shown",
]
