"""The runs that were scored before, in the order of their places: what scoring anew needs."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from kp_middleware.database import Connection
from kp_middleware.instants import epoch_s
from kp_middleware.storage._rescue import LOST_ON_ITS_WAY
from kp_middleware.storage._trace_store import CANCELLED_BY_HAND

_KEPT: Final = frozenset({"sending", "sent", "rejected"})

_SELECTED: Final = (
    "(:domain IS NULL OR t.domain = :domain) AND (:since IS NULL OR t.started_at >= :since)"
)
_COLUMNS: Final = f"""
    t.seq, t.id, t.domain, t.started_at, coalesce(t.duration_ms, 0),
    t.step_count, t.tool_count, t.recovery_count, t.success, t.confidence,
    t.score, t.novelty, t.rules, t.embedder, t.nearest_seq, t.nearest_similarity,
    t.gate, t.threshold, t.decision, t.visibility,
    CASE t.decision WHEN 'forward' THEN t.decided_at END, o.state, o.reason,
    {_SELECTED},
    v.seq, v.vector,
    (SELECT max(added_at_ms) FROM vectors WHERE trace_seq = t.seq),
    t.complexity, t.tool_diversity, t.outcome_confidence,
    t.complexity_weight, t.novelty_weight, t.tool_diversity_weight, t.outcome_confidence_weight
"""  # noqa: S608 - ours
_MEASURES: Final = 7
_FROM: Final = """
    FROM main.traces t LEFT JOIN outbox o ON o.trace_seq = t.seq
    LEFT JOIN vectors v ON v.seq = (
      SELECT max(seq) FROM vectors WHERE trace_seq = t.seq AND embedder = :embedder)
"""
_SCORED: Final = """
    (t.state = 'scored' OR (t.state = 'failed' AND t.reason_code = 'not_scored'))
"""


class Selection(NamedTuple):
    """Which runs are scored anew: those that fit all that is said here.

    Attributes:
        domain: Of this domain; None means any.
        since: That started at this instant or later; None means at any time.
    """

    domain: str | None = None
    since: str | None = None

    def holds(self, other: "Selection") -> bool:
        """Whether all that another one selects is among this one's."""
        return self.domain in {None, other.domain} and (
            self.since is None or (other.since is not None and self.since <= other.since)
        )


class PastRun(NamedTuple):
    """One run that was scored, or could not be.

    Attributes:
        seq: Its place.
        id: Of its trace.
        domain: Its domain.
        started_at: An instant.
        duration_ms: 0 where it is not known.
        steps: How many there really were; likewise ``tools`` and ``recoveries``.
        success: 1 or 0.
        confidence: 0 to 1.
        score: From 0 to 1; None where it could not be scored.
        novelty: One of the four signals.
        rules: Those that fired, as JSON.
        embedder: The fingerprint of what novelty was measured with; None: it was not measured.
        nearest_seq: The nearest run before; None where there was none, or where it is gone.
        nearest_similarity: How near it was; None where there was none.
        gate: Which gate decided, with its ``threshold``.
        decision: ``forward`` or ``withhold``.
        visibility: ``private`` never leaves.
        let_through_at: When it was let through, an instant; None where it was withheld.
        outbox: The state of its row in the outbox; None where it has none.
        outbox_reason: Why it is in that state.
        is_selected: Whether it is to be scored anew.
        vector_seq: Of its vector by the embedder that was asked for; None where it has none.
        vector: That vector: float32, little-endian.
        added_at_ms: When it was scored first, in ms since the epoch; None where nothing tells.
        measures: The other three signals, then the four weights.
    """

    seq: int
    id: str
    domain: str
    started_at: str
    duration_ms: int
    steps: int
    tools: int
    recoveries: int
    success: int
    confidence: float
    score: float | None
    novelty: float | None
    rules: str
    embedder: str | None
    nearest_seq: int | None
    nearest_similarity: float | None
    gate: str | None
    threshold: float | None
    decision: str | None
    visibility: str
    let_through_at: str | None
    outbox: str | None
    outbox_reason: str | None
    is_selected: bool
    vector_seq: int | None
    vector: bytes | None
    added_at_ms: int | None
    measures: tuple[float | None, ...]

    @property
    def has_left(self) -> bool:
        """Whether it was sent, is on its way, may have been, or was rejected: then it stays so."""
        return self.outbox in _KEPT or self.outbox_reason == LOST_ON_ITS_WAY

    @property
    def recorded(self) -> tuple[object, ...]:
        """What differs where it was recorded anew: one that was paused goes on in its place."""
        return self.id, self.duration_ms, self.steps, self.vector_seq

    @property
    def may_leave(self) -> bool:
        """Whether nobody has said that it is to stay."""
        return self.visibility != "private" and self.outbox_reason != CANCELLED_BY_HAND

    @property
    def ended_ms(self) -> int:
        """When it was remembered, in ms since the epoch."""
        if self.added_at_ms is not None:
            return self.added_at_ms
        return int(epoch_s(self.started_at) * 1000) + self.duration_ms


