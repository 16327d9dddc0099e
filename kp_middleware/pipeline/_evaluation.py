"""What is done with one finished run, stage after stage, on one connection."""

import logging
import time
from importlib.metadata import version
from typing import Final

from kp_middleware import privacy
from kp_middleware.database import PASSING_TROUBLE, Connection, is_damage, transaction
from kp_middleware.errors import EmbedderNotReadyError, RedactionError
from kp_middleware.pipeline._outgoing import outgoing
from kp_middleware.pipeline._retention import Retention
from kp_middleware.pipeline._run_queue import FinishedRun, ThreadEnd
from kp_middleware.pipeline._threads import Threads
from kp_middleware.recording import Recorder, assemble
from kp_middleware.runs import RecordedRun
from kp_middleware.scores import Shape
from kp_middleware.scoring import Decision, Embedder, Scorer, Threshold, Vector, VectorCache
from kp_middleware.settings import Settings
from kp_middleware.storage import OutboxTable, TraceStore, Verdict
from kp_middleware.traces import Outcome, ReasoningTrace, Step, Task

logger = logging.getLogger("kp_middleware")

_NO_KEY: Final = "not queued: there is no API key"
_UNREDACTED: Final = "(not kept: it could not be redacted)"
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
_PRIVATE: Final = "not queued: its visibility is private"


