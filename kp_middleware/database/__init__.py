"""The SQLite file: connections, permissions and schema."""

from kp_middleware.database._file import (
    PASSING_TROUBLE,
    TROUBLE,
    Connection,
    alone,
    in_words,
    is_damage,
    open_to_all,
    open_to_write,
    transaction,
)
from kp_middleware.database._queries import (
    DISTINCT,
    Queries,
    beginning_with,
    record,
)
from kp_middleware.database._schema import (
    APPLICATION_ID,
    RELEASED,
    SCHEMA,
    bring_up_to_date,
    connect,
    schema_of,
)
from kp_middleware.database._vectors import StoredVectors, VectorTable

__all__ = [
    "APPLICATION_ID",
    "DISTINCT",
    "PASSING_TROUBLE",
    "RELEASED",
    "SCHEMA",
    "TROUBLE",
    "Connection",
    "Queries",
    "StoredVectors",
    "VectorTable",
    "alone",
    "beginning_with",
    "bring_up_to_date",
    "connect",
    "in_words",
    "is_damage",
    "open_to_all",
    "open_to_write",
    "record",
    "schema_of",
    "transaction",
]
