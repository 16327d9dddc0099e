"""Redaction of texts, structures and traces; of documents, any failure is a refusal."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kp_middleware.errors import RedactionError
from kp_middleware.privacy._other_secrets import KnownSecrets
from kp_middleware.privacy._policy import Policy, document
from kp_middleware.privacy._reading import PLACEHOLDER
from kp_middleware.privacy._ruleset import Found, Numbers, ruleset, take_out
from kp_middleware.privacy._values import words
from kp_middleware.privacy._walk import Kept, Walk, unique

if TYPE_CHECKING:
    from kp_middleware.traces import PrivacyLevel, ReasoningTrace

_NO_POLICY = Policy()
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


class Findings:
    """The parts that a redaction took out, by path or by line."""

    __slots__ = ()
    found: tuple[Found, ...]

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of placeholders inserted, by label."""
        return Counter(one.label for one in self.found)


@dataclass(frozen=True, slots=True)
class Redacted(Findings):
    """A text with placeholders such as ``[REDACTED:email]``, and what they stand for, by line."""

    text: str
    found: tuple[Found, ...]


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


def count_placeholders(text: str) -> Counter[str]:
    """Return the number of placeholders in a text, by label.

    >>> count_placeholders("[REDACTED:email#1] wrote to [REDACTED:email#2]")
    Counter({'email': 2})
    """
    return Counter(match["label"] for match in PLACEHOLDER.finditer(text) if match["label"])


def redact_text(
    text: str,
    *,
    level: "PrivacyLevel" = "private",
    policy: Policy = _NO_POLICY,
    known: KnownSecrets | None = None,
) -> Redacted:
    """Redact a text for a privacy level.

    Secrets and payment cards are redacted at every level; identities (national ids, bank accounts)
    and contacts (e-mail, phone, IP, MAC, home path) at every level except ``private``. A secret
    found in one place is redacted in every place, as are the ``known`` secrets of other texts, to
    which those found here are added.

    Raises:
        RedactionError: ``too_large`` above 1,048,576 characters: redact the parts.
            ``engine_missing`` or ``engine_failed`` if an engine of the policy does not work.

    >>> redact_text("password=hunter2 for anna@example.org", level="aggregated").text
    'password=[REDACTED:password] for [REDACTED:email]'
    """
    numbers = Numbers(text) if policy.numbered else None
    with document():
        book = ruleset(level, policy)
        known = KnownSecrets() if known is None else known
        cleaned, gone = take_out(text, book, numbers=numbers, known=known, everywhere=True)
    found, line, counted_to = [], 1, 0
    for span in sorted(gone):
        line += text.count("\n", counted_to, span.start)
        counted_to = span.start
        found.append(Found(f"line {line}", span.label, span.end - span.start))
    return Redacted(cleaned, tuple(found))


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
    with _fail_closed(policy):
        walk = Walk(trace, level, policy, known, kept=_KEPT)
        return _checked(trace, walk, walk.spread(walk.clean(trace.model_dump(mode="json"))))


def spread_in_trace(
    trace: "ReasoningTrace", *, level: "PrivacyLevel", policy: Policy, known: KnownSecrets
) -> RedactedTrace:
    """Redact secrets learned later from a redacted trace. Raises as `redact_trace`."""
    with _fail_closed(policy):
        walk = Walk(trace, level, policy, known, kept=_KEPT)
        return _checked(trace, walk, walk.spread(trace.model_dump(mode="json")))


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
    with _fail_closed(policy):
        walk = Walk(value, level, policy, known)
        return RedactedValue(walk.spread(walk.clean(value)), tuple(walk.found))


def spread_in_jsonable(
    value: object, *, level: "PrivacyLevel", policy: Policy, known: KnownSecrets
) -> RedactedValue:
    """Redact secrets learned later from a redacted structure. Raises as `redact_jsonable`."""
    with _fail_closed(policy):
        walk = Walk(value, level, policy, known)
        return RedactedValue(walk.spread(value), tuple(walk.found))


def check_clean(body: bytes, *, level: "PrivacyLevel", policy: Policy = _NO_POLICY) -> None:
    """Check that a JSON document holds nothing left to redact.

    The built-in rules check every field; the user's, those that can hold text.

    Raises:
        RedactionError: ``residual_secret`` with the path, the rule and the length of what was
            found, never the value; ``invalid_after_redaction`` if it is not JSON, or a key comes
            twice.
    """
    try:
        content = json.loads(body.decode(), object_pairs_hook=unique)
    except (ValueError, RecursionError):
        raise RedactionError("invalid_after_redaction") from None  # the cause quotes the body
    built_in = policy.built_in()
    with _fail_closed(policy):
        for rules, kept in [(built_in, None), (policy, _KEPT)][: 1 if policy == built_in else 2]:
            walk = Walk(content, level, rules, kept=kept)
            walk.clean(content)
            for first in walk.found:
                where = f"{first.path} ({first.label}, {first.length} chars)"
                raise RedactionError("residual_secret", where)


@contextmanager
def _fail_closed(policy: Policy) -> Iterator[None]:
    """Convert any failure inside into a RedactionError that does not reveal the value."""
    try:
        with document() if policy.engines or policy.phone_regions else nullcontext():
            yield
    except RedactionError:
        raise
    except Exception:  # noqa: BLE001  # fail closed, whatever it is
        raise RedactionError("redactor_error") from None  # the cause may quote the value


def _checked(trace: "ReasoningTrace", walk: Walk, content: object) -> RedactedTrace:
    if not walk.found:
        return RedactedTrace(trace, ())
    from pydantic import ValidationError

    try:
        return RedactedTrace(type(trace).model_validate(content), tuple(walk.found))
    except ValidationError as problem:
        where = ".".join(str(part) for part in problem.errors()[0]["loc"])
        raise RedactionError("invalid_after_redaction", where) from None
