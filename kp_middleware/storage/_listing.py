"""Queries for many runs: filters, orders, and full-text search."""

import json
import re
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from kp_middleware.database import DISTINCT, Queries, prefix_range
from kp_middleware.errors import TraceNotFoundError
from kp_middleware.reasons import outbox_reason_text, reason_text
from kp_middleware.storage._records import Embedding, RunSummary

_ID_PREFIX: Final = "kp:trace:"
_CANDIDATES: Final = 5
_NAMES: Final = {
    "@last": "SELECT max(seq) FROM traces",
    "@best": "SELECT coalesce((SELECT seq FROM traces WHERE score IS NOT NULL"
    " ORDER BY score DESC, seq DESC LIMIT 1), max(seq)) FROM traces",
}
_BEGINNING: Final = """
    SELECT seq, min(id) AS id FROM (
      SELECT seq, id FROM traces WHERE id >= :start AND id < :end
      UNION ALL SELECT trace_seq, id FROM aliases WHERE id >= :start AND id < :end
    ) GROUP BY seq ORDER BY id LIMIT :limit
"""


def whole_id(name: str) -> str:
    """Add the ``kp:trace:`` that people omit to the beginning of an id."""
    return _ID_PREFIX + name.removeprefix(_ID_PREFIX)


_UNDIVIDED: Final = (
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2190-\u2bff\u3040-\u30ff\u3400-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9f\U0001f000-\U0001faff\U00020000-\U0003ffff]"
)
"""The scripts written without spaces, which FTS5 treats as one long word, and emoji, which it
ignores."""

_GRAMMAR: Final = re.compile(r"[:(){}^+]|\b(OR|NOT|NEAR)\b")


def undivided_words(text: str) -> list[str]:
    """Split a query into words to search with LIKE; return none if FTS5 can handle it.

    >>> undivided_words('"天気 予報" Tokyo'), undivided_words("天 OR 気")
    (['天気', '予報', 'Tokyo'], [])
    """
    if not re.search(_UNDIVIDED, text) or _GRAMMAR.search(text):
        return []
    text = text.encode(errors="replace").decode()  # SQLite refuses lone surrogates
    words = (word.rstrip("*") for word in text.replace('"', " ").split() if word != "AND")
    return [word for word in words if word]


_OUTCOME: Final = (
    "CASE WHEN coalesce(t.success_source, 'assumed') = 'assumed' THEN 'not known'"
    " WHEN t.success THEN 'succeeded' ELSE 'failed' END"
)

SORTS: Final[Mapping[str, str]] = {
    "domain": "t.domain",
    "outcome": _OUTCOME,
    "state": "(SELECT h.state FROM history h WHERE h.seq = t.seq)",
    "started": "t.started_at",
    "score": "t.score",
    "novelty": "t.novelty",
    "duration": "t.duration_ms",
    "tokens": "t.input_tokens + t.output_tokens",
    "steps": "t.step_count",
}
"""The values by which a page of runs is sorted; runs without the value come last."""

_RECENT: Final = 2_000  # runs whose values are offered as filters

COUNTED: Final = 100_000
"""The default limit of `History.count_runs`."""

_COLUMNS: Final = (
    "h.id, h.started_at, h.domain, h.score,"
    " iif(h.margin = 0, coalesce(t.score - t.threshold, 0), h.margin),"  # it is rounded
    " t.success, h.step_count, h.tool_count, t.duration_ms, h.state, h.reason,"
    " t.reason_code, h.objective, {snippet}, t.threshold, h.seq,"
    " coalesce(t.success_source, 'assumed'), t.input_tokens + t.output_tokens,"
    " t.novelty, t.pod, t.reason_args"
)
FROM: Final = "FROM traces t LEFT JOIN outbox o ON o.trace_seq = t.seq"
_ANYWHERE: Final = "(t.objective LIKE :{0} ESCAPE '!' OR t.result_summary LIKE :{0} ESCAPE '!')"
_EXCERPT: Final = """
(SELECT iif(at > 25, '…', '')
            || replace(substr(text, max(1, at - 24), 96), :first, :begin || :first || :end)
            || iif(length(text) > at + 72, '…', '')
     FROM (SELECT text, instr(text, :first) AS at FROM (
       SELECT iif(instr(t.objective, :first), t.objective, t.result_summary) AS text)))
"""
_GIVEN: Final = "SELECT value AS seq FROM json_each(:seqs)"
_GIVEN_AND_FOUND: Final = f"""
    SELECT rowid AS seq, snippet(traces_fts, -1, :begin, :end, '…', 16) AS snippet
    FROM traces_fts WHERE traces_fts MATCH :text AND rowid IN ({_GIVEN})
"""
_SEARCH_NAMES: Final = ("text", "first", "begin", "end")
_SIDES: Final = {"t.margin >= 0": "margin", "t.margin < 0": "margin DESC"}

