"""The runs that may be recalled, and how telling the words are that they share with a task."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from kp_middleware.asked import COMPARED, telling
from kp_middleware.database import Queries
from kp_middleware.storage._estimates import TOLD_SQL

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
    """What people said in the runs of one file."""

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
