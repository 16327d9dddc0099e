"""Exporters beside the outbox: each is given the runs that a person chose, as they leave."""

import logging
import time
from typing import Final, Literal, NamedTuple

from kp_middleware import privacy
from kp_middleware.core.formula import SIGNALS
from kp_middleware.core.gates import DAY_S
from kp_middleware.errors import RedactionError
from kp_middleware.export import OwnExporter, payload
from kp_middleware.instants import epoch_s
from kp_middleware.outbox_items import idempotency_key
from kp_middleware.pipeline._dispatch import Dispatch
from kp_middleware.pipeline._sending import SendingWorker
from kp_middleware.runs import ExportedRun, StepFacts
from kp_middleware.settings import Settings
from kp_middleware.storage import ExportCandidate, ExportCursor, Run, SqliteStore, Store
from kp_middleware.traces import ReasoningTrace

logger = logging.getLogger("kp_middleware")

_UNFINISHED: Final = frozenset({"recorded", "paused"})


class MoreExporter(NamedTuple):
    """An exporter beside the outbox; ``since`` is when the first run that it is given began."""

    exporter: OwnExporter
    send: Literal["cleared", "all"]
    since: str

    def worker(self, store: Store, settings: Settings) -> SendingWorker:
        """Return the worker that gives it the runs of a store, the one a pipeline uses."""
        return SendingWorker(
            store, settings, self.exporter, lambda own: self._cursor(own, settings)
        )

    def _cursor(self, store: Store, settings: Settings) -> ExportCursor:
        assert isinstance(store, SqliteStore)  # noqa: S101 - `Pipeline.add_exporter` has looked
        policy = privacy.Policy.of(settings)
        dispatch = Dispatch(store, settings, policy, self.exporter)

        def choose(run: ExportCandidate) -> bool | None:
            if run.state in _UNFINISHED:
                return None
            if run.visibility == "private":
                return False
            return self.send == "all" or _may_leave(run, dispatch, store, settings)

        def prepare(run: Run, document: str, attempts: int) -> ExportedRun | None:
            try:
                return prepared(run, document, attempts, settings=settings, policy=policy)
            except RedactionError as error:
                logger.warning("trace %s is not given to %s: %s", run.id, self.exporter.url, error)
                return None

        return store.export_cursor(
            self.exporter.url, choose=choose, prepare=prepare, since=self.since
        )


def _may_leave(
    run: ExportCandidate, dispatch: Dispatch, store: SqliteStore, settings: Settings
) -> bool | None:
    """Return whether a run may leave as it may for the outbox; None if nobody has confirmed it."""
    if run.decision != "forward":
        return False
    why = dispatch.blocking_reason(run.visibility, store.ending(run.seq), run.started_at)
    if why != "unconfirmed":
        return why is None
    is_late = time.time() - epoch_s(run.started_at) > settings.confirm_within_days * DAY_S
    return False if is_late else None


def prepared(
    run: Run, document: str, attempts: int, *, settings: Settings, policy: privacy.Policy
) -> ExportedRun:
    """Return what leaves of a run: redacted as for the outbox, and scanned as it leaves."""
    trace = ReasoningTrace.model_validate_json(document)
    level = trace.metadata.privacy_level
    redacted = privacy.redact_trace(trace, level=level, policy=policy).trace
    scoring = run.scoring
    body = payload(redacted, score=scoring.score if scoring else 0.0, agent_id=settings.agent_id)
    privacy.check_clean(body, level=level, policy=policy)
    names = [run.agent_name, run.model, run.thread_id, run.error_type]
    told = [*names, *(name for step in run.steps for name in (step.agent, step.model))]
    cleaned = iter(privacy.redact_jsonable(told, level=level, policy=policy).value)
    agent_name, model, thread_id, error_type = (next(cleaned) for _ in names)
    return ExportedRun(
        run.seq,
        body,
        idempotency_key(body, agent_id=settings.agent_id),
        attempts,
        trace_id=run.id,
        started_at=run.started_at,
        duration_ms=run.duration_ms,
        state=run.state,
        score=scoring.score if scoring else None,
        signals={} if scoring is None else dict(zip(SIGNALS, scoring.signals, strict=True)),
        decision=scoring.decision if scoring else None,
        reason_code=run.reason_code,
        gate=scoring.gate if scoring else None,
        agent_name=agent_name,
        model=model,
        thread_id=thread_id,
        error_type=error_type,
        input_tokens=run.input_tokens,
        output_tokens=run.output_tokens,
        steps=tuple(
            StepFacts(
                epoch_s(step.started_at) if step.started_at else None,
                agent=next(cleaned),
                call_id=step.call_id,
                model=next(cleaned),
                input_tokens=step.input_tokens,
                output_tokens=step.output_tokens,
                model_latency_ms=step.model_latency_ms,
            )
            for step in run.steps
        ),
    )
