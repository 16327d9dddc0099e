"""What earlier runs teach: estimates of success, texts to recall runs by, the gate's history."""

import json
import sqlite3
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kp_middleware.asked import COMPARED, telling
from kp_middleware.core.evaluation import TOLD
from kp_middleware.core.gates import DAY_S, Ranking
from kp_middleware.database import Connection, Queries
from kp_middleware.instants import epoch_s, instant

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
    """The estimate of a run, and the record of such estimates so far on runs of its kind.

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


_SURE: Final = 0.8  # an estimate below this is no knowledge
_LEARNED: Final = 20  # nor is one that knows how fewer runs than this ended
_SAMPLE: Final = 1000  # of the newest runs, in which words are counted
_MOST_ROWS: Final = 3_000  # that are ranked
_MOST_WORDS: Final = 64
_READ_CHARS: Final = 4_000
_KNOWN: Final = f"""(
    t.success_source IN ('said', {TOLD_SQL}) OR EXISTS (
         SELECT 1 FROM estimates e JOIN traces s ON s.seq = e.trace_seq
         WHERE e.trace_seq = t.seq AND e.known >= {_LEARNED} AND s.p_success >= {_SURE})
)"""
_ALLOWED: Final = f"""
    t.success = 1 AND t.state = 'scored' AND ({_KNOWN} OR :unconfirmed)
    AND (:domain IS NULL OR t.domain = :domain) AND (:since IS NULL OR t.started_at >= :since)
    AND (t.owner = :owner OR :owner IS NULL
         AND NOT EXISTS (SELECT 1 FROM traces WHERE owner IS NOT NULL))
"""
_FITTING: Final = f"""
    SELECT f.seq, f.words, a.embedder, a.vector
    FROM (SELECT m.seq, m.words
          FROM (SELECT s.rowid AS seq, sum(w.value) AS words
                FROM json_each(:telling) w CROSS JOIN asked_fts s ON s.asked_fts MATCH w.key
                GROUP BY 1) m
            CROSS JOIN traces t INDEXED BY traces_done ON t.seq = m.seq
          WHERE {_ALLOWED}
          ORDER BY 2 DESC, 1 DESC LIMIT :most) f
      JOIN asked a ON a.trace_seq = f.seq
    ORDER BY 2 DESC, 1 DESC
"""
_IS_THERE: Final = f"""
    SELECT EXISTS (
        SELECT 1 FROM traces t WHERE t.success = 1 AND t.state = 'scored' AND {_KNOWN})
"""
_COUNTS: Final = """
    SELECT value, (SELECT count(*) FROM asked_fts WHERE asked_fts MATCH value AND rowid > :first)
    FROM json_each(:words)
"""
_SAID: Final = f"""
    SELECT trace_seq, substr(said, 1, {_READ_CHARS}) FROM asked
    WHERE trace_seq IN (SELECT value FROM json_each(:seqs))
"""
_EFFECTS: Final = f"""
    SELECT recalled IS NOT NULL, count(*), count(known), round(avg(known), 4),
           round(avg(step_count), 2), round(avg(recovery_count), 2), round(avg(tokens), 1)
    FROM (SELECT *, iif(success_source IN ({TOLD_SQL}), success, NULL) AS known,
                 input_tokens + output_tokens AS tokens FROM traces
          WHERE state = 'scored'
            AND seq >= (SELECT min(seq) FROM traces WHERE recalled IS NOT NULL))
    GROUP BY 1 ORDER BY 1 DESC
