"""Data from earlier runs: estimates of success, texts for recall, the gate's history."""

import json
import sqlite3
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, Final, NamedTuple

from kp_middleware.core.evaluation import EXTERNAL_SOURCES
from kp_middleware.core.gates import DAY_S, OLDER, Ranking, ScoredRuns
from kp_middleware.database import Connection, Queries
from kp_middleware.instants import epoch_s, instant
from kp_middleware.recall_text import COMPARED_OBJECTIVES, word_weight

EXTERNAL_SQL: Final = ", ".join(f"'{source}'" for source in sorted(EXTERNAL_SOURCES))
_KIND: Final = "score IS NOT NULL AND domain = :domain AND framework IS :framework AND seq < :seq"
_SEEN: Final = (
    f"(SELECT seq FROM traces WHERE {_KIND} ORDER BY seq DESC LIMIT :most) t"
    " JOIN estimates e ON e.trace_seq = t.seq"
)
_LAST: Final = f"FROM traces WHERE {_KIND} ORDER BY seq DESC LIMIT"
_LABELLED: Final = f"""
    SELECT seq, success FROM traces t INDEXED BY traces_labelled
    WHERE {_KIND} AND success_source IN ({EXTERNAL_SQL})
      AND +seq > coalesce((SELECT seq {_LAST} 1 OFFSET :most), 0)
      AND (seq > coalesce((SELECT seq {_LAST} 1 OFFSET :age), 0) OR EXISTS (
        SELECT 1 FROM feedback WHERE trace_seq = t.seq AND success IS NOT NULL
          AND given_at >= (SELECT min(decided_at) FROM (SELECT decided_at {_LAST} :age))))
    ORDER BY seq DESC LIMIT :age
"""
_TRACK_RECORD: Final = f"""
    SELECT count(*), coalesce(sum((p >= 0.5) = success), 0),
           coalesce(sum((base >= 0.5) = success), 0)
    FROM (SELECT e.p, e.base, t.success
          FROM traces t INDEXED BY traces_labelled JOIN estimates e ON e.trace_seq = t.seq
          WHERE t.score IS NOT NULL AND t.domain = ? AND t.framework IS ? AND e.p IS NOT NULL
            AND t.success_source IN ({EXTERNAL_SQL}) ORDER BY t.seq DESC LIMIT ?)
"""


class RunKind(NamedTuple):
    """The domain and framework whose runs share one estimate."""

    domain: str
    framework: str | None


class LabelledRun(NamedTuple):
    seq: int
    success: bool


class TrainingRun(NamedTuple):
    seq: int
    features: bytes  # float32, little-endian, like the vector
    vector: bytes | None  # None: no vector of this embedder
    p: float | None  # the probability of success, estimated when it ended
    base: float | None  # the base rate at that time


class StoredEstimate(NamedTuple):
    p: float  # the probability of its success
    base: float  # the base rate
    known: int  # the number of labeled runs
    reasons: tuple[tuple[str, float, float], ...]  # feature, z-score, effect on the log-odds


class RunEstimate(NamedTuple):
    """The estimate for a run, with the track record of estimates for runs of its kind."""

    p: float  # the probability of its success, from 0 to 1
    reasons: tuple[tuple[str, float, float], ...]  # as in `StoredEstimate`
    known: int  # recent estimated runs of its domain and framework that are labeled
    right: int  # of those: estimated right
    base_right: int  # of those: the base rate alone was right


class EstimateTable(Queries):
    def for_run(self, seq: int) -> RunEstimate | None:
        row = self._row(
            "SELECT e.p, e.reasons, t.domain, t.framework FROM estimates e"
            " JOIN traces t ON t.seq = e.trace_seq WHERE e.trace_seq = ? AND e.p IS NOT NULL",
            (seq,),
        )
        if row is None:
            return None
        p, reasons, *kind = row
        counts = self._row(_TRACK_RECORD, (*kind, 200))  # known runs in a track record
        return RunEstimate(p, tuple((*one,) for one in json.loads(reasons)), *counts)

    def labelled(self, kind: RunKind, *, before: int, age: int, most: int) -> list[LabelledRun]:
        """Return the runs before a ``seq`` labeled within the last ``age`` runs, newest first.

        Considers the last ``most`` runs.
        """
        values = {**kind._asdict(), "seq": before, "age": age, "most": most}
        return self._all(LabelledRun, _LABELLED, values)

    def count(self, kind: RunKind, *, before: int, most: int) -> int:
        """Count the runs with features among the last before a ``seq``."""
        values = {**kind._asdict(), "seq": before, "most": most}
        return int(self._value(f"SELECT count(*) FROM {_SEEN}", values))

    def seen_features(self, kind: RunKind, *, before: int, most: int) -> list[bytes]:
        """Return the features of the last runs before a ``seq``, labeled or not."""
        values = {**kind._asdict(), "seq": before, "most": most}
        return self._column(f"SELECT e.features FROM {_SEEN}", values)

    def training_runs(self, seqs: Collection[int], embedder: str | None) -> list[TrainingRun]:
        """Return the training data of these runs, in order; skip runs without features."""
        return self._all(
            TrainingRun,
            "SELECT e.trace_seq, e.features, v.vector, e.p, e.base FROM estimates e"
            " LEFT JOIN vectors v ON v.seq = (SELECT max(seq) FROM vectors"
            "   WHERE trace_seq = e.trace_seq AND embedder = :embedder)"
            " WHERE e.trace_seq IN (SELECT value FROM json_each(:seqs)) ORDER BY e.trace_seq",
            {"embedder": embedder, "seqs": json.dumps([*seqs])},
        )

    def save(self, seq: int, features: bytes, estimate: StoredEstimate | None) -> None:
        p, base, known, reasons = (None,) * 4 if estimate is None else estimate
        self._run(
            "INSERT OR REPLACE INTO estimates (trace_seq, features, p, base, known, reasons)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (seq, features, p, base, known, None if reasons is None else json.dumps(reasons)),
        )


