"""Past runs in the order of recording, for rescoring."""

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kp_middleware.core.evaluation import Ending
from kp_middleware.core.formula import SIGNALS, Nearest, Score, Shape, Signals, Weights
from kp_middleware.database import Connection, Queries, VectorTable, from_row
from kp_middleware.instants import epoch_s
from kp_middleware.storage._records import ENDING
from kp_middleware.storage._store import CANCELLED_BY_USER, MAY_HAVE_BEEN_SENT

_KEPT: Final = frozenset({"sending", "sent", "rejected"})

_SELECTED: Final = (
    "(:domain IS NULL OR t.domain = :domain) AND (:since IS NULL OR t.started_at >= :since)"
)
_COLUMNS: Final = f"""
    t.seq, t.id, t.domain, t.started_at, coalesce(t.duration_ms, 0) AS duration_ms, t.visibility,
    t.nearest_seq, t.p_success, t.rank_key, t.credit, t.chosen, f.success_before,
    f.confidence_before, t.gate, t.threshold, t.decision,
    iif(t.decision = 'forward', t.decided_at, NULL) AS let_through_at,
    o.state AS outbox, o.reason AS outbox_reason, {_SELECTED} AS is_selected,
    v.seq AS vector_seq, v.vector,
    (SELECT max(added_at_ms) FROM vectors WHERE trace_seq = t.seq) AS added_at_ms,
    t.step_count, iif(t.step_count = 1, (SELECT type FROM steps WHERE trace_seq = t.seq), NULL)
      AS type, t.tool_count, t.recovery_count, {ENDING},
    {", ".join(f"t.{name}, t.{name}_weight" for name in SIGNALS)},
    coalesce(n.id, t.nearest_id, '') AS nearest_id, t.nearest_similarity, t.score, t.embedder
"""
_FROM: Final = """
    FROM traces t LEFT JOIN outbox o ON o.trace_seq = t.seq
    LEFT JOIN traces n ON n.seq = t.nearest_seq
    LEFT JOIN vectors v ON v.seq = (
      SELECT max(seq) FROM vectors WHERE trace_seq = t.seq AND embedder = :embedder)
    LEFT JOIN feedback f ON f.seq = (SELECT min(seq) FROM feedback WHERE trace_seq = t.seq)
"""
_SCORED: Final = "(t.state = 'scored' OR (t.state = 'failed' AND t.reason_code = 'not_scored'))"
_CHOSEN: Final = f"FROM traces t WHERE {_SCORED} AND {_SELECTED}"


class PastRun(NamedTuple):
    """A run that was scored, or whose scoring failed, with the inputs of an evaluation."""

    seq: int
    id: str
    domain: str
    started_at: str
    duration_ms: int  # 0: not known
    visibility: str
    nearest_seq: int | None  # None: none, or it is not in the file
    p_success: float | None  # when it was ranked first; None: nothing was known
    rank_key: float | None
    credit: float | None
    chosen: bool | None  # by the gate
    success_before: bool | None  # the first feedback; None: there was none
    confidence_before: float | None
    gate: str | None
    threshold: float | None
    decision: str | None
    let_through_at: str | None  # None: withheld
    outbox: str | None  # the state of its item
    outbox_reason: str | None
    is_selected: bool
    vector_seq: int | None  # of its vector by the given embedder
    vector: bytes | None
    added_at_ms: int | None  # when it was first scored
    shape: Shape  # with its type only if it has one step
    ending: Ending  # as far as it is known now
    score: Score | None  # without adjustments; the id of a nearest run that was removed is empty

    @property
    def has_feedback(self) -> bool:
        return self.success_before is not None

    def p_success_then(self, p: float | None) -> float | None:
        """Return the probability of success before any feedback, given a new estimate."""
        if not self.has_feedback:
            p = self.ending.p_success(p)
        elif self.p_success in {0.0, 1.0}:  # it was known
            p = self.p_success
        if p is None or self.p_success is None:
            return p
        return self.p_success if math.isclose(p, self.p_success) else p

    @property
    def was_sent(self) -> bool:
        """True if it was sent, is being sent, may have been sent, or was rejected."""
        return self.outbox in _KEPT or self.outbox_reason == MAY_HAVE_BEEN_SENT

    @property
    def recorded(self) -> tuple[object, ...]:
        """A key that changes if the run is recorded again, as when a paused run resumes."""
        return self.id, self.duration_ms, self.shape.steps, self.vector_seq

    @property
    def may_be_sent(self) -> bool:
        """True unless it is private or was cancelled by the user."""
        return self.visibility != "private" and self.outbox_reason != CANCELLED_BY_USER

    @property
    def ended_ms(self) -> int:
        """The time its vector was added, or else the end of the run, in ms since the epoch."""
        if self.added_at_ms is not None:
            return self.added_at_ms
        return int(epoch_s(self.started_at) * 1000) + self.duration_ms