class Evaluation:
    """Keeps, scores, decides and queues: one run after another, in one thread."""

    def __init__(
        self, connection: Connection, settings: Settings, embedder: Embedder | None
    ) -> None:
        self._connection = connection
        self._settings = settings
        self._cache = VectorCache.sharing(
            connection, settings.cache_size, ttl_ms=settings.cache_ttl_ms
        )
        self._scorer = Scorer(embedder=embedder, cache=self._cache, profiles=settings.profiles)
        self._gate = Threshold(settings.threshold)
        self._policy = privacy.Policy.of(settings)
        self._said: set[str] = set()
        self._caught_up = settings.visibility == "private"
        scorer = f"kp-middleware {version('kp-middleware')}"
        self._store = TraceStore(connection, scorer=scorer)
        self._threads = Threads(connection, self._store, settings)
        self._retention = Retention(connection, settings.retention_days)
        self._outbox = OutboxTable(
            connection, registry=settings.registry_url, agent_id=settings.agent_id
        )

    def keep(self, run: FinishedRun) -> None:
        """Write a run to the file without its secrets, unless it has no step.

        Raises:
            DatabaseError, sqlite3.OperationalError: If it could not be written: try again.
        """
        if isinstance(run, ThreadEnd):
            self._threads.end(run)
            return
        recorded = self._recorded_run(run)
        if recorded is None:
            return
        try:
            self._threads.keep(self._without_secrets(recorded))
        except RedactionError as error:
            logger.warning("trace %s is kept without its texts: %s", recorded.trace.id, error)
            seq = self._store.record(_without_words(recorded))
            self._store.fail(seq, f"its texts could not be redacted: {error}")

    def score_next(self) -> bool:
        """Score the oldest run that waits; False if none does.

        Raises:
            EmbedderNotReadyError: If it waits for the model.
            DatabaseError, sqlite3.OperationalError: If the file cannot be used now.
        """
        seq = self._store.next_recorded()
        if seq is None:
            self._queue_what_cleared_before()
            return self._threads.end_overdue()
        self._score(seq)
        return True

    def count_dropped(self, count: int) -> None:
        """So many runs were lost because too many waited: the file knows."""
        if count:
            self._store.count_dropped(count)

    def next_end_in_s(self) -> float:
        """In how many seconds a run has waited too long for what follows; infinity: none waits."""
        return self._threads.next_end_in_s()

    def remove_old(self) -> bool:
        """Remove a few traces that are too old; False if there are none."""
        removed = self._retention.remove_some()
        if removed:
            self._cache.reload()  # it may remember their vectors
        return removed

    def any_pending(self) -> bool:
        """Whether a row of the outbox waits to be sent."""
        return self._outbox.any_pending()

    def _queue_what_cleared_before(self) -> None:
        """Once, when there is nothing else to do: without a key, or by a process that died."""
        if self._caught_up or self._settings.api_key is None:
            return
        self._caught_up = True
        for seq in self._store.cleared_but_not_queued():
            try:
                trace = ReasoningTrace.model_validate_json(self._store.document(seq))
            except ValueError:
                logger.warning("trace %d cannot be read, and is not sent", seq, exc_info=True)
                continue
            self._queue(seq, trace, self._store.score_of(seq))
            self._store.reword(seq, _NO_KEY, now="queued when there was an API key")

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
        run = _as_strict_as(settings, run)
        return RecordedRun(trace=run, shape=Shape.of(run))

    def _score(self, seq: int) -> None:
        try:
            trace = ReasoningTrace.model_validate_json(self._store.document(seq))
            self._score_and_queue(seq, trace)
        except (EmbedderNotReadyError, *PASSING_TROUBLE):
            raise
        except Exception as error:
            if is_damage(error):
                raise
            logger.warning("trace %d is kept but cannot be scored", seq, exc_info=True)
            self._store.fail(seq, f"could not be scored: {error}")

    def _score_and_queue(self, seq: int, trace: ReasoningTrace) -> None:
        started = time.perf_counter()
        shape = self._shape(seq, trace)
        vector = self._embedded(trace)  # slow, so outside the transaction; as is redaction
        hindrance = self._hindrance(trace)
        try:
            with transaction(self._connection):
                if not self._store.is_recorded(seq):
                    return  # another process was first
                score = self._scorer.compare(trace, vector, shape)
                decision = self._gate.decide(score)
                took_ms = (time.perf_counter() - started) * 1000
                verdict = self._verdict(decision, hindrance)
                self._store.save_score(seq, score, verdict, took_ms=took_ms)
        except BaseException:
            self._cache.reload()  # what it remembers of this run was rolled back
            raise
        if decision.decision == "forward" and hindrance is None:
            self._queue(seq, trace, score.value)  # if we die before: who starts next does it

    def _embedded(self, trace: ReasoningTrace) -> Vector | None:
        """The embedding, or None where the embedder fails: one warning for each kind of failure."""
        try:
            return self._scorer.embed(trace)
        except (EmbedderNotReadyError, *PASSING_TROUBLE):
            raise
        except Exception as error:  # noqa: BLE001 - a user's embedder may raise anything
            kind = type(error).__name__
            level = logging.DEBUG if kind in self._said else logging.WARNING
            self._said.add(kind)
            logger.log(level, "novelty is 0.5, the embedder failed: %s: %s", kind, error)
            return None

    def _shape(self, seq: int, trace: ReasoningTrace) -> Shape:
        steps, tools, recoveries = self._store.counts(seq)
        types = Shape.of(trace).types
        return Shape(steps=steps, types=types, tools=tools, recoveries=recoveries)

    def _verdict(self, decision: Decision, hindrance: str | None) -> Verdict:
        reason = decision.reason
        if decision.decision == "forward" and hindrance is not None:
            reason = f"{reason}; {hindrance}"
        return Verdict(self._gate.name, self._gate.threshold, decision.decision, reason)

    def _hindrance(self, trace: ReasoningTrace) -> str | None:
        """Why a trace that cleared stays here all the same."""
        if trace.metadata.visibility == "private":
            return _PRIVATE
        return _NO_KEY if self._settings.api_key is None else None

    def _queue(self, seq: int, trace: ReasoningTrace, score: float) -> None:
        redactor = self._policy.redactor
        try:
            leaving = outgoing(
                trace, score=score, agent_id=self._settings.agent_id, policy=self._policy
            )
        except RedactionError as error:
            logger.warning("trace %s stays here: %s", trace.id, error)
            self._outbox.add_blocked(seq, str(error), redactor=redactor)
        else:
            self._outbox.add(seq, leaving.body, redactor=redactor, redactions=leaving.redactions)

    def _without_secrets(self, run: RecordedRun) -> RecordedRun:
        """The run as it may be written; what needs a missing package is left to the outbox."""
        try:
            return _without_secrets(run, self._policy)
        except RedactionError as error:
            if error.reason not in privacy.ENGINE_TROUBLE:
                raise
            if error.where not in self._said:
                self._said.add(error.where)
                logger.warning("nothing will be sent: %s", error)
            return _without_secrets(run, self._policy.without_packages())


def _as_strict_as(settings: Settings, trace: ReasoningTrace) -> ReasoningTrace:
    """A submitted trace, with the stricter of its own and the pipeline's visibility and level."""
    metadata = trace.metadata
    stricter = {
        "visibility": min(metadata.visibility, settings.visibility, key=_VISIBILITIES.index),
        "privacy_level": min(metadata.privacy_level, settings.privacy_level, key=_LEVELS.index),
    }
    return trace.model_copy(update={"metadata": metadata.model_copy(update=stricter)})


def _without_secrets(run: RecordedRun, policy: privacy.Policy) -> RecordedRun:
    """The run as it may be written to the file."""
    facts = {name: getattr(run, name) for name in _SPOKEN_FACTS}
    facts["agents"] = [*run.agents.values()]
    cleaned = privacy.redact_jsonable(facts, level="private", policy=policy).value
    cleaned["agents"] = dict(zip(run.agents, cleaned["agents"], strict=True))
    trace = privacy.redact_trace(run.trace, level="private", policy=policy).trace
    return run.model_copy(update={**cleaned, "trace": trace})


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
