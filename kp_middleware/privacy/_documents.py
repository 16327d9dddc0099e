"""Redaction of structures and traces; any failure is a refusal.

A walk through a document redacts each value by its place.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from kp_middleware.errors import RedactionError
from kp_middleware.privacy._other_secrets import JSON_TYPES, KnownSecrets, alternates
from kp_middleware.privacy._policy import Policy, document
from kp_middleware.privacy._reading import (
    BEGINS_JSON,
    PLACEHOLDER,
    Numbers,
    document_in,
    is_counter,
    is_of_account,
    unique,
)
from kp_middleware.privacy._ruleset import (
    DENIED,
    MAX_CHARACTERS,
    Found,
    RedactedTrace,
    RedactedValue,
    is_too_large,
    known_in,
    plainly,
    replaced,
    ruleset,
    take_out,
)
from kp_middleware.privacy._values import (
    TABLE,
    describes,
    is_of_model,
    is_strong,
    words,
)

if TYPE_CHECKING:
    from kp_middleware.traces import PrivacyLevel, ReasoningTrace

Kept: TypeAlias = Mapping[str, "Kept"]


class Spot(NamedTuple):
    """The place of a value in a document, and what it implies for redaction."""

    path: tuple[str | int, ...] = ()
    name: str = ""  # the nearest key, which may announce what the value is
    blank: str = ""  # the label under which the value goes, whatever it is
    depth: int = 0
    kept: "Kept | None" = None  # a tree of the members that stay; empty if this one does

    def under(self, key: str | int, name: str = "", blank: str = "") -> "Spot":
        """Return the place of a member; ``name`` is its key, or the name that a sibling gives."""
        kept = self.kept.get("[]" if isinstance(key, int) else key) if self.kept else None
        return Spot((*self.path, key), name, self.blank or blank, self.depth + 1, kept)

    def __str__(self) -> str:
        return "".join(
            f"[{part}]" if isinstance(part, int) else f".{part[:40]}" for part in self.path
        ).removeprefix(".")


_MAX_DEPTH = 64
_MAX_NODES = 100_000
_OUR_ID = re.compile(r"kp:[a-z]{2,12}:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_WORD = re.compile(r"[\w-]{2,60}")
_TELLING = words(TABLE["names"]["telling"])
_OF_MESSAGES = ("role", "type", "tool_call_id")  # the name in a message is who speaks
_SECRET_TYPES = frozenset(("password", "secret", "securestring", "secretstring"))
_USER_FLAGS = frozenset(("-u", "--user", "--proxy-user"))  # before user:password


class Walk:
    """One walk through a document; ``found`` has what was taken out so far, in its order."""

    def __init__(
        self,
        document: object,
        level: "PrivacyLevel",
        policy: Policy,
        known: KnownSecrets | None = None,
        *,
        kept: Kept | None = None,
    ) -> None:
        self.found: list[Found] = []
        self._book = ruleset(level, policy)
        self._known = KnownSecrets() if known is None else known
        self._numbers = Numbers(document) if policy.numbered else None
        self._top = Spot(kept=kept)
        self._nodes = 0

    def clean(self, value: object, place: Spot | None = None) -> Any:
        place = place or self._top
        if place.depth > _MAX_DEPTH:
            raise RedactionError("too_deep", str(place))
        if place.kept == {}:
            return value
        match value:
            case str():
                return self._string(value, place)
            case None | bool():
                return value
            case int() | float():
                return self._number(value, place)
            case Mapping():
                return self._mapping(value, place)
            case list():
                return self._items(value, place)
            case tuple():
                return tuple(self._items(value, place))
            case _:
                raise RedactionError("redactor_error", str(place))

    def spread(self, value: Any, place: Spot | None = None) -> Any:
        """Return a redacted value also without secrets that were found after it."""
        place = place or self._top
        if not self._known.labels or place.kept == {}:
            return value
        match value:
            case str():
                return self._without_known(value, place, self._string)
            case dict():
                spread: dict[str, Any] = {}
                numbers: dict[str, int] = {}
                for key, member in value.items():
                    shown = self._without_known(key, place.under("{key}"), self._text)
                    inner = self.spread(member, place.under(shown, shown))
                    spread[_free(shown, spread, numbers)] = inner
                return spread
            case list() | tuple():
                return type(value)(
                    self.spread(item, place.under(index)) for index, item in enumerate(value)
                )
            case int() | float() if label := self._known.labels.get(str(value)):
                return self._gone(label, str(value), place)
            case _:
                return value

    def _without_known(self, text: str, place: Spot, clean: Callable[[str, Spot], str]) -> str:
        spans = known_in(text, self._known)
        if not spans or _OUR_ID.fullmatch(text):
            return text
        self.found += (Found(str(place), span.label, span.end - span.start) for span in spans)
        return clean(replaced(text, spans), place)

    def _mapping(self, value: Mapping[Any, object], place: Spot) -> dict[str, Any]:
        cleaned: dict[str, Any] = {}
        numbers: dict[str, int] = {}
        told = is_schema = None
        for key, member in value.items():
            shown = key if isinstance(key, str) else str(key)
            name, blank, role, stays = self._book.member(shown)
            if not stays:
                shown = self._text(shown, place.under("{key}")._replace(blank=""))
                name, blank, role, _ = self._book.member(shown)
            around, exempt = place, False
            if role == "token" and isinstance(member, str):
                exempt = is_of_model(member, " ".join(map(str, value)).lower())
            elif role == "describing":
                if is_schema is None:
                    is_schema = place.blank != DENIED and _is_json_schema(value)
                exempt = is_schema
            elif role == "value" or (role == "content" and value.keys().isdisjoint(_OF_MESSAGES)):
                told = self._told(value) if told is None else told
                if told and (role == "value" or self._book.blanks(told)):
                    name, blank, *_ = self._book.member(told)
            if exempt:
                around, name, blank = place._replace(blank=""), "", ""
            inner = self._member(member, around, shown, name, blank)
            cleaned[_free(shown, cleaned, numbers) if shown in cleaned else shown] = inner
        return cleaned

    def _member(self, value: object, place: Spot, key: str | int, name: str, blank: str) -> Any:
        """Return a redacted member; most stay as they are, which is certain at first sight."""
        self._nodes += 1
        if self._nodes >= _MAX_NODES:
            raise RedactionError("too_large", str(place.under(key)))
        stays = place.kept and place.kept.get("[]" if isinstance(key, int) else key) == {}
        if isinstance(value, str) and value[:3] == "kp:" and _OUR_ID.fullmatch(value):
            stays = True
        if not (stays or place.blank or blank):
            if isinstance(value, str):
                if len(value) <= MAX_CHARACTERS and value.lstrip()[:1] not in BEGINS_JSON:
                    stays = self._book.is_plain(value, f"{name[-64:]}: " if name else "")
            elif value is None or isinstance(value, bool):
                return value
            elif isinstance(value, float):
                stays = not (self._book.adds or value.is_integer())
            elif isinstance(value, int):
                stays = not self._book.adds and abs(value) < 10_000
        return value if stays else self.clean(value, place.under(key, name, blank))

    def _told(self, members: Mapping[Any, object]) -> str:
        """Return the name of the value in ``{"name": "DB_PASSWORD", "value": …}``."""
        value = {plainly(str(key)): member for key, member in members.items()}
        if isinstance(kind := value.get("type"), str) and kind.lower() in _SECRET_TYPES:
            return "password"
        told = [name for key in _TELLING if isinstance(name := value.get(key), str)]
        names = [take_out(name[-120:], self._book)[0] for name in told]
        return next(filter(self._book.blanks, names), names[0] if names else "")

    def _items(self, value: Sequence[object], place: Spot) -> list[Any]:
        is_pair = len(value) == 2 and place.path != () and isinstance(place.path[-1], int)
        cleaned, before = [], None
        for index, item in enumerate(value):
            name = blank = ""
            if isinstance(before, str) and (is_pair or before[:1] == "-"):
                name = before if before in _USER_FLAGS else ""
                blank = self._book.blanks(before) if _WORD.fullmatch(before) else ""
                if before == "-p" and isinstance(item, str) and is_strong(item):
                    blank = "password"
            cleaned.append(self._member(item, place, index, name or place.name, blank))
            before = item
        return cleaned

    def _string(self, text: str, place: Spot) -> str:
        if is_too_large(text):
            raise RedactionError("too_large", str(place))
        if place.blank:
            return self._blanked(text, place)
        return self._text(self._document(text, place), place)

    def _document(self, text: str, place: Spot) -> str:
        """Return a string with its JSON, if it is any and not too large, redacted."""
        document = document_in(text)
        if document is None:
            return text
        found, nodes, self._nodes = len(self.found), self._nodes, 0
        try:
            cleaned = self.clean(document, place._replace(depth=place.depth + 1))
        except RedactionError as refusal:
            if refusal.reason not in {"too_deep", "too_large"}:
                raise
            del self.found[found:]
            return text
        finally:
            self._nodes = nodes
        return json.dumps(cleaned, ensure_ascii=False) if len(self.found) > found else text

    def _text(self, text: str, place: Spot) -> str:
        cue = f"{place.name[-64:]}: " if place.name else ""
        try:
            cleaned, gone = take_out(
                text, self._book, cue=cue, numbers=self._numbers, known=self._known
            )
        except RedactionError as error:
            if error.reason not in {"redactor_error", "timeout"}:
                raise
            raise RedactionError(error.reason, f"{place} {error.where}".strip()) from None
        self.found += (Found(str(place), span.label, span.end - span.start) for span in gone)
        return cleaned

    def _number(self, value: float, place: Spot) -> float | str:
        counts = abs(value) < 1000 or is_counter(place.name)
        if place.blank and (place.blank == DENIED or not counts):
            return self._blanked(value, place)
        is_whole = isinstance(value, int) or value.is_integer()
        digits = str(abs(int(value))) if is_whole else ""
        ways = [digits] if len(digits) > (0 if self._book.adds else 4) else []
        if self._book.adds and math.isfinite(value):  # as in JSON, and without an exponent
            ways += dict.fromkeys((json.dumps(value), format(Decimal(repr(value)), "f")))
        for written in ways:
            cleaned = self._text(written, place)
            if cleaned != written:
                return cleaned
        return value

    def _blanked(self, value: float | str, place: Spot) -> str:
        """Return the label's placeholder, unless a value only describes a secret or its account."""
        text = str(value)
        if not text or PLACEHOLDER.fullmatch(text):
            return text
        if place.blank != DENIED:
            is_of_credential = any("cred" in str(part).lower() for part in place.path)
            if describes(text) or self._book.allows(text):
                return text
            if is_of_credential and is_of_account(place.name, text):
                return text
            if self._book.blanks(place.name) or alternates(text):
                self._known.learn(text, place.blank, self._book.allows)
        return self._gone(place.blank, text, place)

    def _gone(self, label: str, text: str, place: Spot) -> str:
        self.found.append(Found(str(place), label, len(text)))
        return f"[REDACTED:{label}]"


