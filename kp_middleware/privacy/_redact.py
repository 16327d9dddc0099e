"""Redact a trace or a value, and check the bytes that are sent: any doubt is an error."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from kp_middleware.errors import RedactionError
from kp_middleware.privacy._decoding import unique_members
from kp_middleware.privacy._documents import DocumentRedactor, FieldTree
from kp_middleware.privacy._known_secrets import KnownSecrets
from kp_middleware.privacy._policy import Policy, engine_time_limit
from kp_middleware.privacy._ruleset import RedactedTrace, RedactedValue
from kp_middleware.privacy._values import words

if TYPE_CHECKING:
    from kp_middleware.traces import PrivacyLevel, ReasoningTrace

_NO_POLICY = Policy()
_SKIP: FieldTree = {}
_SAFE_FIELDS: FieldTree = {
    "@context": _SKIP,
    "@type": _SKIP,
    "steps": {"[]": dict.fromkeys(("step_id", "type", "latency_ms"), _SKIP)},
    "outcome": {"confidence": _SKIP},
    "metadata": dict.fromkeys(
        words("created_at|success|success_source|quality_score|visibility|privacy_level"), _SKIP
    ),
}
"""Fields whose type leaves nothing to redact."""


def redact_trace(
    trace: "ReasoningTrace",
    *,
    level: "PrivacyLevel",
    policy: Policy = _NO_POLICY,
    known: KnownSecrets | None = None,
    only_known: bool = False,
) -> RedactedTrace:
    """Redact a trace for a privacy level.

    A secret found in one place is redacted in every place, as are the ``known`` secrets of other
    documents of the run, to which those found here are added. With ``only_known``, the trace is
    redacted already, and only secrets that became known later are.

    Raises:
        RedactionError: If the result may not be clean and valid: do not share it.
    """
    with _fail_closed(policy):
        redactor = DocumentRedactor(trace, level, policy, known, skip=_SAFE_FIELDS)
        content = trace.model_dump(mode="json")
        content = redactor.redact_known(content if only_known else redactor.clean(content))
        return _checked(trace, redactor, content) if redactor.found else RedactedTrace(trace, ())


def redact_jsonable(
    value: object,
    *,
    level: "PrivacyLevel",
    policy: Policy = _NO_POLICY,
    known: KnownSecrets | None = None,
    only_known: bool = False,
) -> RedactedValue:
    """Redact dicts, lists, tuples, strings and numbers for a privacy level.

    A secret found in one place is redacted in every place; ``known`` and ``only_known`` are those
    of `redact_trace`.

    Raises:
        RedactionError: If the result may not be clean, or a value has another type.

    >>> redact_jsonable({"user": "anna", "password": "hunter2"}, level="private").value
    {'user': 'anna', 'password': '[REDACTED:password]'}
    """
    with _fail_closed(policy):
        redactor = DocumentRedactor(value, level, policy, known)
        clean = redactor.redact_known(value if only_known else redactor.clean(value))
        return RedactedValue(clean, tuple(redactor.found))


def check_clean(body: bytes, *, level: "PrivacyLevel", policy: Policy = _NO_POLICY) -> None:
    """Check that a JSON document has nothing left to redact.

    The built-in rules check every field; the user's rules check the fields that can hold text.

    Raises:
        RedactionError: ``residual_secret`` with the path, label and length of the finding, never
            the value; ``invalid_after_redaction`` if it is not JSON or has a duplicate key.
    """
    try:
        content = json.loads(body.decode(), object_pairs_hook=unique_members)
    except (ValueError, RecursionError):
        raise RedactionError("invalid_after_redaction") from None  # the cause quotes the body
    built_in = policy.built_in()
    with _fail_closed(policy):
        for own, skip in [(built_in, None), (policy, _SAFE_FIELDS)][: 1 + (policy != built_in)]:
            redactor = DocumentRedactor(content, level, own, skip=skip)
            redactor.clean(content)
            for first in redactor.found:
                where = f"{first.path} ({first.label}, {first.length} chars)"
                raise RedactionError("residual_secret", where)


@contextmanager
def _fail_closed(policy: Policy) -> Iterator[None]:
    """Convert any failure inside into a RedactionError that does not reveal the value."""
    try:
        with engine_time_limit() if policy.engines or policy.phone_regions else nullcontext():
            yield
    except RedactionError:
        raise
    except Exception:  # noqa: BLE001  # fail closed, whatever it is
        raise RedactionError("redactor_error") from None  # the cause may quote the value


def _checked(trace: "ReasoningTrace", redactor: DocumentRedactor, content: object) -> RedactedTrace:
    from pydantic import ValidationError

    try:
        return RedactedTrace(type(trace).model_validate(content), tuple(redactor.found))
    except ValidationError as problem:
        where = ".".join(str(part) for part in problem.errors()[0]["loc"])
        raise RedactionError("invalid_after_redaction", where) from None