class Remembered(NamedTuple):
    """One vector of a run before: float32, little-endian; and when it was added, in epoch ms."""

    key: str
    vector: bytes
    added_at_ms: int


class PastRuns:
    """The runs of one file that were scored, or could not be.

    Args:
        connection: To the file.
        selection: Which of them are meant to be scored anew.
        embedder: The fingerprint of today's embedder: no other vectors are looked at. None: there
            is no embedder.
    """

    def __init__(self, connection: Connection, selection: Selection, embedder: str | None) -> None:
        self._connection = connection
        self._embedder = embedder
        self._asked = {**selection._asdict(), "embedder": embedder}

    def count(self, *, after: int) -> int:
        """How many are selected beyond a place."""
        (count,) = self._connection.execute(
            f"SELECT count(*) FROM main.traces t"  # noqa: S608 - ours
            f" WHERE {_SCORED} AND {_SELECTED} AND t.seq > :after",
            {**self._asked, "after": after},
        ).fetchone()
        return int(count)

    def first(self) -> int | None:
        """The place of the first that is selected; None if none is."""
        row = self._connection.execute(
            f"SELECT t.seq FROM main.traces t"  # noqa: S608 - ours
            f" WHERE {_SCORED} AND {_SELECTED} ORDER BY t.seq LIMIT 1",
            self._asked,
        ).fetchone()
        return None if row is None else int(row[0])

    def before(self, seq: int, limit: int) -> Iterator[Remembered]:
        """What is remembered of the last runs before a place, the oldest first."""
        rows = self._connection.execute(
            """
            SELECT t.id, v.vector, v.added_at_ms
            FROM vectors v CROSS JOIN main.traces t ON t.seq = v.trace_seq
            WHERE v.embedder = :embedder AND v.trace_seq < :seq AND v.trace_seq > coalesce(
              (SELECT trace_seq FROM vectors WHERE embedder = :embedder AND trace_seq < :seq
               ORDER BY trace_seq DESC LIMIT 1 OFFSET :limit), 0)
            ORDER BY v.trace_seq
            """,
            {"embedder": self._embedder, "seq": seq, "limit": limit},
        )
        return map(Remembered._make, rows)

    def after(self, seq: int, limit: int) -> list[PastRun]:
        """The next runs beyond a place, selected or not."""
        rows = self._connection.execute(
            f"SELECT {_COLUMNS} {_FROM} WHERE {_SCORED} AND t.seq > :after"
            " ORDER BY t.seq LIMIT :limit",
            {**self._asked, "after": seq, "limit": limit},
        ).fetchall()
        return [*map(_run, rows)]

    def run(self, seq: int) -> PastRun | None:
        """The run of a place as it is now; None where it is gone, or waits to be scored."""
        row = self._connection.execute(
            f"SELECT {_COLUMNS} {_FROM} WHERE {_SCORED} AND t.seq = :seq",
            {**self._asked, "seq": seq},
        ).fetchone()
        return None if row is None else _run(row)

    def document(self, seq: int) -> str | None:
        """Its ReasoningTrace, as JSON; None where it was lost."""
        row = self._connection.execute(
            "SELECT body FROM documents WHERE trace_seq = ?", (seq,)
        ).fetchone()
        return None if row is None else str(row[0])

    def decision(self, seq: int) -> str:
        """What the gate has said of a scored run."""
        row = self._connection.execute(
            "SELECT decision FROM traces WHERE seq = ?", (seq,)
        ).fetchone()
        return str(row[0])

    def mend(self, seq: int) -> None:
        """One that could not be scored can be: its score is about to be stored."""
        self._connection.execute(
            "UPDATE traces SET state = 'scored' WHERE seq = ? AND state = 'failed'", (seq,)
        )

    def add_vector(self, run: PastRun, vector: bytes) -> int:
        """Keep a run's vector by the embedder, stamped with the run's own time."""
        cursor = self._connection.execute(
            "INSERT INTO vectors (trace_seq, key, embedder, added_at_ms, vector)"
            " VALUES (?, ?, ?, ?, ?)",
            (run.seq, run.id, self._embedder, run.ended_ms, vector),
        )
        return int(cursor.lastrowid or 0)

    def move_vector(self, run: PastRun) -> int:
        """Put a run's vector behind all others: whoever reads them takes the last ones."""
        assert run.vector is not None  # noqa: S101 - it has one
        self._connection.execute("DELETE FROM vectors WHERE seq = ?", (run.vector_seq,))
        return self.add_vector(run, run.vector)


def _run(row: tuple[object, ...]) -> PastRun:
    return PastRun._make((*row[:-_MEASURES], row[-_MEASURES:]))
