"""The runs of one file on their way to the log that hosts share, and what came from there."""

import json
import os
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kp_middleware.core.formula import SIGNALS
from kp_middleware.database import Connection, Queries, from_row, transaction
from kp_middleware.sharing import ItemState, LoggedVector, Place, SharedItem, SharedRun
from kp_middleware.storage._store import CANCELLED_BY_HAND

_TO_SHIP: Final = -1
_ASKS: Final = -2
_POD: Final = "shared pod"
_LEASE: Final = "shared lease"
_PLACE: Final = "shared place"
_HANDED_OVER: Final = "shared log "  # and the idempotency key: what has changed since is seen
_IS_THERE: Final = "claimed_by LIKE 'shared log%'"
_AS_IT_IS: Final = f"('{_HANDED_OVER}' || idempotency_key)"
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
_OF_TRACE: Final = f"trace_seq = (SELECT seq FROM traces WHERE id = :id) AND {_IS_THERE}"
_END: Final = f"""
    UPDATE outbox SET state = :state, reason = :reason, attempts = :attempts,
      http_status = :http_status, last_error = :last_error, sent_at = :sent_at,
      remote_id = :remote_id, claimed_by = NULL
    WHERE {_OF_TRACE} AND (:anyway OR (state = 'pending' AND claimed_by = {_AS_IT_IS}))
"""
_LEAVE: Final = f"""
    UPDATE outbox SET claimed_by = NULL
    WHERE {_OF_TRACE} AND (state IN ('cancelled', 'blocked')
      OR state = 'pending' AND claimed_by <> {_AS_IT_IS})
"""
_TAKE_LEASE: Final = """
    INSERT INTO meta (key, value) VALUES (:key, json_array(:us, :now + :s))
    ON CONFLICT (key) DO UPDATE SET value = excluded.value
      WHERE value ->> '$[0]' = :us OR value ->> '$[1]' <= :now OR value ->> '$[1]' > :now + 2 * :s
    RETURNING 1
"""


class Asking(NamedTuple):
    """A run that would clear by what is known here, as it was measured."""

    seq: int
    id: str
    place: int  # in the shared log, up to which it was compared
    nearest: str | None  # the id of the nearest run
    similarity: float | None
    embedder: str | None  # None: nothing was compared
    p_success: float | None  # None: nothing was known
    took_ms: float  # of scoring
    vector: bytes | None = None


class Unshared(NamedTuple):
    """The backlog for the shared log."""

    to_ship: int  # scored runs
    asking: int  # runs that would clear
    since: str | None  # when the first of them began


