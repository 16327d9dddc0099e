"""Queue traces that cleared the gate and may leave, and redact again what is queued."""

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, NamedTuple, Self, TypeAlias

from kp_middleware import privacy
from kp_middleware.core.evaluation import (
    Ending,
    Evaluation,
    RunFacts,
    default_confidence,
    evaluate,
    known_success,
)
from kp_middleware.core.formula import Shape, Weights
from kp_middleware.core.gates import DAY_S, Gate
from kp_middleware.errors import KnowledgePulseError, RedactionError, TraceNotFoundError
from kp_middleware.export import OwnExporter, payload
from kp_middleware.instants import epoch_s, instant
from kp_middleware.pipeline._intake import Feedback
from kp_middleware.settings import Settings
from kp_middleware.storage import (
    CANCELLED_BY_HAND,
    MAY_HAVE_BEEN_SENT,
    STILL_SENT,
    TRANSIENT_ERRORS,
    OutboxAdmin,
    PastRun,
    Store,
    StoredRun,
    is_damage,
)
from kp_middleware.traces import ReasoningTrace, Step

logger = logging.getLogger("kp_middleware")


class Prepared(NamedTuple):
    """What may leave of a trace."""

    body: bytes | None  # exactly as it is posted
    redactions: Mapping[str, int]  # what its placeholders stand for, by label
    why_not: str | None = None  # nothing may leave


class Dispatch:
    """Queues traces for one registry, or for the exporter in its place."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        policy: privacy.Policy,
        exporter: OwnExporter | None = None,
    ) -> None:
        self.store = store
        self._settings = settings
        self._policy = policy
        destination = settings.registry_url if exporter is None else exporter.url
        self.outbox = store.outbox(destination, settings.agent_id)
        self._goes_nowhere = settings.api_key is None and exporter is None
        self._looked_until = 0
        self.sends = settings.visibility != "private" and not self._goes_nowhere
        self.caught_up = not self.sends  # what others have left is queued

    def blocking_reason(self, visibility: str, ending: Ending, started_at: str) -> str | None:
        """Say why a trace that cleared stays here all the same: a key of `DELIVERY`, or None."""
        if visibility == "private":
            return "private"
        if self._settings.problems:
            return "wrong_setting"
        if self._goes_nowhere:
            return "no_key"
        if self._awaits_confirmation(ending):
            known = known_success(ending.success, ending.success_source)
            return "not_done" if known is False else "unconfirmed"
        if self._settings.forward_only is None:
            return None
        age_s = time.time() - epoch_s(started_at)
        return "too_late" if age_s > self._settings.confirm_within_days * DAY_S else None

    def queue(self, seq: int, trace: ReasoningTrace, score: float) -> None:
        """Put a trace that cleared into the outbox; after a crash, whoever starts next does it."""
        try:
            # slow, and so outside of the transaction
            body, counts, why_not = self.prepared(trace, score)
            if why_not is not None:
                logger.warning("trace %s stays here: %s", trace.id, why_not)
            redactor = self._policy.redactor
            with self.store.transaction():
                self.outbox.add(seq, body, redactor=redactor, redactions=counts, reason=why_not)
                self.outbox.sync(seq)
        except BaseException:
            self.caught_up, self._looked_until = False, min(self._looked_until, seq - 1)
            raise

    def queue_left(self) -> bool:
        """Queue one that cleared without a key or in a process that died; False if none did."""
        seq = self.outbox.next_unqueued(after=self._looked_until)
        if seq is None:
            self.caught_up = True
            return False
        self.queue_stored(seq)
        self._looked_until = seq
        return True

    def queue_stored(self, seq: int) -> None:
        """Put a stored trace that cleared into the outbox, unless it cannot be read."""
        try:
            ending = self.store.ending(seq)
            if self._awaits_confirmation(ending):
                return
            stored = self.store.stored(seq)
            trace = ReasoningTrace.model_validate_json(stored.document)
            metadata = trace.metadata
            if self.blocking_reason(metadata.visibility, ending, metadata.created_at) is None:
                self.queue(seq, trace, stored.score or 0.0)
        except Exception as error:
            if passes(error):
                raise
            logger.warning("trace %d cleared, but cannot be queued", seq, exc_info=True)

    def _awaits_confirmation(self, ending: Ending) -> bool:
        return self._settings.forward_only == "confirmed" and not ending.is_confirmed

    def prepared(self, trace: ReasoningTrace, score: float) -> Prepared:
        return prepared(trace, score, self._settings.agent_id, self._policy)


def passes(error: Exception) -> bool:
    """Return whether an error is the file's, so that what failed is tried again."""
    return isinstance(error, TRANSIENT_ERRORS) or is_damage(error)


def shape_of(stored: StoredRun, trace: ReasoningTrace) -> Shape:
    """Return the counts of a stored run, also where the document has fewer steps."""
    return Shape(stored.steps, trace.shape.types, stored.tools, stored.recoveries)


GATE_FAILED: Final = "a run stays here, the gate failed"


