"""The SQLite file: connections, permissions and schema."""

from kp_middleware.database._database import (
    DISTINCT,
    Database,
    FileIdentity,
    Queries,
    StoredVectors,
    VectorTable,
    fork_lock,
    from_row,
    prefix_range,
)
from kp_middleware.database._file import (
    APPLICATION_ID,
    DATABASE_ERRORS,
    LOCKED,
    RELEASED,
    SCHEMA,
    TRANSIENT_ERRORS,
    Connection,
    connect,
    exclusive_lock,
    is_damage,
    is_locked,
    make_private,
    open_to_write,
    permission_warning,
    primary_code,
    schema_version,
    to_database_error,
    transaction,
    upgrade_file,
)

__all__ = ["APPLICATION_ID", "DATABASE_ERRORS", "DISTINCT", "LOCKED", "RELEASED", "SCHEMA",
           "TRANSIENT_ERRORS", "Connection", "Database", "FileIdentity", "Queries", "StoredVectors",
           "VectorTable", "connect", "exclusive_lock", "fork_lock", "from_row", "is_damage",
           "is_locked", "make_private", "open_to_write", "permission_warning", "prefix_range",
           "primary_code", "schema_version", "to_database_error", "transaction",
           "upgrade_file"]  # fmt: skip
