"""Queue traces that cleared the gate and may leave in the outbox."""

import logging
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kp_middleware import privacy
from kp_middleware.core.endings import Ending, known_success
from kp_middleware.core.gates import DAY_S
from kp_middleware.errors import RedactionError
from kp_middleware.export import OwnExporter, payload
from kp_middleware.instants import epoch_s
from kp_middleware.pipeline._call_words import with_calls_in_words
from kp_middleware.settings import Settings
from kp_middleware.storage import PASSING_TROUBLE, Store, is_damage
from kp_middleware.traces import ReasoningTrace

logger = logging.getLogger("kp_middleware")


class Prepared(NamedTuple):
    """A body that may be sent.

    Attributes:
        body: Exactly the bytes to post.
        redactions: What its placeholders stand for, whenever they were put in: counts by label.
    """

    body: bytes
    redactions: Mapping[str, int]


class Dispatch:
    """Queues traces for one registry.

    Args:
        store: Of the traces.
        settings: Say where traces go.
        policy: What is taken out of them first.
        exporter: Where traces go instead, or None.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        policy: privacy.Policy,
        exporter: OwnExporter | None = None,
    ) -> None:
        self._store = store
        self._settings = settings
        self._policy = policy
        destination = settings.registry_url if exporter is None else exporter.url
        self._outbox = store.outbox(destination, settings.agent_id)
        self._goes_nowhere = settings.api_key is None and exporter is None
        self._has_begun = False
        self._looked_until = 0
        self._sends = settings.visibility != "private" and not self._goes_nowhere
        self._caught_up = not self._sends

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
        """Put a trace that cleared into the outbox; another process may have done so.

        If we die before, whoever starts next does it; if it cannot be written now, so do we.
        """
        try:
            self._add(seq, self._prepared(trace, score))
        except BaseException:
            self._caught_up, self._looked_until = False, min(self._looked_until, seq - 1)
            raise

    def queue_left(self) -> bool:
        """Queue one that cleared before: without a key, or by a process that died. False: none did.

        One that cannot be read is said, and left to the next process.
        """
        if self._caught_up:
            return False
        if not self._has_begun:
            self._outbox.adopt()
            self._has_begun = True
        seq = self._outbox.next_unqueued(after=self._looked_until)
        if seq is None:
            self._caught_up = True
            return False
        self.queue_stored(seq)
        self._looked_until = seq
        return True

    def queue_stored(self, seq: int) -> None:
        """Put a stored trace that cleared into the outbox; what cannot be read is said, and left.

        If it cannot be written now, `queue_left` comes back to it.
        """
        try:
            ending = self._store.ending(seq)
            if self._awaits_confirmation(ending):
                return
            stored = self._store.stored(seq)
            trace = ReasoningTrace.model_validate_json(stored.document)
            metadata = trace.metadata
            if self.blocking_reason(metadata.visibility, ending, metadata.created_at) is None:
                self.queue(seq, trace, stored.score or 0.0)
        except PASSING_TROUBLE:
            raise
        except Exception as error:
            if is_damage(error):
                raise
            logger.warning("trace %d cleared, but cannot be queued", seq, exc_info=True)

    def _awaits_confirmation(self, ending: Ending) -> bool:
        return self._settings.forward_only == "confirmed" and not ending.is_confirmed

    def any_pending(self) -> bool:
        """Return whether an outbox item waits to be sent, and may be."""
        return self._sends and self._outbox.any_pending()

    def sync(self, seq: int) -> None:
        """Let the outbox item of a trace follow after the trace has changed."""
        self._outbox.sync(seq)

    def _prepared(self, trace: ReasoningTrace, score: float) -> Prepared | str:
        """Return the payload, or why there is none; slow, so call it outside transactions."""
        try:
            return prepare_payload(
                trace, score=score, agent_id=self._settings.agent_id, policy=self._policy
            )
        except RedactionError as error:
            logger.warning("trace %s stays here: %s", trace.id, error)
            return str(error)

    def _add(self, seq: int, leaving: Prepared | str) -> None:
        redactor = self._policy.redactor
        with self._store.transaction():
            if isinstance(leaving, str):
                self._outbox.add_blocked(seq, leaving, redactor=redactor)
            else:
                body, redactions = leaving
                self._outbox.add(seq, body, redactor=redactor, redactions=redactions)
            self._outbox.sync(seq)


def prepare_payload(
    trace: ReasoningTrace, *, score: float, agent_id: str | None, policy: privacy.Policy
) -> Prepared:
    """Prepare a stored trace for sending, at its own privacy level.

    Tool calls are told in words as well: the registry searches ``content``, not ``input``.

    Raises:
        RedactionError: If it is not certain that the rest is clean: it stays here.
    """
    level = trace.metadata.privacy_level

    def clean(words: list[str]) -> Sequence[str]:
        cleaned: list[str] = privacy.redact_jsonable(words, level=level, policy=policy).value
        return cleaned

    redacted = privacy.redact_trace(trace, level=level, policy=policy)
    told = with_calls_in_words(redacted.trace, clean)
    body = payload(told, score=score, agent_id=agent_id)
    privacy.check_clean(body, level=level, policy=policy)
    return Prepared(body, privacy.count_placeholders(body.decode()))
