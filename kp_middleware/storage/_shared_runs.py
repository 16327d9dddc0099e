"""The runs that one file ships to the log that hosts share, and the data pulled from it."""

import json
import os
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kp_middleware.core.formula import SIGNALS
from kp_middleware.database import Connection, Queries, VectorTable, from_row, transaction
from kp_middleware.outbox_items import lease_holder
from kp_middleware.shared_log import ItemState, LoggedVector, LogPosition, SharedItem, SharedRun
from kp_middleware.storage._store import CANCELLED_BY_USER

_TO_SHIP: Final = -1
_UNDECIDED: Final = -2
_POD: Final = "shared pod"
_LEASE: Final = "shared lease"
_PLACE: Final = "shared place"
_TRANSFERRED: Final = "shared log "  # and the idempotency key, to detect later changes
_SHARED: Final = f"claimed_by GLOB '{_TRANSFERRED}*'"
_UNCHANGED: Final = f"('{_TRANSFERRED}' || idempotency_key)"
_FACTS: Final = (
    *("duration_ms", "step_count", "tool_count", "recovery_count", "input_tokens"),
    *("output_tokens", "confidence_source", "privacy_level", "visibility", "p_success"),
)
_RUNS: Final = """
    SELECT t.*, coalesce(t.nearest_id, iif(n.visibility = 'private', NULL, n.id)) AS nearest,
      d.body, CASE WHEN t.decision = 'forward' THEN t.decided_at END AS decided_at,
      (SELECT v.vector FROM vectors v WHERE v.trace_seq = t.seq AND v.embedder = t.embedder
       ORDER BY v.seq DESC LIMIT 1) AS vector
    FROM traces t LEFT JOIN traces n ON n.seq = t.nearest_seq
      LEFT JOIN documents d ON d.trace_seq = t.seq
    WHERE t.seq IN (SELECT value FROM json_each(?)) ORDER BY t.seq
"""
_OF_RUN: Final = f"trace_seq = (SELECT seq FROM traces WHERE id = :id) AND {_SHARED}"
_CLOSE: Final = f"""
    UPDATE outbox SET state = :state, reason = :reason, attempts = :attempts,
      http_status = :http_status, last_error = :last_error, sent_at = :sent_at,
      remote_id = :remote_id, claimed_by = NULL
    WHERE {_OF_RUN} AND (:anyway OR (state = 'pending' AND claimed_by = {_UNCHANGED}))
"""
_WITHDRAWN: Final = f"""(o.state IN ('cancelled', 'blocked')
  OR o.state = 'pending' AND o.claimed_by <> {_UNCHANGED})"""
_DETACH: Final = f"UPDATE outbox AS o SET claimed_by = NULL WHERE {_OF_RUN} AND {_WITHDRAWN}"
_TAKE_LEASE: Final = """
    INSERT INTO meta (key, value) VALUES (:key, json_array(:us, :now + :s))
    ON CONFLICT (key) DO UPDATE SET value = excluded.value
      WHERE value ->> '$[0]' = :us OR value ->> '$[1]' <= :now OR value ->> '$[1]' > :now + 2 * :s
    RETURNING 1
"""


class DecisionRequest(NamedTuple):
    """A run that the gate would forward, for the shared log to decide."""

    seq: int
    id: str
    place: int  # in the shared log: it was compared with the runs up to here
    nearest: str | None  # the id of the nearest run
    similarity: float | None
    embedder: str | None  # None: not compared
    p_success: float | None  # None: not known
    took_ms: float  # of scoring
    vector: bytes | None = None


class SharedBacklog(NamedTuple):
    to_ship: int  # scored runs
    asking: int  # undecided runs
    since: str | None  # when the oldest of them started