class SharedRuns(Queries):
    """The part of a file that is shared with other hosts."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._us = f"{os.getpid()}-{os.urandom(4).hex()}"

    def pod(self) -> str:
        """Return the name of this file among hosts; the first time, let all that is scored ship."""
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
        """Take or renew the lease of the one process that ships; return whether we have it.

        One that ends much later than a lease can was taken before the clock was set back.
        """
        holder, until = json.loads(self._meta(_LEASE) or '["", 0]')
        if holder == self._us and seconds / 2 < until - time.time() <= seconds:
            return True
        values = {"key": _LEASE, "us": self._us, "now": time.time(), "s": seconds}
        return self._value(_TAKE_LEASE, values) is not None

    def release_lease(self) -> None:
        self._run("DELETE FROM meta WHERE key = ? AND value ->> '$[0]' = ?", (_LEASE, self._us))

    def place(self) -> Place | None:
        """Return up to where the log was pulled; None if it was not."""
        found = self._meta(_PLACE)
        return None if found is None else Place(*json.loads(found))

    def ask(self, asking: Asking) -> None:
        """Let a recorded run ask; in the transaction that has compared it."""
        told = asking._replace(place=(self.place() or Place()).seq)._asdict()
        seq = told.pop("seq")
        self._run(
            "UPDATE traces SET shared_seq = ?, reason_code = 'asks', reason_args = ?"
            " WHERE seq = ? AND state = 'recorded'",
            (_ASKS, json.dumps(told), seq),
        )

    def mark(self, seq: int, *, stays: bool) -> None:
        """Mark a scored run: to be shipped, or to stay here."""
        self._run("UPDATE traces SET shared_seq = ? WHERE seq = ?", (0 if stays else _TO_SHIP, seq))

    def asking(self, limit: int) -> list[Asking]:
        """Return the runs that ask, the oldest first."""
        rows = self._run(
            "SELECT t.seq, t.reason_args, (SELECT v.vector FROM vectors v"
            "  WHERE v.trace_seq = t.seq AND v.embedder = t.reason_args ->> 'embedder'"
            "  ORDER BY v.seq DESC LIMIT 1)"
            " FROM traces t WHERE shared_seq = ? AND state = 'recorded' ORDER BY seq LIMIT ?",
            (_ASKS, limit),
        )
        return [Asking(seq, **json.loads(told) | {"vector": vector}) for seq, told, vector in rows]

    def decide(self, seq: int) -> bool:
        """Prepare a run that asks for its evaluation, in this transaction; False: it is gone."""
        sql = (
            "UPDATE traces SET reason_code = NULL, reason_args = NULL"
            " WHERE seq = ? AND shared_seq = ? AND state = 'recorded' RETURNING 1"
        )
        return self._value(sql, (seq, _ASKS)) is not None

    def to_ship(self, limit: int) -> list[int]:
        """Return the scored runs to append, the oldest first."""
        return self._column(
            "SELECT seq FROM traces WHERE shared_seq = ? AND state = 'scored' ORDER BY seq LIMIT ?",
            (_TO_SHIP, limit),
        )

    def to_revise(self, limit: int) -> list[int]:
        """Return the runs in the log of which more was told since."""
        return self._column(
            "SELECT seq FROM traces WHERE shared_seq < ? ORDER BY seq LIMIT ?", (_ASKS, limit)
        )

    def revised(self, seq: int, before: int) -> None:
        """Note that the log knows what was told of a run, unless more was told meanwhile."""
        self._run(
            "UPDATE traces SET shared_seq = -2 - shared_seq WHERE seq = ? AND shared_seq < ?"
            " AND (SELECT count(*) FROM feedback WHERE trace_seq = traces.seq) = ?",
            (seq, _ASKS, before),
        )

    def told(self, seq: int) -> int:
        return int(self._value("SELECT count(*) FROM feedback WHERE trace_seq = ?", (seq,)))

    def forget(self, ids: Iterable[str]) -> None:
        gone = [(id_,) for id_ in ids]
        with transaction(self._connection):
            self._write_each("DELETE FROM vectors WHERE key = ? AND trace_seq IS NULL", gone)
            self._write_each("DELETE FROM traces WHERE id = ? AND pod IS NOT NULL", gone)

    def runs(self, seqs: Sequence[int], pod: str) -> list[tuple[int, SharedRun]]:
        """Return runs as rows of the log, with their documents as they are here.

        Those that ask have no evaluation yet.
        """
        found = []
        for row in self._named(_RUNS, (json.dumps(seqs),)):
            signals = tuple(row[name] for name in SIGNALS)
            weights = tuple(row[f"{name}_weight"] for name in SIGNALS)
            facts = json.dumps({name: row[name] for name in _FACTS})
            made = {"pod": pod, "signals": signals, "weights": weights, "redactor": None}
            found.append((row["seq"], from_row(SharedRun, row, facts=facts, **made)))
        return found

    def shipped(self, places: Mapping[str, int]) -> None:
        self._run(
            "UPDATE traces SET shared_seq = p.value FROM json_each(?) p WHERE traces.id = p.key",
            (json.dumps(dict(places)),),
        )

    def pulled(self, vectors: Iterable[LoggedVector], place: Place) -> None:
        """Store vectors of other hosts, and the place up to which they were pulled."""
        with transaction(self._connection):
            self._write_each(
                "INSERT INTO vectors (key, embedder, added_at_ms, vector) VALUES (?, ?, ?, ?)",
                ((one.id, one.embedder, one.added_at_ms, one.vector) for one in vectors),
            )
            values = _PLACE, json.dumps(place)
            self._run("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", values)

    def newest(self) -> Place | None:
        """Return the last place that a run of ours has in the log; None if it has none."""
        sql = "SELECT shared_seq, id FROM traces WHERE shared_seq > 0"
        return self._one(Place, f"{sql} ORDER BY shared_seq DESC LIMIT 1")

    def begin_anew(self, places: Mapping[str, int], first: int) -> None:
        """Forget what was pulled from a log that has changed."""
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
            self._run(
                f"UPDATE outbox SET claimed_by = NULL WHERE state = 'pending' AND {_IS_THERE}"
            )

    def in_log(self, after: int, limit: int) -> list[tuple[int, str]]:
        """Return the ``seq`` and id of some runs that were appended, after a ``seq``."""
        return self._run(
            "SELECT seq, id FROM traces WHERE seq > ? AND (shared_seq > 0 OR shared_seq < -2)"
            " ORDER BY seq LIMIT ?",
            (after, limit),
        ).fetchall()

    def unshared(self) -> Unshared:
        row = self._row(
            "SELECT coalesce(sum(shared_seq <> ?1), 0), coalesce(sum(shared_seq = ?1), 0),"
            " min(started_at) FROM traces WHERE shared_seq < 0",
            (_ASKS,),
        )
        return Unshared(*row)

    def is_copy(self) -> bool:
        """Return whether the file holds no run but those of a copy of the log."""
        return not self._value("SELECT EXISTS (SELECT 1 FROM traces WHERE pod IS NULL)")

    def copy(self, seq: int, place: int, run: SharedRun, state: str | None) -> None:
        """Complete a run that was recorded and evaluated in this transaction: it is another's."""
        self._run(
            "UPDATE traces SET shared_seq = ?, pod = ?, scorer = ?, decided_at = ?,"
            " scored_ms = NULL WHERE seq = ?",
            (place, run.pod, run.scorer, run.decided_at, seq),
        )
        if run.vector is not None and run.embedder is not None:
            now_ms = int(time.time() * 1000)
            row = {"embedder": run.embedder, "added_at_ms": now_ms, "vector": run.vector}
            self._add("vectors", trace_seq=seq, key=run.id, **row)
        if state is not None:
            unknown = dict.fromkeys(("idempotency_key", "registry", "redactor"), "")
            self._add("outbox", trace_seq=seq, state="pending", claimed_by=_HANDED_OVER, **unknown)

    def to_hand_over(self, limit: int) -> list[tuple[int, SharedItem]]:
        """Return items that the shared outbox has not got as they are here, with their ``seq``."""
        rows = self._run(
            "SELECT o.trace_seq, t.id, o.body, o.redactor, o.redactions, o.idempotency_key"
            " FROM outbox o JOIN traces t ON t.seq = o.trace_seq"
            f" WHERE o.state = 'pending' AND o.claimed_by IS NOT {_AS_IT_IS}"
            " AND o.body IS NOT NULL AND t.shared_seq > 0 ORDER BY o.trace_seq LIMIT ?",
            (limit,),
        )
        return [(seq, SharedItem(id_, body.encode(), *rest)) for seq, id_, body, *rest in rows]

    def handed_over(self, items: Iterable[tuple[int, SharedItem]]) -> None:
        self._write_each(
            "UPDATE outbox SET claimed_by = ? WHERE trace_seq = ?",
            ((_HANDED_OVER + item.idempotency_key, seq) for seq, item in items),
        )

    def to_take_back(self, limit: int) -> list[str]:
        """Return the ids of items that may not go, or not as the shared outbox has them."""
        return self._column(
            "SELECT t.id FROM outbox o JOIN traces t ON t.seq = o.trace_seq"
            f" WHERE o.{_IS_THERE} AND (o.state IN ('cancelled', 'blocked')"
            f" OR o.state = 'pending' AND o.claimed_by <> {_AS_IT_IS}) ORDER BY t.seq LIMIT ?",
            (limit,),
        )

    def open_items(self, limit: int) -> list[str]:
        """Return the ids of items in the shared outbox; first those that were taken back."""
        return self._column(
            "SELECT t.id FROM outbox o JOIN traces t ON t.seq = o.trace_seq"
            f" WHERE o.{_IS_THERE} AND o.state IN ('pending', 'cancelled', 'blocked')"
            " ORDER BY o.state = 'pending', o.trace_seq LIMIT ?",
            (limit,),
        )

    def note(self, items: Sequence[ItemState]) -> None:
        """Note what became of items in the shared outbox.

        What was sent there is sent here; what was deleted there is not sent from here either.
        """
        with transaction(self._connection):
            for one in items:
                is_gone = one.state == "gone"
                values = one._asdict() | {"anyway": is_gone or one.state == "sent"}
                if is_gone:
                    values |= {"state": "cancelled", "reason": CANCELLED_BY_HAND}
                if one.state not in {"pending", "sending", "cancelled"}:
                    self._run(_END, values)
                if one.state not in {"pending", "sending"}:
                    self._run(_LEAVE, values)

    def _meta(self, key: str) -> str | None:
        return self._text("SELECT value FROM meta WHERE key = ?", (key,))
