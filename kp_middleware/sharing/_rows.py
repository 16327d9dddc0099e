"""Rows of the log as JSON for one statement, and back."""

import base64
import json
from collections.abc import Sequence
from typing import Any, Final

from kp_middleware.sharing._records import SharedRun

_TYPES: Final = {
    "id": "text",
    "pod": "text",
    "domain": "text",
    "started_at": "timestamptz",
    "decided_at": "timestamptz",
    "success": "boolean",
    "success_source": "text",
    "confidence": "float8",
    "signals": "float8[]",
    "weights": "float8[]",
    "rules": "text",
    "score": "float8",
    "threshold": "float8",
    "gate": "text",
    "decision": "text",
    "reason_code": "text",
    "reason_args": "text",
    "rank_key": "float8",
    "bar": "float8",
    "credit": "float8",
    "chosen": "boolean",
    "scorer": "text",
    "embedder": "text",
    "nearest": "text",
    "nearest_similarity": "float8",
    "vector": "text",
    "facts": "text",
    "body": "text",
    "redactor": "text",
}
_CHANGED: Final = {
    "decided_at": "coalesce(decided_at, clock_timestamp())",
    "vector": "decode(vector, 'base64')",
}
_OF_LOG: Final = [name for name in _TYPES if name not in {"body", "redactor"}]

COLUMNS: Final = ", ".join(_OF_LOG)
"""The columns of ``kp.log`` that a run fills."""

VALUES: Final = ", ".join(_CHANGED.get(name, name) for name in _OF_LOG)
"""Their values, selected from `RECORDSET`."""

RECORDSET: Final = (
    "jsonb_to_recordset(%(rows)s::text::jsonb) AS r(n int, "
    + ", ".join(f"{name} {kind}" for name, kind in _TYPES.items())
    + ")"
)
"""The runs of `as_json` as a table, numbered by ``n`` from 1."""

_AS_TEXT: Final = {"started_at", "decided_at"}
SELECTED: Final = ", ".join(
    f"to_char(l.{name} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')"
    if name in _AS_TEXT
    else f"l.{name}"
    for name in _OF_LOG
)
"""The columns of a run in ``kp.log l``, for `run_of`."""


def as_json(runs: Sequence[SharedRun]) -> str:
    """Return the runs for `RECORDSET`."""
    return json.dumps([_row(number, run) for number, run in enumerate(runs, 1)])


def run_of(values: Sequence[Any]) -> SharedRun:
    """Return a run from the values of `SELECTED`, and of body and redactor if they follow."""
    return SharedRun(**dict(zip(_TYPES, values, strict=False)))


def _row(number: int, run: SharedRun) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(run, name) for name in _TYPES}
    if run.vector is not None:
        row["vector"] = base64.b64encode(run.vector).decode()
    return {"n": number, **row}
