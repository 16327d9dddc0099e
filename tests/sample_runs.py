"""Traces made by hand, scored by the real formula, in a real file."""

from contextlib import closing

from kp_middleware import ReasoningTrace, Score, Step, Tool
from kp_middleware.core.evaluation import Evaluation, RunFacts, Verdict, score_run
from kp_middleware.core.formula import PROFILES, Nearest, Signals
from kp_middleware.core.gates import Reason, ReasonCode
from kp_middleware.database import connect, transaction
from kp_middleware.runs import RecordedRun
from kp_middleware.storage import SqliteStore


def step(kind, tool=None, **fields):
    used = {"tool": Tool(name=tool)} if tool else {}
    return Step(step_id=0, type=kind, **used, **fields)


def run(objective, *steps, id=None, instant=None, **facts):
    """A recorded run of these steps."""
    told = {"domain", "result_summary", "success", "confidence"}
    trace = ReasoningTrace.of(
        objective, steps, **{name: facts.pop(name) for name in told & {*facts}}
    )
    changes = {"created_at": instant} if instant else {}
    metadata = trace.metadata.model_copy(update=changes)
    trace = trace.model_copy(
        update={"id": f"kp:trace:{id}" if id else trace.id, "metadata": metadata}
    )
    return RecordedRun(trace=trace, shape=trace.shape, **facts)


def scored(run, similarity=None, nearest="", embedder="stand-in"):
    """The score that the formula gives, with this nearest neighbor."""
    trace = run.trace
    nearest = None if similarity is None else Nearest(f"kp:trace:{nearest}", similarity)
    weights = PROFILES.get(trace.metadata.task_domain, PROFILES["default"])
    return score_run(RunFacts(run.shape, run.ending, nearest, embedder), weights)


def put(db, run, score=None, *, threshold=0.75, vector=None, embedder="stand-in"):
    """Writes a run, with its score and its vector if it has them."""
    with closing(connect(db)) as connection:
        store = SqliteStore(connection, scorer="by hand")
        seq = store.record(run)
        with transaction(connection):
            if score is not None:
                decision = "forward" if score.value >= threshold else "withhold"
                args = {"score": score.value, "threshold": threshold}
                code = "above_threshold" if decision == "forward" else "below_threshold"
                reason = Reason(ReasonCode(code), args)
                verdict = Verdict(
                    f"threshold {threshold:g}",
                    threshold,
                    decision,
                    reason,
                    key=score.value,
                    chosen=decision == "forward",
                )
                store.save_evaluation(seq, Evaluation(score, verdict), took_ms=1)
            if vector is not None:
                connection.execute(
                    "INSERT INTO vectors (trace_seq, embedder, added_at_ms, vector)"
                    " VALUES (?, ?, 0, ?)",
                    (seq, embedder, vector),
                )
    return seq


def with_value(value, **facts):
    """A score of just this value: complexity and all weights alike."""
    signals = Signals(value, value, value, value)
    return Score(value=value, signals=signals, weights=PROFILES["default"], **facts)
