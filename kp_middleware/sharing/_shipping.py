"""Ship runs that stay here, so that other hosts know of them."""

from collections.abc import Mapping, Sequence
from typing import Final

from kp_middleware.errors import SharedLogError
from kp_middleware.sharing._link import Connection, Link, bounded
from kp_middleware.sharing._records import SharedRun
from kp_middleware.sharing._rows import COLUMNS, RECORDSET, VALUES, as_json

# ``seq`` is taken from the one row of heads in the inserting statement: the order of commits.
_SHIP: Final = f"""
    WITH r AS (SELECT * FROM {RECORDSET}),
      fresh AS (SELECT r.*, row_number() OVER (ORDER BY n) AS k FROM r
                WHERE NOT EXISTS (SELECT 1 FROM kp.log l WHERE l.id = r.id)),
      h AS (UPDATE kp.heads SET head = head + (SELECT count(*) FROM fresh)
            WHERE stream = 'main' RETURNING head),
      d AS (INSERT INTO kp.documents SELECT id, body, redactor FROM fresh WHERE body IS NOT NULL
            ON CONFLICT (id) DO UPDATE SET body = excluded.body, redactor = excluded.redactor)
    INSERT INTO kp.log (seq, {COLUMNS})
    SELECT h.head - (SELECT count(*) FROM fresh) + k, {VALUES} FROM fresh, h RETURNING id, seq
"""
_PLACES: Final = "SELECT id, seq FROM kp.log WHERE id = ANY(%s) AND rev = 0"
_UNIQUE_VIOLATION: Final = "23505"


def ship(link: Link, runs: Sequence[SharedRun]) -> dict[str, int]:
    """Append runs; return the place of each, also of those that were there before."""
    try:
        shipped = link.exchange(lambda connection: _ship(connection, runs))
    except SharedLogError as error:
        if error.sqlstate != _UNIQUE_VIOLATION:  # an earlier attempt is committed just now
            raise
        shipped = {}
    left = [run.id for run in runs if run.id not in shipped]
    return {**shipped, **places(link, left)} if left else shipped


def places(link: Link, ids: Sequence[str]) -> Mapping[str, int]:
    """Return the places of those of these runs that are in the log."""
    rows = link.exchange(lambda connection: connection.execute(_PLACES, ([*ids],)).fetchall())
    return dict(rows)


def _ship(connection: Connection, runs: Sequence[SharedRun]) -> dict[str, int]:
    rows = {"rows": as_json(runs)}
    with bounded(connection):
        shipped = connection.execute(_SHIP, rows)
    return dict(shipped.fetchall())