def warn_once(kinds: set[str], what: str, error: BaseException) -> None:
    """Log one warning for each kind of failure, and the rest for debugging."""
    kind = f"{what}: {type(error).__name__}"
    level = logging.DEBUG if kind in kinds else logging.WARNING
    kinds.add(kind)
    logger.log(level, "%s: %s", kind, error)


@dataclass(frozen=True)
class Reevaluation:
    """Evaluates stored runs again, and lets the outbox follow. Nothing is sent twice."""

    store: Store
    dispatch: Dispatch
    gate: Gate
    warn: Callable[[BaseException], None]

    @classmethod
    def from_settings(cls, store: Store, settings: Settings) -> Self:
        """Build one from settings alone: for a command, which has no pipeline."""
        dispatch = Dispatch(store, settings, privacy.Policy.from_settings(settings))
        return cls(store, dispatch, settings.gate, partial(warn_once, set(), GATE_FAILED))

    def apply(self, feedback: Feedback) -> bool:
        """Store feedback and evaluate the run again; False if it was told the same before."""
        with self.store.transaction():
            before = self.store.outcome(feedback.trace_id)
            if before is None:
                raise TraceNotFoundError(f"no run has the id {feedback.trace_id[:100]!r}")
            ending, given = _ended(feedback, before.ending), (feedback.success, feedback.confidence)
            if before.last_feedback == given and ending[:2] == before.ending[:2]:
                return False
            given_at = instant(feedback.given_at_s)
            self.store.add_feedback(before, ending, given_at=given_at, given=given)
            leaves = before.state == "scored" and self._with_outcome(before.seq)
        if leaves:
            self.dispatch.queue_stored(before.seq)
        return True

    def evaluate(self, seq: int, run: RunFacts, weights: Weights, before: PastRun) -> Evaluation:
        """Evaluate a stored run by today's gate, with what was decided before that run."""
        history = self.store.history(seq, before.domain, let_through_at=before.let_through_at)
        return evaluate(run, history, weights, self.gate, self.warn)

    def save(
        self, seq: int, evaluation: Evaluation, before: PastRun, p_success: float | None = None
    ) -> bool:
        """Store another evaluation in a transaction; return whether to queue it after that."""
        verdict, leaves = evaluation.verdict, False
        if before.outbox in {"sent", "sending"}:
            verdict = verdict.with_delivery(before.outbox)
        elif (
            verdict.decision == "forward"
            and before.outbox in {None, "cancelled"}
            and before.outbox_reason != CANCELLED_BY_HAND
        ):
            ending = self.store.ending(seq)
            why = self.dispatch.blocking_reason(before.visibility, ending, before.started_at)
            leaves = why is None
            verdict = verdict if why is None else verdict.with_delivery(why)
        told = evaluation._replace(verdict=verdict)
        self.store.save_evaluation(seq, told, p_success=p_success)
        self.dispatch.outbox.sync(seq)
        return leaves

    def _with_outcome(self, seq: int) -> bool:
        """Evaluate a scored run by its ending alone: what was measured and its weights stay.

        So does its place in the share: those after it have been ranked behind it.
        """
        before = self.store.scored(seq)
        if before is None or (stored := before.score) is None:
            return False
        ending = before.ending
        run = RunFacts(
            before.shape,
            ending.confidence,
            ending.success,
            stored.nearest,
            stored.embedder,
            measured=stored.signals,
            p_success=ending.p_success(before.p_success),
            is_stated=ending.is_stated,
            key=before.rank_key,
            was_chosen=None if before.chosen is None else bool(before.chosen),
        )
        score, verdict = self.evaluate(seq, run, stored.weights, before)
        verdict = verdict._replace(key=None, credit=None, chosen=None)
        return self.save(seq, Evaluation(score, verdict), before)


def _ended(feedback: Feedback, before: Ending) -> Ending:
    ending = before
    if feedback.success is not None:
        ending = ending._replace(success=feedback.success, success_source="feedback")
    if feedback.confidence is not None:
        return ending._replace(confidence=feedback.confidence, confidence_source="feedback")
    unsaid = {"assumed", "estimated"} if feedback.success is not None else {"assumed"}
    confidence = default_confidence(success=ending.success)
    if before.confidence_source not in unsaid or confidence == before.confidence:
        return ending
    return ending._replace(confidence=confidence, confidence_source="assumed")


_MOST_CHARACTERS: Final = 200
_MOST_OF_AN_ARGUMENT: Final = 80


def prepared(
    trace: ReasoningTrace, score: float, agent_id: str | None, policy: privacy.Policy
) -> Prepared:
    """Prepare a stored trace for sending, at its own privacy level.

    Tool calls are told in words as well: the registry searches ``content``, not ``input``. They are
    put into words after redaction, since a cut must not hide half of a secret, and redacted again:
    values stand together in them that did not before.
    """
    level = trace.metadata.privacy_level
    try:
        told = privacy.redact_trace(trace, level=level, policy=policy).trace
        if calls := [_in_words(step) for step in told.steps if _is_silent(step)]:
            words = iter(privacy.redact_jsonable(calls, level=level, policy=policy).value)
            steps = tuple(
                step.model_copy(update={"content": next(words)}) if _is_silent(step) else step
                for step in told.steps
            )
            told = told.model_copy(update={"steps": steps})
        body = payload(told, score=score, agent_id=agent_id)
        privacy.check_clean(body, level=level, policy=policy)
    except RedactionError as error:
        return Prepared(None, {}, str(error))
    return Prepared(body, privacy.count_placeholders(body.decode()))


