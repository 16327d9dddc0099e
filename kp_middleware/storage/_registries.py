"""Rows of the outbox under an earlier spelling of their registry's URL."""

from typing import Final

from kp_middleware.database import Connection

_SPELT_OTHERWISE: Final = """
    FROM outbox WHERE state IN ('pending', 'sending', 'blocked', 'rejected')
      AND registry <> :registry AND rtrim(registry, '/') = :registry
"""


def adopt_registry(connection: Connection, registry: str) -> None:
    """Let what waits for this registry be found, also where an earlier version kept a last slash.

    Args:
        connection: Of the file.
        registry: Its URL, without a slash at its end.
    """
    said = {"registry": registry}
    (found,) = connection.execute(f"SELECT EXISTS (SELECT 1 {_SPELT_OTHERWISE})", said).fetchone()
    if found:
        connection.execute(
            "UPDATE outbox SET registry = :registry"  # noqa: S608 - our own words
            f" WHERE trace_seq IN (SELECT trace_seq {_SPELT_OTHERWISE})",
            said,
        )
