"""What the estimate of success reads of earlier runs, and what it said of each."""

import json
from collections.abc import Collection
from typing import Final, NamedTuple

from kp_middleware.core.evaluation import TOLD
from kp_middleware.database import Queries

TOLD_SQL: Final = ", ".join(f"'{source}'" for source in sorted(TOLD))
_RECORD: Final = 200  # known runs that a track record counts
_KIND: Final = "score IS NOT NULL AND domain = :domain AND framework IS :framework AND seq < :seq"
_SEEN: Final = (
    f"(SELECT seq FROM traces WHERE {_KIND} ORDER BY seq DESC LIMIT :most) t"
    " JOIN estimates e ON e.trace_seq = t.seq"
)
_TRACK_RECORD: Final = f"""
    SELECT count(*), coalesce(sum((p >= 0.5) = success), 0),
           coalesce(sum((base >= 0.5) = success), 0)
    FROM (SELECT e.p, e.base, t.success
          FROM traces t INDEXED BY traces_ranked JOIN estimates e ON e.trace_seq = t.seq
          WHERE t.score IS NOT NULL AND t.domain = ? AND t.framework IS ? AND e.p IS NOT NULL
            AND t.success_source IN ({TOLD_SQL}) ORDER BY t.seq DESC LIMIT ?)
"""


class Kind(NamedTuple):
    """The runs that one estimate learns from."""

    domain: str
    framework: str | None


class KnownRun(NamedTuple):
    """A run of which somebody has told how it ended."""

    seq: int
    success: bool


class LearnedRun(NamedTuple):
    """The part of a known run that the estimate learns from."""

    seq: int
    features: bytes  # float32, little-endian; so is the vector
    vector: bytes | None  # None: none of this embedder
    p: float | None  # what was estimated when it ended
    base: float | None  # the base rate then


class StoredEstimate(NamedTuple):
    """The estimate made when a run ended."""

    p: float  # the probability of its success
    base: float  # the base rate
    known: int  # of how many runs it was told how they ended
    reasons: tuple[
        tuple[str, float, float], ...
    ]  # a feature, how unusual it is, what it adds to the log-odds


class RunEstimate(NamedTuple):
    """What was estimated of a run, and how well that has done so far on runs of its kind.

    Attributes:
        p: The probability of its success, from 0 to 1.
        reasons: The main ones, as `StoredEstimate` has them.
        known: How many of the last estimated runs of its domain and framework are known by now.
        right: On how many of those the estimate was; likewise ``base_right``, the base rate.
    """

    p: float
    reasons: tuple[tuple[str, float, float], ...]
    known: int
    right: int
    base_right: int


class EstimateTable(Queries):
    """The features of the runs in one file, with what was estimated."""

    def of(self, seq: int) -> RunEstimate | None:
        """Return what was estimated when a run ended; None without an estimate."""
        row = self._row(
            "SELECT e.p, e.reasons, t.domain, t.framework FROM estimates e"
            " JOIN traces t ON t.seq = e.trace_seq WHERE e.trace_seq = ? AND e.p IS NOT NULL",
            (seq,),
        )
        if row is None:
            return None
        p, reasons, *kind = row
        counts = self._row(_TRACK_RECORD, (*kind, _RECORD))
        return RunEstimate(p, tuple((*one,) for one in json.loads(reasons)), *counts)

    def known(self, kind: Kind, *, before: int, age: int) -> list[KnownRun]:
        """Return the known runs among the last ones before a ``seq``, the newest first."""
        return self._all(
            KnownRun,
            f"SELECT seq, success FROM (SELECT seq, success, success_source FROM traces"
            f" WHERE {_KIND} ORDER BY seq DESC LIMIT :age) WHERE success_source IN ({TOLD_SQL})",
            {**kind._asdict(), "seq": before, "age": age},
        )

    def count(self, kind: Kind, *, before: int, most: int) -> int:
        """Count those of the last runs before a ``seq`` that have features."""
        values = {**kind._asdict(), "seq": before, "most": most}
        return int(self._value(f"SELECT count(*) FROM {_SEEN}", values))

    def seen(self, kind: Kind, *, before: int, most: int) -> list[bytes]:
        """Return the features of the last runs before a ``seq``, known or not."""
        values = {**kind._asdict(), "seq": before, "most": most}
        return self._column(f"SELECT e.features FROM {_SEEN}", values)

    def learned(self, seqs: Collection[int], embedder: str | None) -> list[LearnedRun]:
        """Return what is learned from runs that have features, in order."""
        return self._all(
            LearnedRun,
            "SELECT e.trace_seq, e.features, v.vector, e.p, e.base FROM estimates e"
            " LEFT JOIN vectors v ON v.seq = (SELECT max(seq) FROM vectors"
            "   WHERE trace_seq = e.trace_seq AND embedder = :embedder)"
            " WHERE e.trace_seq IN (SELECT value FROM json_each(:seqs)) ORDER BY e.trace_seq",
            {"embedder": embedder, "seqs": json.dumps([*seqs])},
        )

    def save(self, seq: int, features: bytes, said: StoredEstimate | None) -> None:
        p, base, known, reasons = (None,) * 4 if said is None else said
        self._run(
            "INSERT OR REPLACE INTO estimates (trace_seq, features, p, base, known, reasons)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (seq, features, p, base, known, None if reasons is None else json.dumps(reasons)),
        )