class SharedRuns(Queries):
    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._holder = lease_holder()

    def pod(self) -> str:
        """Return this file's name among hosts; on first use, queue all scored runs for shipping."""
        if self._meta(_POD) is None:
            name = f"{platform.node() or 'pod'}-{os.urandom(4).hex()}"
            add = "INSERT OR IGNORE INTO meta (key, value) VALUES (?, ?) RETURNING 1"
            with transaction(self._connection):
                if self._value(add, (_POD, name)):
                    self._run(
                        "UPDATE traces SET shared_seq = ? WHERE state = 'scored'"
                        " AND shared_seq IS NULL AND visibility <> 'private'",
                        (_TO_SHIP,),
                    )
        return self._meta(_POD) or ""

    def take_lease(self, seconds: float) -> bool:
        """Take or renew the lease of the process that ships; return whether this one has it.

        A lease that ends too far ahead was taken before the clock was set back: it is free.
        """
        holder, until = json.loads(self._meta(_LEASE) or '["", 0]')
        if holder == self._holder and seconds / 2 < until - time.time() <= seconds:
            return True
        values = {"key": _LEASE, "us": self._holder, "now": time.time(), "s": seconds}
        return self._value(_TAKE_LEASE, values) is not None

    def release_lease(self) -> None:
        self._run("DELETE FROM meta WHERE key = ? AND value ->> '$[0]' = ?", (_LEASE, self._holder))

    def place(self) -> LogPosition | None:
        place = self._meta(_PLACE)
        return None if place is None else LogPosition(*json.loads(place))

    def request_decision(self, request: DecisionRequest) -> None:
        """Mark a recorded run as undecided, in the transaction that has compared it."""
        args = request._replace(place=(self.place() or LogPosition()).seq)._asdict()
        seq = args.pop("seq")
        self._run(
            "UPDATE traces SET shared_seq = ?, reason_code = 'asks', reason_args = ?"
            " WHERE seq = ? AND state = 'recorded'",
            (_UNDECIDED, json.dumps(args), seq),
        )

    def mark(self, seq: int, *, is_local: bool) -> None:
        place = 0 if is_local else _TO_SHIP
        self._run("UPDATE traces SET shared_seq = ? WHERE seq = ?", (place, seq))

    def decision_requests(self, limit: int) -> list[DecisionRequest]:
        rows = self._run(
            "SELECT t.seq, t.reason_args, (SELECT v.vector FROM vectors v"
            "  WHERE v.trace_seq = t.seq AND v.embedder = t.reason_args ->> 'embedder'"
            "  ORDER BY v.seq DESC LIMIT 1)"
            " FROM traces t WHERE shared_seq = ? AND state = 'recorded' ORDER BY seq LIMIT ?",
            (_UNDECIDED, limit),
        )
        return [
            DecisionRequest(seq, **json.loads(args) | {"vector": vector})
            for seq, args, vector in rows
        ]

    def begin_decision(self, seq: int) -> bool:
        """Clear an undecided run for its evaluation; return False if it is no longer undecided."""
        sql = (
            "UPDATE traces SET reason_code = NULL, reason_args = NULL"
            " WHERE seq = ? AND shared_seq = ? AND state = 'recorded' RETURNING 1"
        )
        return self._value(sql, (seq, _UNDECIDED)) is not None

    def to_ship(self, limit: int) -> list[int]:
        return self._column(
            "SELECT seq FROM traces WHERE shared_seq = ? AND state = 'scored' ORDER BY seq LIMIT ?",
            (_TO_SHIP, limit),
        )

    def to_revise(self, limit: int) -> list[int]:
        """Return the runs in the log that have newer feedback here."""
        return self._column(
            "SELECT seq FROM traces WHERE shared_seq < ? ORDER BY seq LIMIT ?", (_UNDECIDED, limit)
        )

    def mark_revised(self, seq: int, feedback_count: int) -> None:
        """Note that the log has the feedback on a run, unless more was given meanwhile."""
        self._run(
            "UPDATE traces SET shared_seq = -2 - shared_seq WHERE seq = ? AND shared_seq < ?"
            " AND (SELECT count(*) FROM feedback WHERE trace_seq = traces.seq) = ?",
            (seq, _UNDECIDED, feedback_count),
        )

    def feedback_count(self, seq: int) -> int:
        return int(self._value("SELECT count(*) FROM feedback WHERE trace_seq = ?", (seq,)))

    def delete(self, ids: Iterable[str]) -> None:
        keys = [(id_,) for id_ in ids]
        with transaction(self._connection):
            self._write_each("DELETE FROM vectors WHERE key = ? AND trace_seq IS NULL", keys)
            self._write_each("DELETE FROM traces WHERE id = ? AND pod IS NOT NULL", keys)

    def runs(self, seqs: Sequence[int], pod: str) -> list[tuple[int, SharedRun]]:
        """Return runs as rows of the log, with their local documents.

        Undecided runs have no evaluation yet.
        """
        rows = []
        for row in self._named(_RUNS, (json.dumps(seqs),)):
            signals = tuple(row[name] for name in SIGNALS)
            weights = tuple(row[f"{name}_weight"] for name in SIGNALS)
            facts = json.dumps({name: row[name] for name in _FACTS})
            more = {"pod": pod, "signals": signals, "weights": weights, "redactor": None}
            rows.append((row["seq"], from_row(SharedRun, row, facts=facts, **more)))
        return rows

    def mark_shipped(self, places: Mapping[str, int]) -> None:
        self._run(
            "UPDATE traces SET shared_seq = p.value FROM json_each(?) p WHERE traces.id = p.key",
            (json.dumps(dict(places)),),
        )

    def save_pulled(self, vectors: Iterable[LoggedVector], place: LogPosition) -> None:
        """Store vectors of other hosts, and the place up to which the log was pulled."""
        with transaction(self._connection):
            self._write_each(
                "INSERT INTO vectors (key, embedder, added_at_ms, vector) VALUES (?, ?, ?, ?)",
                ((row.id, row.embedder, row.added_at_ms, row.vector) for row in vectors),
            )
            values = _PLACE, json.dumps(place)
            self._run("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", values)

    def last_place(self) -> LogPosition | None:
        sql = "SELECT shared_seq, id FROM traces WHERE shared_seq > 0"
        return self._one(LogPosition, f"{sql} ORDER BY shared_seq DESC LIMIT 1")

    def reset(self, places: Mapping[str, int], first: int) -> None:
        """Delete the data pulled from a log that was replaced, and ship what the new one lacks."""
        with transaction(self._connection):
            self._run("DELETE FROM vectors WHERE trace_seq IS NULL")
            self._run("DELETE FROM meta WHERE key = ?", (_PLACE,))
            known = self._run(
                "SELECT seq, id FROM traces WHERE shared_seq >= ? OR shared_seq <= -2 - ?",
                (first, first),
            ).fetchall()
            self._write_each(
                "UPDATE traces SET shared_seq = ? WHERE seq = ?",
                ((places.get(id_, _TO_SHIP), seq) for seq, id_ in known),
            )
            self._run(
                "UPDATE traces SET shared_seq = -2 - shared_seq WHERE shared_seq > 0"
                " AND seq IN (SELECT trace_seq FROM feedback)"
            )
            self._run(f"UPDATE outbox SET claimed_by = NULL WHERE state = 'pending' AND {_SHARED}")

    def appended(self, after: int, limit: int) -> list[tuple[int, str]]:
        """Return the ``seq`` and id of appended runs after a ``seq``."""
        shared = "(shared_seq > 0 OR shared_seq < -2)"
        # if there are none, an index says so at once
        last = "SELECT max(seq) FROM traces"
        first = f"iif(EXISTS (SELECT 1 FROM traces WHERE {shared}), ?, ({last}))"
        sql = f"SELECT seq, id FROM traces WHERE seq > {first} AND {shared} ORDER BY seq LIMIT ?"
        return self._run(sql, (after, limit)).fetchall()

    def backlog(self) -> SharedBacklog:
        row = self._row(
            "SELECT coalesce(sum(shared_seq <> ?1), 0), coalesce(sum(shared_seq = ?1), 0),"
            " min(started_at) FROM traces WHERE shared_seq < 0",
            (_UNDECIDED,),
        )
        return SharedBacklog(*row)

    def is_copy(self) -> bool:
        """Return True if all runs of the file are copies from the log."""
        return not self._value("SELECT EXISTS (SELECT 1 FROM traces WHERE pod IS NULL)")

    def mark_copied(self, seq: int, place: int, run: SharedRun, *, is_forwarded: bool) -> None:
        """Mark a run that was stored in this transaction as a copy of another host's."""
        self._run(
            "UPDATE traces SET shared_seq = ?, pod = ?, scorer = ?, decided_at = ?,"
            " scored_ms = NULL WHERE seq = ?",
            (place, run.pod, run.scorer, run.decided_at, seq),
        )
        if run.vector is not None and run.embedder is not None:
            vectors, now_ms = VectorTable(self._connection), int(time.time() * 1000)
            vectors.insert(run.embedder, run.vector, key=run.id, added_at_ms=now_ms)
        if is_forwarded:
            unknown = dict.fromkeys(("idempotency_key", "registry", "redactor"), "")
            self._add("outbox", trace_seq=seq, state="pending", claimed_by=_TRANSFERRED, **unknown)

    def to_transfer(self, limit: int) -> list[tuple[int, SharedItem]]:
        """Return items that the shared outbox lacks or has in another version, by ``seq``."""
        rows = self._run(
            "SELECT o.trace_seq, t.id, o.body, o.redactor, o.redactions, o.idempotency_key"
            " FROM outbox o JOIN traces t ON t.seq = o.trace_seq"
            f" WHERE o.state = 'pending' AND o.claimed_by IS NOT {_UNCHANGED}"
            " AND o.body IS NOT NULL AND t.shared_seq > 0 ORDER BY o.trace_seq LIMIT ?",
            (limit,),
        )
        return [(seq, SharedItem(id_, body.encode(), *rest)) for seq, id_, body, *rest in rows]

    def mark_transferred(self, items: Iterable[tuple[int, SharedItem]]) -> None:
        self._write_each(
            "UPDATE outbox SET claimed_by = ? WHERE trace_seq = ?",
            ((_TRANSFERRED + item.idempotency_key, seq) for seq, item in items),
        )

    def to_withdraw(self, limit: int) -> list[str]:
        """Return the ids of items in the shared outbox that must not be sent in that version."""
        return self._column(
            "SELECT t.id FROM outbox o JOIN traces t ON t.seq = o.trace_seq"
            f" WHERE o.{_SHARED} AND {_WITHDRAWN} ORDER BY t.seq LIMIT ?",
            (limit,),
        )

    def open_items(self, limit: int) -> list[str]:
        """Return the ids of unsent items in the shared outbox, withdrawn ones first."""
        return self._column(
            "SELECT t.id FROM outbox o JOIN traces t ON t.seq = o.trace_seq"
            f" WHERE o.{_SHARED} AND o.state IN ('pending', 'cancelled', 'blocked')"
            " ORDER BY o.state = 'pending', o.trace_seq LIMIT ?",
            (limit,),
        )

    def update_items(self, items: Sequence[ItemState]) -> None:
        """Copy the states of items from the shared outbox.

        An item that was deleted there is cancelled here.
        """
        with transaction(self._connection):
            for item in items:
                is_gone = item.state == "gone"
                values = item._asdict() | {"anyway": is_gone or item.state == "sent"}
                if is_gone:
                    values |= {"state": "cancelled", "reason": CANCELLED_BY_USER}
                if item.state not in {"pending", "sending", "cancelled"}:
                    self._run(_CLOSE, values)
                if item.state not in {"pending", "sending"}:
                    self._run(_DETACH, values)
