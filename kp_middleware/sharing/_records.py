"""The records of the shared log, and its rows as JSON for one statement."""

import base64
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar

from kp_middleware.core.evaluation import Evaluation, Verdict
from kp_middleware.core.formula import Adjustment, Nearest, Score, Signals, Weights
from kp_middleware.core.gates import Reason, ReasonCode

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRun:
    """A scored run as a row of ``kp.log``, with its document if that is shared."""

    id: str
    pod: str
    domain: str
    started_at: str
    success: bool
    success_source: str | None
    confidence: float
    signals: tuple[float, ...]
    weights: tuple[float, ...]
    rules: str
    score: float
    threshold: float | None
    gate: str
    decision: str
    reason_code: str
    reason_args: str | None
    rank_key: float | None
    bar: float | None
    credit: float | None
    chosen: bool | None
    scorer: str | None
    embedder: str | None
    nearest: str | None
    nearest_similarity: float | None
    vector: bytes | None = None
    facts: str = "{}"
    decided_at: str | None = None
    body: str | None = None
    redactor: str | None = None

    @classmethod
    def of(cls, evaluation: Evaluation, **told: Any) -> Self:
        """Return the row of a run with an evaluation, and what else is ``told`` of it."""
        score, verdict = evaluation
        near = score.nearest
        return cls(
            signals=tuple(score.signals),
            weights=tuple(score.weights),
            rules=json.dumps([one._asdict() for one in score.adjustments]),
            score=score.value,
            threshold=verdict.threshold,
            gate=verdict.gate,
            decision=verdict.decision,
            reason_code=verdict.reason.code,
            reason_args=json.dumps(dict(verdict.reason.args), ensure_ascii=False),
            rank_key=verdict.key,
            bar=verdict.bar,
            credit=verdict.credit,
            chosen=verdict.chosen,
            embedder=score.embedder,
            nearest=near and near.id,
            nearest_similarity=near and near.similarity,
            **told,
        )

    @property
    def evaluation(self) -> Evaluation:
        """The score and the verdict."""
        nearest = self.nearest_similarity
        score = Score(
            self.score,
            Signals(*self.signals),
            Weights(*self.weights),
            tuple(Adjustment(**one) for one in json.loads(self.rules)),
            None if nearest is None else Nearest(self.nearest or "", nearest),
            self.embedder,
        )
        reason = Reason(ReasonCode(self.reason_code), json.loads(self.reason_args or "{}"))
        verdict = Verdict(
            self.gate,
            self.threshold,
            self.decision,
            reason,
            self.rank_key,
            self.bar,
            self.credit,
            self.chosen,
        )
        return Evaluation(score, verdict)


class SharedItem(NamedTuple):
    """A body for the shared outbox, exactly as it is posted; ``redactions`` are JSON."""

    id: str
    body: bytes
    redactor: str
    redactions: str
    idempotency_key: str


class ItemState(NamedTuple):
    """The state of an item in the shared outbox; times are instants.

    The state is ``gone`` where its run was deleted in the log.
    """

    id: str
    state: str
    reason: str | None
    attempts: int
    http_status: int | None
    last_error: str | None
    sent_at: str | None
    remote_id: str | None


class LoggedVector(NamedTuple):
    """The vector of a run of another pod: float32, little-endian, of unit length."""

    seq: int
    id: str
    embedder: str
    added_at_ms: int
    vector: bytes


class LoggedRun(NamedTuple):
    """A row of the log with its place, and what is known of that run now.

    The kind is ``revision`` where more was told of an earlier one, else ``run``.
    """

    seq: int
    kind: str
    run: SharedRun


class Place(NamedTuple):
    """A place in the log: its last row that is known, with the id that stands there.

    The id tells whether the log is the same as before: after a restore, another stands there.
    Without one, that is not asked.
    """

    seq: int = 0
    anchor: str | None = None

    @classmethod
    def read(cls, text: str | None) -> Self | None:
        """Return a place from JSON, or None."""
        return None if text is None else cls(*json.loads(text))


class Pulled(NamedTuple, Generic[T]):
    """Some rows of the log, ids that were deleted, the place reached, and the last there is."""

    rows: Sequence[T]
    gone: Sequence[str]
    place: Place
    head: int


class LogChangedError(Exception):
    """The log is not the one that a place was in: it was restored, or is another's."""


class Decided(NamedTuple):
    """A decision, to be appended to the log with the body that may go."""

    run: SharedRun
    item: SharedItem | None


_INSTANTS: Final = {"started_at", "decided_at"}
_SQL: Final[dict[object, str]] = {
    str: "text",
    str | None: "text",
    bool: "boolean",
    bool | None: "boolean",
    float: "float8",
    float | None: "float8",
    tuple[float, ...]: "float8[]",
    bytes | None: "text",
}
_TYPES: Final = {
    field.name: "timestamptz" if field.name in _INSTANTS else _SQL[field.type]
    for field in fields(SharedRun)
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

SELECTED: Final = ", ".join(
    f"to_char(l.{name} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')"
    if name in _INSTANTS
    else f"l.{name}"
    for name in _OF_LOG
)
"""The columns of a run in ``kp.log l``, for `run_of`."""


def as_json(runs: Sequence[SharedRun]) -> str:
    """Return the runs for `RECORDSET`."""
    rows = [{**asdict(run), "n": number} for number, run in enumerate(runs, 1)]
    return json.dumps(rows, default=lambda vector: base64.b64encode(vector).decode())


def run_of(values: Sequence[Any]) -> SharedRun:
    """Return a run from the values of `SELECTED`, and of body and redactor if they follow."""
    return SharedRun(**dict(zip(_TYPES, values, strict=False)))
