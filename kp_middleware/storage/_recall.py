"""The runs that may be recalled, and how well what was said in each fits some words."""

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

from kp_middleware.database import Connection
from kp_middleware.storage._estimates import TOLD_SQL

_SURE: Final = 0.8  # an estimate below this is no knowledge
_LEARNED: Final = 20  # nor is one that knows how fewer runs than this ended
_KNOWN: Final = f"""
    (t.success_source IN ({TOLD_SQL}) OR :unconfirmed OR EXISTS (
       SELECT 1 FROM estimates e JOIN traces s ON s.seq = e.trace_seq
       WHERE e.trace_seq = t.seq AND e.known >= {_LEARNED} AND s.p_success >= {_SURE}))
"""  # noqa: S608 - ours
_FITTING: Final = f"""
    SELECT f.rowid, -bm25(asked_fts, 1, 0), a.vector, a.embedder
    FROM asked_fts f JOIN traces t INDEXED BY traces_done ON t.seq = f.rowid
      JOIN asked a ON a.trace_seq = f.rowid
    WHERE asked_fts MATCH :words AND t.success = 1 AND t.state = 'scored'
      AND (:domain IS NULL OR t.domain = :domain)
      AND (t.owner = :owner OR :owner IS NULL
           AND NOT EXISTS (SELECT 1 FROM traces WHERE owner IS NOT NULL))
      AND (:since IS NULL OR t.started_at >= :since) AND {_KNOWN}
    ORDER BY 2 DESC LIMIT :most
"""  # noqa: S608 - ours


class Question(NamedTuple):
    """What is asked of the past.

    Attributes:
        words: Of the task.
        domain: Only runs of this domain; None: of any.
        owner: Only runs of this owner, a fingerprint; None: no runs if any of the file has one.
        since: Only runs that started at this instant or later; None: of any age.
        unconfirmed: Whether runs count whose success nobody confirmed.
    """

    words: Sequence[str]
    domain: str | None = None
    owner: str | None = None
    since: str | None = None
    unconfirmed: bool = False


class Candidate(NamedTuple):
    """A run that may be recalled.

    Attributes:
        seq: The ``seq`` of its trace.
        words: How well the words of people fit: bm25, 0 or more.
        vector: Of what people said: int8; None without one of this embedder.
        embedder: Of the vector.
    """

    seq: int
    words: float
    vector: bytes | None
    embedder: str | None


def candidates(connection: Connection, asked: Question, *, most: int) -> list[Candidate]:
    """Return the runs whose people's words fit best, the best first."""
    words = " OR ".join(json.dumps(word, ensure_ascii=False) for word in asked.words)
    rows = connection.execute(
        _FITTING, {**asked._asdict(), "words": f"said : ({words})", "most": most}
    )
    return [*map(Candidate._make, rows)]