"""


class Question(NamedTuple):
    """A filter of the runs that may be recalled."""

    domain: str | None = None
    owner: str | None = None  # a fingerprint; None: nothing if any run of the file has one
    since: str | None = None  # started then or later
    unconfirmed: bool = False  # also runs whose success nobody confirmed


class Candidate(NamedTuple):
    """A run that may be recalled."""

    seq: int
    words: float  # how telling those are that people said here, too
    embedder: str | None
    vector: bytes | None  # of the first line of what people said: int8


class RecallEffect(NamedTuple):
    """The outcomes of runs with a recall, or without one since the first that had one."""

    recalled: bool
    traces: int
    known: int  # of which the success is known
    success: float | None  # their share, from 0 to 1
    mean_steps: float
    mean_errors: float  # that it recovered from
    mean_tokens: float | None  # read and written; None where no model told


class RecallTable(Queries):
    """The words of people in the runs of one file."""

    def shares(self, words: Sequence[str]) -> dict[str, float]:
        """Return for each word in which share of the newest runs people said it: never 0 or 1."""
        first = self._last() - _SAMPLE
        runs = self._value("SELECT count(*) FROM asked WHERE trace_seq > ?", (first,))
        if not runs:
            return {}
        least = 2 / (runs + 2)  # a few runs cannot tell which words are rare
        counts = self._counts(words[:_MOST_WORDS])
        return {word: max(least, (count + 0.5) / (runs + 1)) for word, count in counts.items()}

    def common(self, words: Collection[str]) -> set[str]:
        """Return those words that people said in several of the newest runs."""
        return {word for word, count in self._counts(words).items() if count > 1}

    def candidates(
        self, shares: Mapping[str, float], allowed: Question, *, most: int
    ) -> list[Candidate]:
        """Return the runs whose people's words fit best, the best first.

        Words that most runs have are left out where there are many runs: they tell little, and
        take long.
        """
        runs, left, words = self._last(), _MOST_ROWS, dict[str, float]()
        for word, share in sorted(shares.items(), key=lambda one: one[1]):
            left -= int(share * runs)
            if left < 0 and words:
                break
            words[_quoted(word)] = telling(share)
        if not words or left < -_MOST_ROWS:
            return []
        values = {"telling": json.dumps(words), "most": most, **allowed._asdict()}
        return self._all(Candidate, _FITTING, values)

    def has_a_success(self) -> bool:
        """Return whether any run is known, or estimated with some certainty, to have succeeded."""
        return bool(self._value(_IS_THERE))

    def said(self, seqs: Sequence[int]) -> dict[int, str]:
        return dict(self._run(_SAID, {"seqs": json.dumps(seqs)}))

    def latest_objectives(self) -> list[str]:
        sql = "SELECT objective FROM traces ORDER BY seq DESC LIMIT ?"
        return self._column(sql, (COMPARED,))

    def effects(self) -> list[RecallEffect]:
        """Return how runs went with a recall and without, since the first with one."""
        return self._all(RecallEffect, _EFFECTS)

    def _counts(self, words: Collection[str]) -> dict[str, int]:
        quoted = {_quoted(word): word for word in words}
        values = {"first": self._last() - _SAMPLE, "words": json.dumps([*quoted])}
        return {quoted[one]: count for one, count in self._run(_COUNTS, values)}

    def _last(self) -> int:
        return int(self._value("SELECT coalesce(max(trace_seq), 0) FROM asked"))


def _quoted(word: str) -> str:
    return '"' + word.replace('"', '""') + '"'


_RANKED: Final = """
    SELECT rank_key, gate = :gate, chosen, credit FROM traces
    WHERE score IS NOT NULL AND domain = :domain AND seq < :seq ORDER BY seq DESC LIMIT :last
"""
_LATER_CREDIT: Final = """
    SELECT credit FROM traces
    WHERE score IS NOT NULL AND domain = :domain AND seq > :seq AND gate = :gate
      AND credit IS NOT NULL AND (SELECT score IS NULL FROM traces WHERE seq = :seq)
    ORDER BY seq DESC LIMIT 1
"""
"""The credit of a later run that was ranked before this one: the two processes share it."""


class GateHistory(Queries):
    """The scores and decisions before one run."""

    def __init__(
        self, connection: Connection, domain: str, seq: int, *, let_through_at: str | None = None
    ) -> None:
        super().__init__(connection)
        self.rank_key = 0.0
        self.trouble: sqlite3.Error | None = None
        self._let_through_at = let_through_at
        self._values: dict[str, object] = {"domain": domain, "seq": seq}

    def ranking(self, gate: str, last: int) -> Ranking:
        """Return the last scored runs of the domain, and what the gate of this name chose."""
        values = {**self._values, "gate": gate, "last": last}
        ranking = Ranking(last)
        for key, is_of_gate, chosen, credit in reversed(self._rows(_RANKED, values)):
            gone = bool(is_of_gate and chosen)
            ranking.add(key, gone=gone, credit=credit if is_of_gate else None)
        for (credit,) in self._rows(_LATER_CREDIT, values):
            ranking.credit = credit
        return ranking

    def forwarded_in_a_day(self) -> int:
        """Count the other runs, none private, that were forwarded in the last 24 hours."""
        then = self._let_through_at
        then_s = time.time() if then is None else epoch_s(then)
        ((count,),) = self._rows(
            "SELECT count(*) FROM traces WHERE decision = 'forward' AND visibility <> 'private'"
            " AND decided_at BETWEEN :since AND :now AND seq <> :seq",
            {**self._values, "since": instant(then_s - DAY_S), "now": instant(then_s)},
        )
        return int(count)

    def _rows(self, query: str, values: dict[str, object]) -> list[tuple[Any, ...]]:
        try:
            return self._run(query, values).fetchall()
        except sqlite3.Error as error:
            self.trouble = error
            raise
