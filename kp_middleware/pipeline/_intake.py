"""What is written of a finished run: within bounds, and without its secrets."""

import logging
from collections import Counter
from typing import Final

from kp_middleware import privacy
from kp_middleware.database import Connection, transaction
from kp_middleware.errors import RedactionError
from kp_middleware.pipeline._afterwards import ThreadEnd
from kp_middleware.pipeline._threads import Threads
from kp_middleware.recording import Limits, Recorder, assemble, bounded
from kp_middleware.runs import RecordedRun
from kp_middleware.settings import Settings
from kp_middleware.storage import TraceStore
from kp_middleware.traces import Outcome, ReasoningTrace, Step, Task

logger = logging.getLogger("kp_middleware")

_UNREDACTED: Final = "(not kept: it could not be redacted)"
_TOO_LARGE: Final = "(not kept: it is too large to be redacted)"
_MOST_TOO_LARGE: Final = 16
_SPOKEN_FACTS: Final = ("error_type", "agent_name", "model", "thread_id", "tags")
_UNSPOKEN_METADATA: Final = {
    "task_domain": "general",
    "agent_id": None,
    "framework": None,
    "validated_by": None,
}
_UNSPOKEN_FACTS: Final[dict[str, object]] = {"tags": (), "agents": {}, "part": None}
_VISIBILITIES: Final = ("private", "org", "network")  # the strictest first
_LEVELS: Final = ("aggregated", "federated", "private")  # that which removes most first


class Intake:
    """Writes finished runs to the file.

    Args:
        connection: Of the file.
        store: Of the same file.
        settings: Say what is kept of a run, and what is filled in.
        policy: What is taken out.
    """

    def __init__(
        self,
        connection: Connection,
        store: TraceStore,
        settings: Settings,
        policy: privacy.Policy,
    ) -> None:
        self._connection = connection
        self._store = store
        self._settings = settings
        self._limits = Limits.of(settings)
        self._policy = policy
        self._threads = Threads(connection, store, settings)
        self._said: set[str] = set()

    def keep(self, run: Recorder | ReasoningTrace | ThreadEnd) -> list[int]:
        """Write a run to the file without its secrets, unless it has no step.

        Returns:
            The places of what has changed: what of it is over waits to be scored.

        Raises:
            DatabaseError, sqlite3.OperationalError: If it could not be written: try again.
        """
        if isinstance(run, ThreadEnd):
            return self._threads.end(run)
        recorded = self._recorded_run(run)
        if recorded is None:
            return []
        try:
            return self._threads.keep(self._without_secrets(recorded))
        except RedactionError as error:
            logger.warning("trace %s is kept without its texts: %s", recorded.trace.id, error)
            with transaction(self._connection):
                seq = self._store.record(_without_words(recorded))
                self._store.fail(seq, f"its texts could not be redacted: {error}")
            return []

    def end_overdue(self) -> list[int]:
        """End the first run that has waited too long for what follows, and say where it is."""
        return self._threads.end_overdue()

    def next_end_in_s(self) -> float:
        """In how many seconds a run has waited too long for what follows; infinity: none waits."""
        return self._threads.next_end_in_s()

    def _recorded_run(self, run: Recorder | ReasoningTrace) -> RecordedRun | None:
        settings = self._settings
        if isinstance(run, Recorder):
            return assemble(
                run,
                domain=settings.domain,
                visibility=settings.visibility,
                privacy_level=settings.privacy_level,
                agent_id=settings.agent_id,
            )
        return bounded(_as_strict_as(settings, run), self._limits)

    def _without_secrets(self, run: RecordedRun) -> RecordedRun:
        """The run as it may be written; what needs a missing package is left to the outbox."""
        try:
            return _fitting(run, self._policy)
        except RedactionError as error:
            if error.reason not in privacy.ENGINE_TROUBLE:
                raise
            if error.where not in self._said:
                self._said.add(error.where)
                logger.warning("nothing will be sent: %s", error)
            return _fitting(run, self._policy.without_packages())


def _as_strict_as(settings: Settings, trace: ReasoningTrace) -> ReasoningTrace:
    """A submitted trace, with the stricter of its own and the pipeline's visibility and level."""
    metadata = trace.metadata
    stricter = {
        "visibility": min(metadata.visibility, settings.visibility, key=_VISIBILITIES.index),
        "privacy_level": min(metadata.privacy_level, settings.privacy_level, key=_LEVELS.index),
    }
    return trace.model_copy(update={"metadata": metadata.model_copy(update=stricter)})


def _fitting(run: RecordedRun, policy: privacy.Policy) -> RecordedRun:
    """The run as it may be written; where it is too large to look through, its largest steps go."""
    for _ in range(_MOST_TOO_LARGE):
        try:
            return _without_secrets(run, policy)
        except RedactionError as error:
            if error.reason != "too_large":
                raise
            logger.warning("a step of trace %s is not kept: %s", run.trace.id, error)
            run = _without_largest_step(run)
    return _without_secrets(run, policy)


def _without_secrets(run: RecordedRun, policy: privacy.Policy) -> RecordedRun:
    """The run as it may be written to the file."""
    facts = {name: getattr(run, name) for name in _SPOKEN_FACTS}
    facts["agents"] = [*run.agents.values()]
    beside = privacy.redact_jsonable(facts, level="private", policy=policy)
    redacted = privacy.redact_trace(run.trace, level="private", policy=policy)
    cleaned = {**beside.value, "trace": redacted.trace}
    cleaned["agents"] = dict(zip(run.agents, beside.value["agents"], strict=True))
    cleaned["redactions"] = dict(Counter(beside.counts) + Counter(redacted.counts))
    return run.model_copy(update=cleaned)


def _without_largest_step(run: RecordedRun) -> RecordedRun:
    steps = [*run.trace.steps]
    at = max(range(len(steps)), key=lambda at: len(steps[at].model_dump_json()))
    bare = {"content": None, "input": None, "output_summary": _TOO_LARGE}
    steps[at] = steps[at].model_copy(update=bare)
    return run.model_copy(update={"trace": run.trace.model_copy(update={"steps": tuple(steps)})})


def _without_words(run: RecordedRun) -> RecordedRun:
    """The run with its course and none of its texts: what is left where redaction fails."""
    trace = run.trace
    bare = trace.model_copy(
        update={
            "task": Task(objective=_UNREDACTED),
            "steps": tuple(Step(step_id=step.step_id, type=step.type) for step in trace.steps),
            "outcome": Outcome(result_summary="", confidence=trace.outcome.confidence),
            "source_skill": None,
            "knowledge_graph_delta": None,
            "metadata": trace.metadata.model_copy(update=_UNSPOKEN_METADATA),
        }
    )
    return run.model_copy(update={**dict.fromkeys(_SPOKEN_FACTS), **_UNSPOKEN_FACTS, "trace": bare})
