"""The log that several hosts share, in PostgreSQL."""

from kp_middleware.shared_log._link import Link, address, load, schema_sql
from kp_middleware.shared_log._log import (
    Decisions,
    LockedLog,
    LogChangedError,
    LoggedRun,
    LoggedVector,
    LogPosition,
    PostgresLog,
    batches,
    is_refusal,
    pull_runs,
    refused,
)
from kp_middleware.shared_log._rows import (
    ItemState,
    PostgresPace,
    SharedItem,
    SharedOutbox,
    SharedRun,
    cancel_items,
    item_states,
)

__all__ = ["Decisions", "ItemState", "Link", "LockedLog", "LogChangedError", "LogPosition",
           "LoggedRun", "LoggedVector", "PostgresLog", "PostgresPace", "SharedItem", "SharedOutbox",
           "SharedRun", "address", "batches", "cancel_items", "is_refusal", "item_states", "load",
           "pull_runs", "refused", "schema_sql"]  # fmt: skip