_UNSENT: Final = "o.state IS NULL AND t.state = :state"
_WAITING: Final = "t.score IS NULL AND " + _UNSENT  # as in the index
_SCORED: Final = "o.state IS NULL AND t.state = 'scored' AND t.decision"
_ENDED: Final = frozenset(("scored", "incomplete", "failed"))
_BEGIN: Final = """
    SELECT CASE :first WHEN 0 THEN (SELECT coalesce(max(seq), 0) FROM traces) ELSE
             coalesce((SELECT seq - 1 FROM traces WHERE state NOT IN ('recorded', 'paused')
                       ORDER BY seq DESC LIMIT 1 OFFSET max(:first - 1, 0)), 0) END,
           (SELECT json_group_array(seq) FROM traces
            WHERE score IS NULL AND state IN ('recorded', 'paused'))
"""  # one statement, so that both halves see the same traces
_NEW: Final = """
    SELECT seq, state FROM traces
    WHERE seq > :last OR seq IN (SELECT value FROM json_each(:open)) ORDER BY seq
"""
_QUEUED: Final = ("pending", "sending", "sent", "rejected", "blocked", "cancelled")
_STATES: Final = {
    **dict.fromkeys(_QUEUED, "o.state = :state"),
    **dict.fromkeys(("recorded", "paused"), _WAITING),
    **dict.fromkeys(("incomplete", "failed"), _UNSENT),
    "not queued": f"{_SCORED} = 'forward'",
    "withheld": f"{_SCORED} IS NOT 'forward'",
}

STATES: Final = tuple(sorted(_STATES))
"""The states of a trace in the view ``history``."""

_CONDITIONS: Final = {
    "domain": "t.domain = :domain",
    "above": "coalesce(t.above, 0) = :above",
    "tool": "t.seq IN (SELECT trace_seq FROM steps WHERE tool = :tool)",
    "failing": "t.seq IN (SELECT trace_seq FROM steps"
    " WHERE tool = :failing AND type = 'error_recovery')",
    "error": "t.error_type = :error",
    "failed": "t.success = 0 AND t.success_source <> 'assumed'",
    "slower_ms": "t.duration_ms >= :slower_ms",
    "outcome": f"{_OUTCOME} = :outcome",
    "model": "t.model = :model",
    "agent": "t.agent_name = :agent",
    "thread": "t.thread_id = :thread",
    "min_score": "t.score >= :min_score",
    "max_score": "t.score < :max_score",
    "cleared": "t.decision = 'forward'",
    "queued": "o.state IS NOT NULL",
    "since": "t.started_at >= :since",
    "until": "t.started_at < :until",
    "after": "t.seq > :after",
    "text": "t.seq IN (SELECT rowid FROM traces_fts WHERE traces_fts MATCH :text)",
}


class Filters(NamedTuple):
    """Filters for traces; a trace has to match all of them."""

    domain: str | None = None
    above: bool | None = None  # whether the threshold was reached
    state: str | None = None  # one of `STATES`
    tool: str | None = None
    failing: str | None = None
    error: str | None = None
    failed: bool = False  # the task was not done
    slower_ms: float | None = None
    since: str | None = None  # an instant, or later
    after: str | None = None  # recorded after the one with this id prefix; also ``@best``
    text: str | None = None  # words of the objective, the result or a step
    outcome: str | None = None  # ``succeeded``, ``failed`` or ``not known``
    model: str | None = None
    agent: str | None = None
    thread: str | None = None
    min_score: float | None = None  # or more
    max_score: float | None = None  # exclusive
    until: str | None = None  # exclusive
    cleared: bool = False
    queued: bool = False  # is or was in the outbox


_ALL: Final = Filters()


class RunsPage(NamedTuple):
    """Some runs in order; ``next`` continues after them, None at the end."""

    runs: list[RunSummary]
    next: str | None = None


