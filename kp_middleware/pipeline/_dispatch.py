"""Queue traces that cleared the gate, and redact queued ones again."""

import json
import logging
import time
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from kp_middleware import privacy
from kp_middleware.core.evaluation import Ending, known_success
from kp_middleware.core.formula import Shape
from kp_middleware.core.gates import DAY_S
from kp_middleware.errors import KnowledgePulseError, RedactionError
from kp_middleware.export import OwnExporter, payload
from kp_middleware.instants import epoch_s
from kp_middleware.settings import Settings
from kp_middleware.storage import (
    CANCELLED_BY_USER,
    MAY_HAVE_BEEN_SENT,
    STILL_SENT,
    TRANSIENT_ERRORS,
    OutboxAdmin,
    Store,
    StoredRun,
    is_damage,
)
from kp_middleware.traces import ReasoningTrace, Step

logger = logging.getLogger("kp_middleware")


class PreparedBody(NamedTuple):
    body: bytes | None  # exactly as it is posted
    redactions: Mapping[str, int]  # counts of its placeholders, by label
    error_text: str | None = None  # why there is no body


class Dispatch:
    """Queues traces for one registry, or for the exporter in its place."""

    def __init__(
        self, store: Store, settings: Settings, exporter: OwnExporter | None = None
    ) -> None:
        self.store = store
        self.policy = privacy.Policy.from_settings(settings)
        self._settings = settings
        destination = settings.registry_url if exporter is None else exporter.url
        self.outbox = store.outbox(destination, settings.agent_id)
        self._has_no_destination = settings.api_key is None and exporter is None
        self._queued_until = 0
        self.sends = settings.visibility != "private" and not self._has_no_destination
        self.caught_up = not self.sends  # nothing of earlier processes is left to queue

    def blocking_reason(self, visibility: str, ending: Ending, started_at: str) -> str | None:
        """Return why a cleared trace is not sent, a key of `DELIVERY`; None if it may be."""
        if visibility == "private":
            return "private"
        if self._settings.problems:
            return "wrong_setting"
        if self._has_no_destination:
            return "no_key"
        if self._awaits_confirmation(ending):
            known = known_success(ending.success, ending.success_source)
            return "not_done" if known is False else "unconfirmed"
        if self._settings.forward_only is None:
            return None
        age_s = time.time() - epoch_s(started_at)
        return "too_late" if age_s > self._settings.confirm_within_days * DAY_S else None

    def queue(self, seq: int, trace: ReasoningTrace, score: float) -> None:
        """Add a cleared trace to the outbox; after a crash, the next process does it."""
        try:
            # slow: outside the transaction
            body, counts, error_text = self.prepared(trace, score)
            if error_text is not None:
                logger.warning("trace %s is not sent: %s", trace.id, error_text)
            redactor = self.policy.redactor
            with self.store.transaction():
                self.outbox.add(seq, body, redactor=redactor, redactions=counts, reason=error_text)
                self.outbox.sync(seq)
        except BaseException:
            self.caught_up, self._queued_until = False, min(self._queued_until, seq - 1)
            raise

    def queue_left(self) -> bool:
        """Queue a trace cleared without a key or by a process that died; False if there is none."""
        seq = self.outbox.next_unqueued(after=self._queued_until)
        if seq is None:
            self.caught_up = True
            return False
        self.queue_stored(seq)
        self._queued_until = seq
        return True

    def queue_stored(self, seq: int) -> None:
        """Add a stored, cleared trace to the outbox, unless it cannot be read."""
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
            if is_transient(error):
                raise
            logger.warning("trace %d cleared, but cannot be queued", seq, exc_info=True)

    def _awaits_confirmation(self, ending: Ending) -> bool:
        return self._settings.forward_only == "confirmed" and not ending.is_confirmed

    def prepared(self, trace: ReasoningTrace, score: float) -> PreparedBody:
        return prepared(trace, score, self._settings.agent_id, self.policy)


def is_transient(error: BaseException) -> bool:
    """Return whether an error comes from the file: the failed step is retried."""
    return isinstance(error, TRANSIENT_ERRORS) or is_damage(error)


def shape_of(stored: StoredRun, trace: ReasoningTrace) -> Shape:
    """Return the counts of a stored run, even if the document has fewer steps."""
    return Shape(stored.steps, trace.shape.types, stored.tools, stored.recoveries)


GATE_FAILED: Final = "a run is withheld: the gate failed"


def warn_once(kinds: set[str], failure: str, error: BaseException) -> None:
    """Log the first failure of each kind as a warning, the others at debug level."""
    kind = f"{failure}: {type(error).__name__}"
    level = logging.DEBUG if kind in kinds else logging.WARNING
    kinds.add(kind)
    logger.log(level, "%s: %s", kind, error)


_ARGUMENT_LENGTH: Final = 80


def prepared(
    trace: ReasoningTrace, score: float, agent_id: str | None, policy: privacy.Policy
) -> PreparedBody:
    """Prepare a stored trace for sending, at its own privacy level.

    Tool calls without ``content`` get one, since the registry does not search ``input``. It is made
    after redaction, as truncation could hide half of a secret, and redacted again, as it joins
    values that were apart.
    """
    level = trace.metadata.privacy_level
    try:
        redacted = privacy.redact_trace(trace, level=level, policy=policy).trace
        if calls := [_call_text(step) for step in redacted.steps if _lacks_content(step)]:
            texts = iter(privacy.redact_jsonable(calls, level=level, policy=policy).value)
            steps = tuple(
                step.model_copy(update={"content": next(texts)}) if _lacks_content(step) else step
                for step in redacted.steps
            )
            redacted = redacted.model_copy(update={"steps": steps})
        body = payload(redacted, score=score, agent_id=agent_id)
        privacy.check_clean(body, level=level, policy=policy)
    except RedactionError as error:
        return PreparedBody(None, {}, str(error))
    return PreparedBody(body, privacy.count_placeholders(body.decode()))


