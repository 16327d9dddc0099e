"""Clean whole documents and other structures; when in doubt, refuse."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kp_middleware.errors import RedactionError
from kp_middleware.privacy._refusal import refusing
from kp_middleware.privacy._walk import Walk

if TYPE_CHECKING:
    from kp_middleware.traces import PrivacyLevel, ReasoningTrace

_KEPT = frozenset(
    (
        *("@context", "@type", "steps[].step_id", "steps[].type", "steps[].latency_ms"),
        *(
            "outcome.confidence",
            "metadata.created_at",
            "metadata.success",
            "metadata.quality_score",
        ),
        *("metadata.visibility", "metadata.privacy_level"),
    )
)
"""Fields whose type leaves no room for anything that would have to go."""


@dataclass(frozen=True, slots=True)
class RedactedTrace:
    """A document without what had to go, valid again.

    Attributes:
        trace: With placeholders such as ``[REDACTED:email]``.
        counts: How many placeholders were put in, by label.
    """

    trace: "ReasoningTrace"
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class RedactedValue:
    """A structure without what had to go, of the same shape.

    Attributes:
        value: With placeholders such as ``[REDACTED:email]``; one can stand for a number.
        counts: How many placeholders were put in, by label.
    """

    value: Any
    counts: Mapping[str, int]


def redact_trace(trace: "ReasoningTrace", *, level: "PrivacyLevel") -> RedactedTrace:
    """Take out of a document what must not be kept or shared at a level.

    Raises:
        RedactionError: If it is not certain that the rest is clean and valid: keep it here.
    """
    from pydantic import ValidationError

    walk = Walk(level, kept=_KEPT)
    with refusing():
        document = walk.clean(trace.model_dump(mode="json"))
        try:
            cleaned = type(trace).model_validate(document)
        except ValidationError as problem:
            where = ".".join(str(part) for part in problem.errors()[0]["loc"])
            raise RedactionError("invalid_after_redaction", where) from None
    return RedactedTrace(cleaned, _counts(walk))


def redact_jsonable(value: object, *, level: "PrivacyLevel") -> RedactedValue:
    """Take what must not be kept or shared out of dicts, lists, tuples, strings and numbers.

    Raises:
        RedactionError: If it is not certain that the rest is clean; other types are such a doubt.

    >>> redact_jsonable({"user": "anna", "password": "hunter2"}, level="private").value
    {'user': 'anna', 'password': '[REDACTED:password]'}
    """
    walk = Walk(level)
    with refusing():
        cleaned = walk.clean(value)
    return RedactedValue(cleaned, _counts(walk))


def _counts(walk: Walk) -> Counter[str]:
    return Counter(found.label for found in walk.found)