class Listing(Queries):
    """Queries for the runs of one file by their names, or that match some filters."""

    marks = "[", "]"
    """The marks around the words that a search found, in a snippet."""

    def find(self, name: str) -> int:
        """Return the ``seq`` of the run with this id prefix, with or without ``kp:trace:``.

        The ids of parts that were joined to a run also lead to it. ``@last`` is the newest run and
        ``@best`` the one with the highest score.
        """
        if query := _NAMES.get(name):
            seq = self._value(query)
            if seq is None:
                raise TraceNotFoundError(f"there is no run yet for {name}: record a run")
            return int(seq)
        if not name:
            raise TraceNotFoundError("use an id prefix, @last or @best")
        found = list[tuple[int, str]]()
        for start in (whole_id(name), whole_id(name.lower())):
            values = prefix_range(start, limit=_CANDIDATES + 1)
            found = found or self._run(_BEGINNING, values).fetchall()
        if not found:
            remedy = "; valid names: @last, @best" if name.startswith("@") else ""
            raise TraceNotFoundError(f"no run matches {name}{remedy}")
        if len(found) > 1 and whole_id(name) not in (id_ for _, id_ in found):
            ids = [id_.removeprefix(_ID_PREFIX) for _, id_ in found[:_CANDIDATES]]
            matches = f"{', '.join(ids)}{' …' if len(found) > _CANDIDATES else ''}"
            raise TraceNotFoundError(
                f"{name} is ambiguous: type more of the id. Matches: {matches}"
            )
        return found[0][0]  # a complete id may be the prefix of another

    def runs(
        self, filters: Filters = _ALL, *, limit: int, near: bool = False, skip: int = 0
    ) -> list[RunSummary]:
        """Return the runs that match: newest first, or with a ``text`` the best match first.

        Text that FTS5 cannot split into words is searched as a substring, the newest run first.
        """
        where, values = self._where(filters)
        if near:
            sides = " UNION ALL ".join(
                f"SELECT * FROM (SELECT t.seq, abs(t.score - t.threshold) AS far {FROM}"
                f" WHERE {side} AND {where} ORDER BY t.{order}, far, t.seq DESC LIMIT :limit)"
                for side, order in _SIDES.items()
            )
            sql = f"{sides} ORDER BY far, seq DESC"
        elif "text" in values:
            where, _ = self._where(filters._replace(text=None))
            among = f"AND +rowid IN (SELECT t.seq {FROM} WHERE {where})" if where != "TRUE" else ""
            # the plus signs: each match is found once, and only what passes the filters is ranked
            matches = f"traces_fts MATCH :text {among}"
            sql = f"SELECT rowid FROM traces_fts WHERE {matches} ORDER BY +rank"
        else:
            sql = f"SELECT t.seq {FROM} WHERE {where} ORDER BY t.seq DESC"
        values |= {"limit": limit, "skip": skip}
        return self._listed(self._column(f"{sql} LIMIT :limit OFFSET :skip", values), values)

    def page(
        self,
        filters: Filters = _ALL,
        *,
        limit: int,
        sort: str = "started",
        descending: bool = True,
        after: str | None = None,
    ) -> RunsPage:
        """Return the matching runs sorted by one of `SORTS`; ``after`` continues a page."""
        (where, values), key = self._where(filters), SORTS[sort]
        way, sign = ("DESC", "<") if descending else ("ASC", ">")
        values["limit"] = limit + 1
        with suppress(ValueError):  # any other text means no page
            match json.loads(after or "null"):
                case [None, int() as seq]:
                    values["seq"] = seq
                    where += f" AND {key} IS NULL AND t.seq {sign} :seq"
                case [str() | int() | float() as value, int() as seq]:
                    values |= {"value": value, "seq": seq}
                    where += f" AND ({key} IS NULL OR ({key}, t.seq) {sign} (:value, :seq))"
        rows = self._run(
            f"SELECT t.seq, {key} {FROM} WHERE {where}"
            f" ORDER BY {key} {way} NULLS LAST, t.seq {way} LIMIT :limit",
            values,
        ).fetchall()
        last = rows[limit - 1] if len(rows) > limit else None
        more = None if last is None else json.dumps([last[1], last[0]])
        return RunsPage(self._listed([seq for seq, _ in rows[:limit]], values), more)

    def runs_at(self, seqs: Collection[int]) -> list[RunSummary]:
        """Return these runs, the oldest first."""
        return self._listed(sorted(seqs), {})

    def _listed(self, seqs: Sequence[int], values: Mapping[str, Any]) -> list[RunSummary]:
        """Return these runs in this order; those that a search found with their snippets."""
        search = {name: values[name] for name in _SEARCH_NAMES if name in values}
        snippet, found = "NULL", _GIVEN
        if "text" in search:
            snippet, found = "f.snippet", _GIVEN_AND_FOUND
        elif "first" in search:
            snippet = _EXCERPT
        rows = self._run(
            f"SELECT {_COLUMNS.format(snippet=snippet)}"
            f" FROM ({found}) f JOIN history h ON h.seq = f.seq JOIN traces t ON t.seq = f.seq",
            {**search, "seqs": json.dumps(seqs)},
        )
        runs = {run.seq: run for run in map(_summary, rows)}
        letter = rf"[^\s{re.escape(''.join(self.marks))}]"  # FTS5 counts words, however long
        for seq, run in runs.items():
            if run.snippet is not None:
                cut = re.sub(rf"({letter}{{100}}){letter}+", r"\1…", run.snippet)  # of a snippet
                runs[seq] = run._replace(snippet=cut)
        return [runs[seq] for seq in seqs if seq in runs]

    def choices(self) -> dict[str, list[str]]:
        """Return the values to filter by: of recent runs, and of all tools."""
        columns = {"domain": "domain", "model": "model", "agent": "agent_name"}
        found = {
            name: self._column(
                f"SELECT DISTINCT {column} FROM (SELECT {column} FROM traces"
                f" ORDER BY seq DESC LIMIT {_RECENT}) WHERE {column} IS NOT NULL ORDER BY 1"
            )
            for name, column in columns.items()
        }
        tools = DISTINCT.format(table="steps", column="tool")
        return found | {"tool": self._column(tools, prefix_range("", limit=100))}

    def domains(self) -> tuple[str, ...]:
        sql = DISTINCT.format(table="traces", column="domain")
        return (*self._column(sql, prefix_range("", limit=-1)),)

    def count_runs(self, filters: Filters, *, most: int = COUNTED) -> int:
        """Count the matching runs; return ``most + 1`` if there are more than ``most``."""
        where, values = self._where(filters)
        # The words' own table has the rows that a search alone finds.
        source = "FROM traces_fts WHERE traces_fts MATCH :text"
        if where != _CONDITIONS["text"]:
            source = f"{FROM} WHERE {where}"
        sql = f"SELECT count(*) FROM (SELECT 1 {source} LIMIT :most)"
        return int(self._value(sql, {**values, "most": most + 1}))

    def seqs(self, filters: Filters) -> list[int]:
        where, values = self._where(filters)
        return self._column(f"SELECT t.seq {FROM} WHERE {where} ORDER BY t.seq", values)

    def tail(self, *, first: int = 0) -> Iterator[list[RunSummary]]:
        """Yield the last ``first`` runs that ended, then those that ended since, by start."""
        last, begun = self._row(_BEGIN, {"first": first})
        unfinished = json.loads(begun)
        while True:
            newest = self._value("SELECT coalesce(max(seq), 0) FROM traces")
            last = min(last, newest)  # the seq of a removed run is reused
            states = dict(self._run(_NEW, {"last": last, "open": json.dumps(unfinished)}))
            last = max([last, *states])
            unfinished = [seq for seq, state in states.items() if state not in _ENDED]
            yield self.runs_at(states.keys() - unfinished)

    def embeddings(self, seqs: Collection[int]) -> dict[int, Embedding]:
        """Return the newest embedding of each of these runs that has one."""
        rows = self._run(
            "SELECT trace_seq, embedder, vector FROM vectors"
            " WHERE trace_seq IN (SELECT value FROM json_each(?)) ORDER BY seq",
            (json.dumps([*seqs]),),
        )
        return {seq: Embedding(*embedding) for seq, *embedding in rows}

    def _where(self, filters: Filters) -> tuple[str, dict[str, Any]]:
        table = {**_CONDITIONS, "state": _STATES.get(filters.state or "", "FALSE")}
        values: dict[str, Any] = {
            name: value
            for name, value in filters._asdict().items()
            if value != Filters._field_defaults[name]
        }
        conditions = [table[name] for name in values]
        if filters.after is not None:
            values["after"] = self.find(filters.after)
        if words := undivided_words(filters.text or ""):
            escaped = (re.sub("[!%_]", lambda sign: f"!{sign[0]}", word) for word in words)
            patterns = {f"word{number}": f"%{word}%" for number, word in enumerate(escaped)}
            conditions += map(_ANYWHERE.format, patterns)
            conditions.remove(table["text"])
            del values["text"]
            values |= {**patterns, "first": words[0]}
        elif filters.text is not None:
            values["text"] = self._words(filters.text)
        values["begin"], values["end"] = self.marks
        return " AND ".join(conditions) or "TRUE", values

    def _words(self, text: str) -> str:
        """Return a text as an FTS5 query: unchanged if it is valid, else quoted word by word."""
        text = text.encode(errors="replace").decode().replace("\x00", " ")
        try:
            self._row("SELECT 1 FROM traces_fts(?) LIMIT 1", (text,))
        except sqlite3.OperationalError:
            words = (word.replace('"', "") for word in text.split())
            return " ".join(f'"{word}"' for word in words if any(map(str.isalnum, word))) or '""'
        return text


def _summary(row: tuple[Any, ...]) -> RunSummary:
    """Create a summary; an outbox item's reason replaces the code."""
    run, args = RunSummary._make(row[: len(RunSummary._fields)]), row[len(RunSummary._fields)]
    reason = outbox_reason_text(run.reason)
    if run.reason == run.reason_code:
        reason = reason_text(run.reason_code, args)
    return run._replace(success=bool(run.success), reason=reason)
