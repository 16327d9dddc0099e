"""Change what the log says of a run: more was told of it, or it is deleted everywhere."""

from collections.abc import Callable
from typing import Final

from kp_middleware.core.gates import GateHistory
from kp_middleware.sharing._deciding import LockedLog
from kp_middleware.sharing._link import Connection, Link, bounded
from kp_middleware.sharing._records import SharedRun
from kp_middleware.sharing._rows import COLUMNS, RECORDSET, VALUES, as_json

_LOCK: Final = "SELECT head FROM kp.heads WHERE stream = 'main' FOR UPDATE"
_BEFORE: Final = "SELECT decision FROM kp.log WHERE id = %s AND rev = 0"
_APPEND: Final = f"""
    INSERT INTO kp.log (seq, rev, kind, {COLUMNS})
    SELECT %(head)s + 1, (SELECT max(rev) + 1 FROM kp.log l WHERE l.id = r.id), 'revision', {VALUES}
    FROM {RECORDSET}
"""
_REWRITE: Final = f"""
    UPDATE kp.log l SET success = r.success, success_source = r.success_source,
      confidence = r.confidence, signals = r.signals, rules = r.rules, score = r.score,
      threshold = r.threshold, gate = r.gate, reason_code = r.reason_code,
      reason_args = r.reason_args,
      decided_at = CASE WHEN l.decision = r.decision THEN l.decided_at
                        ELSE clock_timestamp() END,
      decision = r.decision
    FROM {RECORDSET} WHERE l.id = r.id AND l.rev = 0
"""
_DOCUMENT: Final = f"""
    UPDATE kp.documents d SET body = r.body, redactor = r.redactor FROM {RECORDSET}
    WHERE d.id = r.id AND r.body IS NOT NULL
"""
_MOVE: Final = "UPDATE kp.heads SET head = head + 1 WHERE stream = 'main'"
_GONE: Final = (
    "DELETE FROM kp.documents WHERE id = %(id)s",
    "UPDATE kp.log SET vector = NULL WHERE id = %(id)s",
    "DELETE FROM kp.outbox WHERE id = %(id)s AND state <> 'sending'",
    """
    INSERT INTO kp.log (seq, id, rev, kind, pod, domain, started_at)
    SELECT %(head)s + 1, id, (SELECT max(rev) + 1 FROM kp.log WHERE id = %(id)s), 'gone', pod,
           domain, started_at
    FROM kp.log WHERE id = %(id)s AND rev = 0
    """,
    _MOVE,
)


def revise(link: Link, run: SharedRun, has_room: Callable[[GateHistory], bool]) -> bool:
    """Write what is known of a run now; return False if it clears now, and there is no room."""

    def work(connection: Connection) -> bool:
        with bounded(connection) as pipeline:
            locked = connection.execute(_LOCK)
            found = connection.execute(_BEFORE, (run.id,))
            pipeline.sync()
            head, before = locked.fetchall()[0][0], found.fetchall()
            if not before:
                return True  # it was deleted
            if run.decision == "forward" and before != [("forward",)]:
                history = LockedLog(connection, pipeline, {}, ()).history(run.domain)
                if not has_room(history):
                    return False
            rows = {"rows": as_json([run]), "head": head}
            for statement in (_APPEND, _REWRITE, _DOCUMENT):
                connection.execute(statement, rows)
            connection.execute(_MOVE)
        return True

    return link.exchange(work)


def delete(link: Link, trace_id: str) -> bool:
    """Delete a run's document and vector, and tell all hosts; return whether it was there."""

    def work(connection: Connection) -> bool:
        with bounded(connection) as pipeline:
            locked = connection.execute(_LOCK)
            found = connection.execute(_BEFORE, (trace_id,))
            pipeline.sync()
            head = locked.fetchall()[0][0]
            if not found.fetchall():
                return False
            for statement in _GONE:
                connection.execute(statement, {"id": trace_id, "head": head})
        return True

    return link.exchange(work)