def with_score(body: bytes, score: float) -> bytes:
    document = json.loads(body)
    if document["metadata"]["quality_score"] == score:
        return body
    document["metadata"]["quality_score"] = score
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _call_text(step: Step) -> str:
    name = "" if step.tool is None else step.tool.name
    arguments = ", ".join(
        f"{key}={_value_text(value)}" for key, value in (step.input or {}).items()
    )
    return _truncated(f"{name}({arguments})", 200)


def _lacks_content(step: Step) -> bool:
    return step.type == "tool_call" and step.tool is not None and not step.content


def _value_text(value: object) -> str:
    if isinstance(value, str):
        return json.dumps(_truncated(value, _ARGUMENT_LENGTH), ensure_ascii=False)
    return _truncated(json.dumps(value, ensure_ascii=False), _ARGUMENT_LENGTH)


def _truncated(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


Rescanned: TypeAlias = Literal["unchanged", "rewritten", "released", "blocked", "left"]


class Rescan:
    """Redacts the bodies of outbox items again.

    Items of a program with other redaction settings are redacted by both; its blocked items are
    skipped.
    """

    def __init__(self, outbox: OutboxAdmin, settings: Settings) -> None:
        self._outbox = outbox
        self._agent_id = settings.agent_id
        self._policy = privacy.Policy.from_settings(settings)

    def retry(self, seq: int, *, force: bool) -> str:
        """Redact an item again and queue it; return its state, or another outcome.

        ``force`` also resends a sent item, redacted by these settings, too; it redacts an unsent
        item by these settings alone. Raises if there is nothing to retry.
        """
        try:
            with self._outbox.transaction():
                was_sent = force and self._outbox.reopen(seq)
                entry = self._outbox.entry(seq)
                if entry.state not in {"rejected", "blocked"} and entry.reason != CANCELLED_BY_USER:
                    how = "; --force sends it again" if entry.state == "sent" else ""
                    raise KnowledgePulseError(f"nothing to retry: the item is {entry.state}{how}")
                outcome: str = self.rescan(seq, alone=force and not was_sent)
                is_queued = outcome in {"unchanged", "rewritten"}
                if is_queued and self._outbox.retry(seq, agent_id=self._agent_id):
                    state = self._outbox.entry(seq).state
                    outcome = "waiting" if state == "pending" else state
                if was_sent and self._outbox.entry(seq).state != "pending":
                    raise _NotQueuedError
                return outcome
        except _NotQueuedError:
            return STILL_SENT

    def rescan(self, seq: int, *, alone: bool = False) -> Rescanned:
        """Rewrite or block an item unless it was sent or cancelled; ``alone``: from the trace."""
        entry = self._outbox.entry(seq)
        redactor, body = self._policy.redactor, None
        if not alone and entry.redactor.partition("+")[2] != redactor.partition("+")[2]:
            if entry.body is None:
                return "left"
            redactor, body = entry.redactor, entry.body
        agent_id = self._agent_id
        try:
            trace = ReasoningTrace.model_validate_json(entry.document)
            if body is not None:
                trace = _without_call_texts(ReasoningTrace.model_validate_json(body), stored=trace)
            result = prepared(trace, entry.score, agent_id, self._policy)
        except ValueError:
            result = PreparedBody(None, {}, "its local copy cannot be read")
        if result.body is None:
            self._outbox.block(seq, result.error_text or "", redactor=redactor)
            return "blocked"
        return self._outbox.renew(
            seq, result.body, redactor=redactor, redactions=result.redactions, agent_id=agent_id
        )

    def rescan_all(self, *, alone: bool = False) -> dict[int, Rescanned]:
        """Rescan all items that are certainly unsent."""
        outcomes: dict[int, Rescanned] = {}
        for seq in self._outbox.seqs("pending", "blocked", "rejected"):
            is_lost = self._outbox.entry(seq).reason == MAY_HAVE_BEEN_SENT
            outcomes[seq] = "blocked" if is_lost else self.rescan(seq, alone=alone)
        return outcomes


def _without_call_texts(leaving: ReasoningTrace, stored: ReasoningTrace) -> ReasoningTrace:
    steps = tuple(
        step.model_copy(update={"content": None}) if _lacks_content(local) else step
        for step, local in zip(leaving.steps, stored.steps, strict=True)
    )
    return leaving.model_copy(update={"steps": steps})


class _NotQueuedError(Exception):
    """Rolls back a transaction: a sent item could not be queued again."""


def ended_trace(trace: ReasoningTrace, ending: Ending) -> ReasoningTrace:
    """Return a document with its stored ending, which may say that success is assumed."""
    is_assumed = known_success(ending.success, ending.success_source) is None
    trace = trace.ended(success=ending.success, confidence=ending.confidence)
    source = {"success_source": "assumed" if is_assumed else None}
    return trace.model_copy(update={"metadata": trace.metadata.model_copy(update=source)})