def with_score(body: bytes, score: float) -> bytes:
    """Return a prepared body with another score, which needs no redaction."""
    document = json.loads(body)
    if document["metadata"]["quality_score"] == score:
        return body
    document["metadata"]["quality_score"] = score
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _in_words(step: Step) -> str:
    name = "" if step.tool is None else step.tool.name
    arguments = ", ".join(f"{key}={_written(value)}" for key, value in (step.input or {}).items())
    return _cut(f"{name}({arguments})", _MOST_CHARACTERS)


def _is_silent(step: Step) -> bool:
    return step.type == "tool_call" and step.tool is not None and not step.content


def _written(value: object) -> str:
    if isinstance(value, str):
        return json.dumps(_cut(value, _MOST_OF_AN_ARGUMENT), ensure_ascii=False)
    return _cut(json.dumps(value, ensure_ascii=False), _MOST_OF_AN_ARGUMENT)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


Rescanned: TypeAlias = Literal["unchanged", "rewritten", "released", "blocked", "left"]

_NOT_SENT: Final = ("pending", "blocked", "rejected")


class Rescan:
    """Redacts the bodies of outbox items again.

    What a program with redaction settings of its own prepared is cleaned once more, so that both
    have their way; what it blocked is left as it is.
    """

    def __init__(self, outbox: OutboxAdmin, settings: Settings) -> None:
        self._care = outbox
        self._agent_id = settings.agent_id
        self._policy = privacy.Policy.from_settings(settings)

    def retry(self, seq: int, *, force: bool) -> str:
        """Redact an item anew and queue it; return its state, or another outcome.

        ``force`` also sends again what was sent, as it went, and cleaned by these settings as well;
        to what was not sent it applies these settings alone. Raises where nothing is to be retried.
        """
        try:
            with self._care.transaction():
                was_sent = force and self._care.reopen(seq)
                entry = self._care.entry(seq)
                if entry.state not in {"rejected", "blocked"} and entry.reason != CANCELLED_BY_HAND:
                    how = "; --force sends it again" if entry.state == "sent" else ""
                    raise KnowledgePulseError(f"nothing to retry: the item is {entry.state}{how}")
                outcome: str = self.rescan(seq, alone=force and not was_sent)
                is_queued = outcome in {"unchanged", "rewritten"}
                if is_queued and self._care.retry(seq, agent_id=self._agent_id):
                    state = self._care.entry(seq).state
                    outcome = "waiting" if state == "pending" else state
                if was_sent and self._care.entry(seq).state != "pending":
                    raise _NotQueuedError
                return outcome
        except _NotQueuedError:
            return STILL_SENT

    def rescan(self, seq: int, *, alone: bool = False) -> Rescanned:
        """Rewrite one row, or block it, unless it was sent or cancelled; ``alone``: anew."""
        entry = self._care.entry(seq)
        redactor, body = self._policy.redactor, None
        if not alone and entry.redactor.partition("+")[2] != redactor.partition("+")[2]:
            if entry.body is None:
                return "left"
            redactor, body = entry.redactor, entry.body
        agent_id = self._agent_id
        try:
            trace = ReasoningTrace.model_validate_json(entry.document)
            if body is not None:
                trace = _without_call_words(ReasoningTrace.model_validate_json(body), kept=trace)
            leaving = prepared(trace, entry.score, agent_id, self._policy)
        except ValueError:
            leaving = Prepared(None, {}, "its local copy cannot be read")
        if leaving.body is None:
            self._care.block(seq, leaving.why_not or "", redactor=redactor)
            return "blocked"
        return self._care.renew(
            seq, leaving.body, redactor=redactor, redactions=leaving.redactions, agent_id=agent_id
        )

    def rescan_all(self, *, alone: bool = False) -> dict[int, Rescanned]:
        """Rescan every row that was not sent, but none that may have been before a damage."""
        outcomes: dict[int, Rescanned] = {}
        for seq in self._care.seqs(*_NOT_SENT):
            is_lost = self._care.entry(seq).reason == MAY_HAVE_BEEN_SENT
            outcomes[seq] = "blocked" if is_lost else self.rescan(seq, alone=alone)
        return outcomes


def _without_call_words(leaving: ReasoningTrace, kept: ReasoningTrace) -> ReasoningTrace:
    """Remove the ``content`` of tool calls that have none in the local copy."""
    steps = tuple(
        step.model_copy(update={"content": None}) if _is_silent(here) else step
        for step, here in zip(leaving.steps, kept.steps, strict=True)
    )
    return leaving.model_copy(update={"steps": steps})


class _NotQueuedError(Exception):
    """The error that rolls back a transaction: what was sent is not queued again."""
