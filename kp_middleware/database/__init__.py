"""The SQLite file: connections, permissions and schema."""

from kp_middleware.database._file import (
    PASSING_TROUBLE,
    TROUBLE,
    Connection,
    Cursor,
    alone,
    in_words,
    is_damage,
    open_to_all,
    open_to_write,
    transaction,
)
from kp_middleware.database._schema import (
    APPLICATION_ID,
    RELEASED,
    SCHEMA,
    Upgrade,
    bring_up_to_date,
    connect,
    schema_of,
)
from kp_middleware.database._vectors import StoredVectors, VectorTable

__all__ = [
    "APPLICATION_ID",
    "PASSING_TROUBLE",
    "RELEASED",
    "SCHEMA",
    "TROUBLE",
    "Connection",
    "Cursor",
    "StoredVectors",
    "Upgrade",
    "VectorTable",
    "alone",
    "bring_up_to_date",
    "connect",
    "in_words",
    "is_damage",
    "open_to_all",
    "open_to_write",
    "schema_of",
    "transaction",
]