def _is_json_schema(value: Mapping[Any, object]) -> bool:
    kind = value.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    if kind is None:
        return not value.keys().isdisjoint(("anyOf", "allOf", "oneOf", "$ref"))
    return any(isinstance(one, str) and one in JSON_TYPES for one in kinds)


def _free(key: str, taken: Mapping[str, object], numbers: dict[str, int]) -> str:
    """Return the key, numbered if it is taken; ``numbers`` holds the last number of each."""
    candidate = key
    while candidate in taken:
        numbers[key] = numbers.get(key, 1) + 1
        candidate = f"{key} {numbers[key]}"
    return candidate


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
        content = walk.spread(walk.clean(trace.model_dump(mode="json")))
        return _checked(trace, walk, content) if walk.found else RedactedTrace(trace, ())


def spread_in_trace(
    trace: "ReasoningTrace", *, level: "PrivacyLevel", policy: Policy, known: KnownSecrets
) -> RedactedTrace:
    """Redact secrets learned later from a redacted trace. Raises as `redact_trace`."""
    with _fail_closed(policy):
        walk = Walk(trace, level, policy, known, kept=_KEPT)
        content = walk.spread(trace.model_dump(mode="json"))
        return _checked(trace, walk, content) if walk.found else RedactedTrace(trace, ())


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
    from pydantic import ValidationError

    try:
        return RedactedTrace(type(trace).model_validate(content), tuple(walk.found))
    except ValidationError as problem:
        where = ".".join(str(part) for part in problem.errors()[0]["loc"])
        raise RedactionError("invalid_after_redaction", where) from None
