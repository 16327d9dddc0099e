"""The stored data of scored traces that is needed to score and decide them again."""

from typing import TYPE_CHECKING, NamedTuple

from kp_middleware.database import Connection

if TYPE_CHECKING:  # read-only commands load this module without these
    from kp_middleware.core.formula import Score, Shape


class Decided(NamedTuple):
    """The gate's decision on a trace, and the state of its outbox item.

    Attributes:
        domain: The domain of the trace.
        started_at: The start of its run.
        visibility: ``network``, ``org`` or ``private``.
        let_through_at: When it was forwarded; None if it was withheld.
        outbox_state: The state of its outbox item; None if it has none.
        outbox_reason: The reason for that state, or None.
    """

    domain: str
    started_at: str
    visibility: str
    let_through_at: str | None
    outbox_state: str | None
    outbox_reason: str | None


class ScoredTraces:
    """The traces in state ``scored``."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def decided(self, seq: int) -> Decided:
        """Return the gate's decision on one trace."""
        row = self._connection.execute(
            """
            SELECT t.domain, t.started_at, t.visibility,
                   CASE t.decision WHEN 'forward' THEN t.decided_at END, o.state, o.reason
            FROM traces t LEFT JOIN outbox o ON o.trace_seq = t.seq WHERE t.seq = ?
            """,
            (seq,),
        ).fetchone()
        return Decided(*row)

    def shape(self, seq: int) -> "Shape":
        """Return the facts about the steps that scoring needs."""
        from kp_middleware.core.formula import Shape

        steps, tools, recoveries = self._connection.execute(
            "SELECT step_count, tool_count, recovery_count FROM traces WHERE seq = ?", (seq,)
        ).fetchone()
        types = self._connection.execute(
            "SELECT DISTINCT type FROM steps WHERE trace_seq = ?", (seq,)
        ).fetchall()
        kinds = frozenset(kind for (kind,) in types)
        return Shape(steps=steps, types=kinds, tools=tools, recoveries=recoveries)

    def score(self, seq: int) -> "Score":
        """Return the score without adjustments; the id of a removed nearest trace is empty."""
        from kp_middleware.core.formula import Nearest, Score, Signals, Weights

        value, embedder, similarity, nearest, *parts = self._connection.execute(
            """
            SELECT t.score, t.embedder, t.nearest_similarity, n.id,
                   t.complexity, t.novelty, t.tool_diversity, t.outcome_confidence,
                   t.complexity_weight, t.novelty_weight,
                   t.tool_diversity_weight, t.outcome_confidence_weight
            FROM traces t LEFT JOIN traces n ON n.seq = t.nearest_seq WHERE t.seq = ?
            """,
            (seq,),
        ).fetchone()
        return Score(
            value=value,
            signals=Signals(*parts[:4]),
            weights=Weights(*parts[4:]),
            nearest=None if similarity is None else Nearest(nearest or "", similarity),
            embedder=embedder,
        )
