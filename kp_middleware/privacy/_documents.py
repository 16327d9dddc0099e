"""Redaction of whole documents, which turns any failure into a refusal."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kp_middleware.errors import RedactionError
from kp_middleware.privacy._known_secrets import KnownSecrets
from kp_middleware.privacy._plugins import document
from kp_middleware.privacy._policy import Policy
from kp_middleware.privacy._rules import words
from kp_middleware.privacy._scanner import Findings, Found
from kp_middleware.privacy._walk import Kept, Walk, unique

if TYPE_CHECKING:
    from kp_middleware.traces import PrivacyLevel, ReasoningTrace


@contextmanager
def fail_closed() -> Iterator[None]:
    """Convert any failure inside into a RedactionError that does not reveal the value."""
    try:
        with document():
            yield
    except RedactionError:
        raise
    except Exception:  # noqa: BLE001  # fail closed, whatever it is
        raise RedactionError("redactor_error") from None  # the cause may quote the value


_STAYS: Kept = {}
_KEPT: Kept = {
    "@context": _STAYS,
    "@type": _STAYS,
    "steps": {"[]": dict.fromkeys(("step_id", "type", "latency_ms"), _STAYS)},
    "outcome": {"confidence": _STAYS},
    "metadata": dict.fromkeys(
        words("created_at|success|success_source|quality_score|visibility|privacy_level"), _STAYS
    ),
}
"""Fields whose type cannot hold anything to redact."""

_NO_POLICY = Policy()


@dataclass(frozen=True, slots=True)
class RedactedTrace(Findings):
    """A redacted trace, validated again, and what its placeholders stand for, by path."""

    trace: "ReasoningTrace"
    found: tuple[Found, ...]


@dataclass(frozen=True, slots=True)
class RedactedValue(Findings):
    """A redacted structure of the same shape, and what its placeholders stand for, by path.

    A placeholder such as ``[REDACTED:email]`` can stand for a number, too.
    """

    value: Any
    found: tuple[Found, ...]


def redact_trace(
    trace: "ReasoningTrace",
    *,
    level: "PrivacyLevel",
    policy: Policy = _NO_POLICY,
    known: KnownSecrets | None = None,
) -> RedactedTrace:
    """Redact a trace for a privacy level.

    A secret found in one place is redacted in every place, as are the ``known`` secrets of other
    documents of the run, to which those found here are added.

    Raises:
        RedactionError: If the rest may not be clean and valid: do not share it.
    """
    with fail_closed():
        walk = Walk(trace, level, policy, known, kept=_KEPT)
        return _validated(trace, walk.spread(walk.clean(trace.model_dump(mode="json"))), walk)


def spread_in_trace(
    trace: "ReasoningTrace", *, level: "PrivacyLevel", policy: Policy, known: KnownSecrets
) -> RedactedTrace:
    """Redact secrets learned later from a redacted trace. Raises as `redact_trace`."""
    with fail_closed():
        walk = Walk(trace, level, policy, known, kept=_KEPT)
        return _validated(trace, walk.spread(trace.model_dump(mode="json")), walk)


def redact_jsonable(
    value: object,
    *,
    level: "PrivacyLevel",
    policy: Policy = _NO_POLICY,
    known: KnownSecrets | None = None,
) -> RedactedValue:
    """Redact dicts, lists, tuples, strings and numbers for a privacy level.

    A secret found in one place is redacted in every place, as in `redact_trace`.

    Raises:
        RedactionError: If the rest may not be clean, or a value has another type.

    >>> redact_jsonable({"user": "anna", "password": "hunter2"}, level="private").value
    {'user': 'anna', 'password': '[REDACTED:password]'}
    """
    with fail_closed():
        walk = Walk(value, level, policy, known)
        return RedactedValue(walk.spread(walk.clean(value)), tuple(walk.found))


def spread_in_jsonable(
    value: object, *, level: "PrivacyLevel", policy: Policy, known: KnownSecrets
) -> RedactedValue:
    """Redact secrets learned later from a redacted structure. Raises as `redact_jsonable`."""
    with fail_closed():
        walk = Walk(value, level, policy, known)
        return RedactedValue(walk.spread(value), tuple(walk.found))


def _validated(trace: "ReasoningTrace", document: object, walk: Walk) -> RedactedTrace:
    from pydantic import ValidationError

    if not walk.found:
        return RedactedTrace(trace, ())
    try:
        cleaned = type(trace).model_validate(document)
    except ValidationError as problem:
        where = ".".join(str(part) for part in problem.errors()[0]["loc"])
        raise RedactionError("invalid_after_redaction", where) from None
    return RedactedTrace(cleaned, tuple(walk.found))


def check_clean(body: bytes, *, level: "PrivacyLevel", policy: Policy = _NO_POLICY) -> None:
    """Check that a JSON document holds nothing left to redact.

    The built-in rules check every field; the user's, those that can hold text.

    Raises:
        RedactionError: ``residual_secret`` with the path, the rule and the length of what was
            found, never the value; ``invalid_after_redaction`` if it is not JSON, or a key comes
            twice.
    """
    try:
        document = json.loads(body.decode(), object_pairs_hook=unique)
    except (ValueError, RecursionError):
        raise RedactionError("invalid_after_redaction") from None  # the cause quotes the body
    with fail_closed():
        for rules, kept in ((policy.built_in(), None), (policy, _KEPT)):
            if kept and rules == policy.built_in():
                return
            walk = Walk(document, level, rules, kept=kept)
            walk.clean(document)
            if walk.found:
                first = walk.found[0]
                where = f"{first.path} ({first.label}, {first.length} chars)"
                raise RedactionError("residual_secret", where)