MIN_P: Final = 0.8
"""The minimum estimate of a success that is recalled."""

_MIN_LABELLED: Final = 20  # runs behind such an estimate
_SAMPLE: Final = 1000  # newest runs whose words are counted
_MAX_ROWS: Final = 3_000  # to rank
_KNOWN: Final = f"""(
    t.success_source IN ('said', {EXTERNAL_SQL}) OR EXISTS (
         SELECT 1 FROM estimates e JOIN traces s ON s.seq = e.trace_seq
         WHERE e.trace_seq = t.seq AND e.known >= {_MIN_LABELLED} AND s.p_success >= {MIN_P})
)"""
_ALLOWED: Final = f"""
    t.success = 1 AND t.state = 'scored' AND ({_KNOWN} OR :unconfirmed)
    AND (:domain IS NULL OR t.domain = :domain) AND (:since IS NULL OR t.started_at >= :since)
    AND (t.owner = :owner OR :owner IS NULL
         AND NOT EXISTS (SELECT 1 FROM traces WHERE owner IS NOT NULL))
"""
_CANDIDATES: Final = f"""
    SELECT f.seq, f.words, a.embedder, a.vector
    FROM (SELECT m.seq, m.words
          FROM (SELECT s.rowid AS seq, sum(w.value) AS words
                FROM json_each(:weights) w CROSS JOIN asked_fts s ON s.asked_fts MATCH w.key
                GROUP BY 1) m
            CROSS JOIN traces t INDEXED BY traces_done ON t.seq = m.seq
          WHERE {_ALLOWED}
          ORDER BY 2 DESC, 1 DESC LIMIT :most) f
      JOIN asked a ON a.trace_seq = f.seq
    ORDER BY 2 DESC, 1 DESC
"""
_HAS_SUCCESS: Final = f"""
    SELECT EXISTS (
        SELECT 1 FROM traces t WHERE t.success = 1 AND t.state = 'scored' AND {_KNOWN})
"""
_COUNTS: Final = """
    SELECT value, (SELECT count(*) FROM asked_fts WHERE asked_fts MATCH value AND rowid > :first)
    FROM json_each(:words)
"""
_USER_TEXTS: Final = """
    SELECT trace_seq, substr(said, 1, 4000) FROM asked
    WHERE trace_seq IN (SELECT value FROM json_each(:seqs))
"""
_EFFECTS: Final = f"""
    SELECT recalled IS NOT NULL, count(*), count(known), round(avg(known), 4),
           round(avg(step_count), 2), round(avg(recovery_count), 2), round(avg(tokens), 1)
    FROM (SELECT *, iif(success_source IN ({EXTERNAL_SQL}), success, NULL) AS known,
                 input_tokens + output_tokens AS tokens FROM traces
          WHERE state = 'scored'
            AND seq >= (SELECT min(seq) FROM traces WHERE recalled IS NOT NULL))
    GROUP BY 1 ORDER BY 1 DESC
"""


class RecallFilter(NamedTuple):
    domain: str | None = None
    owner: str | None = None  # a fingerprint; None: recall nothing if any run has an owner
    since: str | None = None  # the earliest start
    unconfirmed: bool = False  # include runs with an unconfirmed success


class RecallCandidate(NamedTuple):
    seq: int
    words: float  # the total weight of the shared words
    embedder: str | None
    vector: bytes | None  # of the first line of its user text: int8


class RecallEffect(NamedTuple):
    """The outcomes of runs with recall, or of those without it since the first with it."""

    recalled: bool
    traces: int
    known: int  # with a known outcome
    success: float | None  # the success rate of those, from 0 to 1
    mean_steps: float
    mean_errors: float  # recovered errors
    mean_tokens: float | None  # input and output; None: not reported


