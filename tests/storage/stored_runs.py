"""Runs to put into a file."""

from kp_middleware import ReasoningTrace, Score, Step, Tool
from kp_middleware.core.evaluation import Evaluation, Verdict
from kp_middleware.core.formula import Signals, Weights
from kp_middleware.core.gates import Reason, ReasonCode
from kp_middleware.runs import RecordedRun


def kept(store, objective="add 1 and 2", *, score=None, decision="withhold", **facts):
    seq = store.record(run(objective, **facts))
    if score is not None:
        store.save_evaluation(seq, Evaluation(scored(score), verdict(decision)), took_ms=1.5)
    return seq


def run(objective="add 1 and 2", *steps, id=None, visibility=None, instant=None, **facts):
    """A recorded run of these steps, or of one thought."""
    document = {"domain", "result_summary", "success", "confidence"}
    trace = ReasoningTrace.of(
        objective,
        steps or [Step(step_id=0, type="thought", content="3")],
        **{name: facts.pop(name) for name in document & set(facts)},
    )
    named = {"visibility": visibility, "created_at": instant}
    changes = {name: value for name, value in named.items() if value}
    metadata = trace.metadata.model_copy(update=changes)
    trace = trace.model_copy(update={"id": id or trace.id, "metadata": metadata})
    return RecordedRun(trace=trace, **{"shape": trace.shape, **facts})


def scored(value=0.5, **facts):
    signals = {"complexity": 0.1, "novelty": 0.2, "tool_diversity": 0.3, "outcome_confidence": 0.4}
    return Score(value=value, signals=Signals(**signals), weights=Weights(**signals), **facts)


def verdict(decision="withhold", reason="below the threshold"):
    words = Reason(ReasonCode.CUSTOM, {"words": reason})
    return Verdict("threshold 0.75", 0.75, decision, words, key=0.5)


def tool_step(kind, name, **fields):
    return Step(step_id=0, type=kind, tool=Tool(name=name), **fields)


def query_plan(connection, ask):
    """Return SQLite's plan for each query of the file."""
    asked = []
    connection.set_trace_callback(asked.append)
    ask()
    connection.set_trace_callback(None)
    return [
        step[-1]
        for sql in asked
        if not sql.startswith("--")  # these are FTS5's own
        for step in connection.execute(f"EXPLAIN QUERY PLAN {sql}")
    ]
