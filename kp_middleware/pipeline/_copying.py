"""Copies from the shared log into the file: its runs, and the outcome of items."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from kp_middleware.errors import DatabaseError
from kp_middleware.runs import RecordedRun
from kp_middleware.sharing import (
    Link,
    LogChangedError,
    LoggedRun,
    SharedRun,
    cancel_items,
    item_states,
    load,
    pages,
    pull_runs,
)
from kp_middleware.storage import SharedRuns, SqliteStore
from kp_middleware.traces import ReasoningTrace, Step

_AT_ONCE: Final = 500
_NO_TEXT: Final = "(its text is not shared)"
_COUNTS: Final = {"steps": "step_count", "tools": "tool_count", "recoveries": "recovery_count"}


def copy_log(link: Link, db: Path, reach: Callable[[int, int], None]) -> int:
    """Bring a copy of the log up to date, and return how many runs are new.

    ``reach`` is told now and then how many rows of how many are there.
    """
    load()
    store = SqliteStore.at(db)
    runs = store.shared_runs()
    if not runs.is_copy():
        raise DatabaseError(db, "has runs of its own", "name another file for the copy with --db")
    copied = 0
    try:
        for page in pages(partial(pull_runs, link), runs.place()):
            with store.transaction():
                copied += sum(_copy(store, runs, one) for one in page.rows)
                runs.forget(page.gone)
                runs.pulled((), page.place)
            reach(page.place.seq, page.head)
    except LogChangedError:
        problem = "is a copy of a log that has changed since, by a restore or a failover"
        raise DatabaseError(db, problem, "remove it and pull again") from None
    _refresh(link, runs)
    store.close()
    return copied


def _copy(store: SqliteStore, runs: SharedRuns, logged: LoggedRun) -> bool:
    run = logged.run
    before = store.reading(run.id)
    if before is not None and logged.kind == "run":
        return False
    facts = json.loads(run.facts)
    seq = store.record(_recorded(run, facts), seq=None if before is None else before.seq)
    store.save_evaluation(seq, run.evaluation, took_ms=0.0, p_success=facts.get("p_success"))
    goes = run.decision == "forward" and "delivery" not in run.evaluation.verdict.reason.args
    runs.copy(seq, logged.seq, run, "pending" if goes else None)
    return before is None


def _recorded(run: SharedRun, facts: dict[str, Any]) -> RecordedRun:
    trace = _trace(run, facts)
    counts = {name: facts[key] for name, key in _COUNTS.items() if facts.get(key) is not None}
    return RecordedRun(
        trace=trace,
        shape=replace(trace.shape, **counts),
        duration_ms=facts.get("duration_ms"),
        input_tokens=facts.get("input_tokens"),
        output_tokens=facts.get("output_tokens"),
        confidence_source=facts.get("confidence_source") or "assumed",
        success_source=run.success_source or "assumed",
    )


def _trace(run: SharedRun, facts: dict[str, Any]) -> ReasoningTrace:
    if run.body is not None:
        trace = ReasoningTrace.model_validate_json(run.body)
        return trace.ended(success=run.success, confidence=run.confidence)
    step = Step(step_id=0, type="thought", content=_NO_TEXT)
    trace = ReasoningTrace.of(
        _NO_TEXT, [step], domain=run.domain, success=run.success, confidence=run.confidence
    )
    told = {
        "created_at": run.started_at,
        "visibility": facts.get("visibility") or "network",
        "privacy_level": facts.get("privacy_level") or "aggregated",
    }
    metadata = trace.metadata.model_copy(update=told)
    return trace.model_copy(update={"id": run.id, "metadata": metadata})


def _refresh(link: Link, runs: SharedRuns) -> None:
    """Note what became of the runs that had not been sent when they were copied."""
    waiting = runs.open_items(100_000)
    for first in range(0, len(waiting), _AT_ONCE):
        runs.note(item_states(link, waiting[first : first + _AT_ONCE]))


def take_back(link: Link, runs: SharedRuns) -> None:
    """Cancel in the shared outbox what may not go as it is there, and note what became of items."""
    if wrong := runs.to_take_back(100):
        cancel_items(link, wrong)
    if there := runs.open_items(_AT_ONCE):
        runs.note(item_states(link, there))