class RecallTable(Queries):
    """The user texts of the runs in one file."""

    def word_frequencies(self, words: Sequence[str]) -> dict[str, float]:
        """Return the share of the newest runs that contain each word: never 0 or 1."""
        first = self._last() - _SAMPLE
        runs = self._value("SELECT count(*) FROM asked WHERE trace_seq > ?", (first,))
        if not runs:
            return {}
        least = 2 / (runs + 2)  # with few runs no word counts as rare
        counts = self._counts(words[:64])
        return {word: max(least, (count + 0.5) / (runs + 1)) for word, count in counts.items()}

    def common_words(self, words: Collection[str]) -> set[str]:
        """Return the words that several of the newest runs contain."""
        return {word for word, count in self._counts(words).items() if count > 1}

    def candidates(
        self, shares: Mapping[str, float], allowed: RecallFilter, *, limit: int
    ) -> list[RecallCandidate]:
        """Return the runs that share most words with the task, best first.

        In a large file the most frequent words are skipped: they weigh little and are slow.
        """
        runs, budget, weights = self._last(), _MAX_ROWS, dict[str, float]()
        for word, share in sorted(shares.items(), key=itemgetter(1)):
            budget -= int(share * runs)
            if budget < 0 and weights:
                break
            weights[_quoted(word)] = word_weight(share)
        if not weights or budget < -_MAX_ROWS:
            return []
        values = {"weights": json.dumps(weights), "most": limit, **allowed._asdict()}
        return self._all(RecallCandidate, _CANDIDATES, values)

    def has_successes(self) -> bool:
        """Return True if any run is confirmed or confidently estimated to have succeeded."""
        return bool(self._value(_HAS_SUCCESS))

    def user_texts(self, seqs: Sequence[int]) -> dict[int, str]:
        return dict(self._run(_USER_TEXTS, {"seqs": json.dumps(seqs)}))

    def latest_objectives(self) -> list[str]:
        sql = "SELECT objective FROM traces ORDER BY seq DESC LIMIT ?"
        return self._column(sql, (COMPARED_OBJECTIVES,))

    def effects(self) -> list[RecallEffect]:
        """Compare runs with and without recall, since the first with it."""
        return self._all(RecallEffect, _EFFECTS)

    def _counts(self, words: Collection[str]) -> dict[str, int]:
        quoted = {_quoted(word): word for word in words}
        values = {"first": self._last() - _SAMPLE, "words": json.dumps([*quoted])}
        return {quoted[phrase]: count for phrase, count in self._run(_COUNTS, values)}

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


class GateQueries(Queries):
    def __init__(
        self, connection: Connection, domain: str, seq: int, *, let_through_at: str | None = None
    ) -> None:
        super().__init__(connection)
        self.rank_key = 0.0
        self.read_error: sqlite3.Error | None = None
        self._let_through_at = let_through_at
        self._values: dict[str, object] = {"domain": domain, "seq": seq}

    def ranking(self, gate: str, last: int) -> Ranking:
        """Return the last scored runs of the domain, and what the gate of this name chose."""
        values = {**self._values, "gate": gate, "last": last}
        ranking = Ranking(last)
        for key, is_of_gate, chosen, credit in reversed(self._rows(_RANKED, values)):
            gone = bool(is_of_gate and chosen)
            ranking.add(key, chosen=gone, credit=credit if is_of_gate else None)
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
            self.read_error = error
            raise


_SCORED: Final = """
    SELECT score, rank_key, (visibility = 'private') + 2 * iif(
             success AND coalesce(success_source, 'assumed') = 'assumed', 2, success){older}{times}
    FROM traces INDEXED BY traces_ranked WHERE score IS NOT NULL AND domain = :domain ORDER BY seq
"""
_STARTED: Final = """
    SELECT min(started_at), max(started_at) FROM traces INDEXED BY traces_counted
    WHERE score IS NOT NULL AND visibility <> 'private' AND started_at >= :since
      AND (:domain IS NULL OR domain = :domain)
"""


class ScoredHistory(Queries):
    """The scored runs of one file, to replay the gate."""

    def scored_runs(
        self, domains: Iterable[str], *, since: str = "", timed: bool = False
    ) -> dict[str, ScoredRuns]:
        """Return the scored runs of each domain to replay the gate, timed for a daily limit.

        Those that began before an instant are `OLDER`.
        """
        older = f" + {OLDER} * (started_at < :since)" if since else ""
        times = ", seq, coalesce(decided_at, started_at)" if timed else ""
        sql, width, found = _SCORED.format(older=older, times=times), 5 if timed else 3, {}
        for name in domains:  # values, not rows: rows make the garbage collector run
            values = [*chain.from_iterable(self._run(sql, {"domain": name, "since": since}))]
            found[name] = ScoredRuns(*(values[place::width] for place in range(width)))
        return found

    def days_of_scored_runs(self, domain: str | None = None, *, since: str = "") -> float:
        """Return the days from the start of the first scored run to the last's, without private."""
        first, last = self._row(_STARTED, {"domain": domain, "since": since})
        return (epoch_s(last) - epoch_s(first)) / DAY_S if first else 0.0