class PastRuns(Queries):
    """The runs of one file that were scored, or whose scoring failed."""

    def __init__(
        self,
        connection: Connection,
        *,
        domain: str | None = None,
        since: str | None = None,
        embedder: str | None = None,
    ) -> None:
        """Select the runs of a domain, or that started at an instant or later; or all."""
        super().__init__(connection)
        self._embedder = embedder
        self._filter_values = {"domain": domain, "since": since, "embedder": embedder}

    def count(self, *, after: int) -> int:
        sql = f"SELECT count(*) {_CHOSEN} AND t.seq > :after"
        return int(self._value(sql, {**self._filter_values, "after": after}))

    def first(self) -> int | None:
        return self._seq(f"SELECT min(t.seq) {_CHOSEN}", self._filter_values)

    def before(self, seq: int, limit: int) -> list[tuple[str, bytes, int]]:
        """Return the ids, vectors and epoch ms of the last runs before a ``seq``, oldest first."""
        return self._run(
            """
            SELECT t.id, v.vector, v.added_at_ms
            FROM vectors v CROSS JOIN traces t ON t.seq = v.trace_seq
            WHERE v.embedder = :embedder AND v.trace_seq < :seq AND v.trace_seq > coalesce(
              (SELECT trace_seq FROM vectors WHERE embedder = :embedder AND trace_seq < :seq
               ORDER BY trace_seq DESC LIMIT 1 OFFSET :limit), 0)
            ORDER BY v.trace_seq
            """,
            {"embedder": self._embedder, "seq": seq, "limit": limit},
        ).fetchall()

    def after(self, seq: int, limit: int) -> list[PastRun]:
        """Return the next runs after a ``seq``, selected or not."""
        values = {**self._filter_values, "seq": seq, "limit": limit}
        return self._runs("t.seq > :seq ORDER BY t.seq LIMIT :limit", values)

    def run(self, seq: int) -> PastRun | None:
        """Return the current state of a run; None if it was removed or is not scored yet."""
        found = self._runs("t.seq = :seq", {**self._filter_values, "seq": seq})
        return found[0] if found else None

    def _runs(self, which: str, values: Mapping[str, object]) -> list[PastRun]:
        sql = f"SELECT {_COLUMNS} {_FROM} WHERE {_SCORED} AND {which}"
        return [*map(_past_run, self._named(sql, values))]

    def document(self, seq: int) -> str | None:
        return self._text("SELECT body FROM documents WHERE trace_seq = ?", (seq,))

    def mark_scored(self, seq: int) -> None:
        self._run("UPDATE traces SET state = 'scored' WHERE seq = ? AND state = 'failed'", (seq,))

    def add_vector(self, run: PastRun, vector: bytes) -> int:
        """Store a run's vector with the run's own time; return the vector's ``seq``."""
        assert self._embedder is not None  # noqa: S101 - the vector is from it
        vectors = VectorTable(self._connection)
        return vectors.insert(self._embedder, vector, key=run.id, added_at_ms=run.ended_ms)

    def move_vector(self, run: PastRun) -> int:
        """Store a run's vector again as the newest, because readers take the newest ones."""
        assert run.vector is not None  # noqa: S101 - it has one
        self._run("DELETE FROM vectors WHERE seq = ?", (run.vector_seq,))
        return self.add_vector(run, run.vector)

    def rank(self, seq: int, key: float | None, p_success: float | None) -> None:
        """Store the rank key of a run whose score and decision stay."""
        self._run(
            "UPDATE traces SET rank_key = :key, p_success = :p WHERE seq = :seq"
            " AND (rank_key IS NOT :key OR p_success IS NOT :p)",
            {"seq": seq, "key": key, "p": p_success},
        )


def _past_run(row: Mapping[str, Any]) -> PastRun:
    score, types = None, frozenset(filter(None, (row["type"],)))
    if row["score"] is not None:
        near = Nearest(row["nearest_id"], row["nearest_similarity"])
        score = Score(
            row["score"],
            Signals(**{name: row[name] for name in SIGNALS}),
            Weights(**{name: row[f"{name}_weight"] for name in SIGNALS}),
            (),
            None if near.similarity is None else near,
            row["embedder"],
        )
    shape = Shape(row["step_count"], types, row["tool_count"], row["recovery_count"])
    return from_row(PastRun, row, shape=shape, ending=from_row(Ending, row), score=score)
