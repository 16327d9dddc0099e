"""What would leave of a trace: redacted, as the exact bytes, and looked through once more."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kp_middleware import privacy
from kp_middleware.export import payload
from kp_middleware.pipeline._call_words import with_calls_in_words
from kp_middleware.traces import ReasoningTrace


class Outgoing(NamedTuple):
    """A body that may be sent.

    Attributes:
        body: Exactly the bytes to post.
        redactions: What its placeholders stand for, whenever they were put in: counts by label.
    """

    body: bytes
    redactions: Mapping[str, int]


def outgoing(
    trace: ReasoningTrace, *, score: float, agent_id: str | None, policy: privacy.Policy
) -> Outgoing:
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
    return Outgoing(body, privacy.count_placeholders(body.decode()))
