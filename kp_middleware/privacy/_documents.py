"""Redaction of structures and traces, which fails closed."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from kp_middleware.errors import RedactionError
from kp_middleware.privacy._checks import (
    PRINTS_SECRET,
    answered_secret,
    requested_secret,
    secrets_given,
)
from kp_middleware.privacy._decoding import (
    BEGINS_JSON,
    PLACEHOLDER,
    PlaceholderNumbers,
    describes,
    is_counter,
    is_object_name,
    is_password_name,
    parse_json,
)
from kp_middleware.privacy._detectors import JSON_TYPES, secrets_printed
from kp_middleware.privacy._known_secrets import KnownSecrets, alternates
from kp_middleware.privacy._policy import Policy
from kp_middleware.privacy._ruleset import (
    DENIED,
    MAX_CHARACTERS,
    Found,
    clean_text,
    is_too_large,
    known_in,
    normalized_key,
    replace_spans,
    ruleset,
)
from kp_middleware.privacy._values import (
    TABLE,
    is_description,
    is_message,
    is_model_token,
    is_strong,
    words,
)

if TYPE_CHECKING:
    from kp_middleware.traces import PrivacyLevel

FieldTree: TypeAlias = Mapping[str, "FieldTree"]


class Location(NamedTuple):
    """The location of a value in a document, and what it implies for redaction."""

    path: tuple[str | int, ...] = ()
    name: str = ""  # the nearest key, which may indicate the kind of value
    label: str = ""  # redacts the value under this label, whatever it is
    depth: int = 0
    skip: "FieldTree | None" = None  # members to skip; empty to skip this value

    def child(self, key: str | int, name: str = "", label: str = "") -> "Location":
        """Return the location of a member; ``name`` is its key, or given by a sibling."""
        skip = self.skip.get("[]" if isinstance(key, int) else key) if self.skip else None
        return Location((*self.path, key), name, self.label or label, self.depth + 1, skip)

    def __str__(self) -> str:
        return "".join(
            f"[{part}]" if isinstance(part, int) else f".{part[:40]}" for part in self.path
        ).removeprefix(".")


_MAX_DEPTH = 64
_MAX_NODES = 100_000
_MAX_ARGUMENTS = 100
_OUR_ID = re.compile(r"kp:[a-z]{2,12}:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_WORD = re.compile(r"[\w-]{2,60}")
_HEADINGS = dict.fromkeys(("columns", "headers", "header", "fields"))
_ROWS = ("rows", "data", "values", "records")
_CARD_CODE = re.compile(
    r"(?i)(?:cv[vc]\d?|csc|security|verification)(?:[ _-]?(?:code|value|number))?\Z"
)
_NAME_FIELDS = words(TABLE["names"]["name_fields"])
_MESSAGE_FIELDS = frozenset(("role", "type", "tool_call_id"))  # a message's name is its speaker's
_SECRET_TYPES = frozenset(("password", "secret", "securestring", "secretstring"))
_USER_FLAGS = frozenset(("-u", "--user", "--proxy-user"))  # before user:password


class DocumentRedactor:
    """Redacts one document; ``found`` lists the redacted values, in document order."""

    def __init__(
        self,
        document: object,
        level: "PrivacyLevel",
        policy: Policy,
        known: KnownSecrets | None = None,
        *,
        skip: FieldTree | None = None,
    ) -> None:
        self.found: list[Found] = []
        self._rules = ruleset(level, policy)
        self._known = KnownSecrets() if known is None else known
        self._numbers = PlaceholderNumbers(document) if policy.numbered else None
        self._top = Location(skip=skip)
        self._nodes = 0

    def clean(self, value: object, place: Location | None = None) -> Any:
        place = place or self._top
        if place.depth > _MAX_DEPTH:
            raise RedactionError("too_deep", str(place))
        if place.skip == {}:
            return value
        match value:
            case str():
                return self._string(value, place)
            case None | bool():
                return value
            case int() | float():
                return self._number(value, place)
            case Mapping() if isinstance(arguments := value.get("args"), list | tuple):
                command = str(value.get("command")).rpartition("/")[2]
                arguments = self._arguments(arguments, place.child("args"), command)
                return self._mapping({**value, "args": arguments}, place)
            case Mapping() if not _HEADINGS.keys().isdisjoint(value):
                return self._mapping(self._table(value, place), place)
            case Mapping():
                return self._mapping(value, place)
            case list() | tuple():
                items = self._items(value, place)
                return items if isinstance(value, list) else tuple(items)
            case _:
                raise RedactionError("redactor_error", str(place))

    def redact_known(self, value: Any, place: Location | None = None) -> Any:
        """Redact known secrets, also those found later in the document, from a redacted value."""
        place = place or self._top
        if not self._known.labels or place.skip == {}:
            return value
        match value:
            case str():
                return self._without_known(value, place)
            case dict():
                members: dict[str, Any] = {}
                numbers: dict[str, int] = {}
                for key, member in value.items():
                    shown = self._without_known(key, place.child("{key}"), is_key=True)
                    inner = self.redact_known(member, place.child(shown, shown))
                    members[_unique_key(shown, members, numbers)] = inner
                return members
            case list() | tuple():
                return type(value)(
                    self.redact_known(item, place.child(index)) for index, item in enumerate(value)
                )
            case int() | float() if label := self._known.labels.get(str(value)):
                return self._remove(label, str(value), place)
            case _:
                return value

    def _without_known(self, text: str, place: Location, *, is_key: bool = False) -> str:
        spans = known_in(text, self._known)
        if not spans or _OUR_ID.fullmatch(text):
            return text
        self.found += (Found(str(place), span.label, span.end - span.start) for span in spans)
        text = replace_spans(text, spans)
        return self._text(text, place) if is_key else self._string(text, place)

    def _mapping(self, value: Mapping[Any, object], place: Location) -> dict[str, Any]:
        cleaned: dict[str, Any] = {}
        numbers: dict[str, int] = {}
        sibling = is_schema = None
        for key, member in value.items():
            shown = key if isinstance(key, str) else str(key)
            name, label, role, is_clean = self._rules.key_info(shown)
            if not is_clean:
                shown = self._text(shown, place.child("{key}")._replace(label=""))
                name, label, role, _ = self._rules.key_info(shown)
            around, exempt = place, False
            if role == "token" and isinstance(member, str):
                exempt = is_model_token(member, " ".join(map(str, value)).lower())
            elif role == "describing":
                if is_schema is None:
                    is_schema = place.label != DENIED and _is_json_schema(value)
                exempt = is_schema
            elif role in {"output", "parameters"}:
                name = self._name_in_call(value, role, member) or name
            elif role == "value" or (role == "content" and _MESSAGE_FIELDS.isdisjoint(value)):
                said = self._sibling_name(value) if sibling is None and len(value) > 1 else sibling
                sibling = said or place.name
                if sibling and (role == "value" or self._rules.key_label(sibling)):
                    name, label, *_ = self._rules.key_info(sibling)
            in_kubernetes = value.get("kind") == "Secret" and key in {"data", "stringData"}
            label = "password" if in_kubernetes else label
            if exempt:
                around, name, label = place._replace(label=""), "", ""
            inner = self._member(member, around, shown, name, label)
            cleaned[_unique_key(shown, cleaned, numbers) if shown in cleaned else shown] = inner
        return cleaned

    def _name_in_call(self, call: Mapping[Any, object], role: str, member: object) -> str:
        """Learn the secrets in a call's output or parameters; name an output that is a secret."""
        is_printed = False
        if role == "parameters":
            request = str(call.get("query") or call.get("sql"))
            secrets = [*secrets_given(request[:500], member)]
        else:
            request = f"{call.get('tool')} {call.get('input')}"[:500]
            is_printed = "bcrypt_hash" in call or bool(PRINTS_SECRET.search(request))  # Terraform
            secrets = [requested_secret(request, member)]
            if isinstance(member, str) and (is_printed or "select" in request.lower()):
                secrets += secrets_printed(request, member, self._rules.key_label)
        for secret in filter(None, secrets):
            self._known.learn(secret, "password", self._rules.is_allowed)
        return "password" if is_printed else ""

    def _table(self, value: Mapping[Any, object], place: Location) -> Mapping[Any, object]:
        """Return ``{"columns": …, "rows": …}`` without the texts below a secret's name."""
        names: Any = next(value[key] for key in _HEADINGS if key in value)
        names = [str(name) for name in names] if isinstance(names, list) else []
        labels = [self._rules.key_label(name) if _WORD.fullmatch(name) else "" for name in names]

        def without_secrets(row: object, place: Location) -> object:
            if not isinstance(row, list | tuple) or len(row) != len(labels):
                return row
            return [
                self._member(cell, place, name, "", label)
                if label and isinstance(cell, str) and (is_password_name(name) or is_strong(cell))
                else cell
                for cell, name, label in zip(row, names, labels, strict=True)
            ]

        tables = {
            key: [without_secrets(row, place.child(key).child(at)) for at, row in enumerate(rows)]
            for key in _ROWS
            if any(labels) and isinstance(rows := value.get(key), list)
        }
        return {**value, **tables}

    def _member(self, value: object, place: Location, key: str | int, name: str, label: str) -> Any:
        """Return a redacted member; most are obviously clean and skip the search."""
        self._nodes += 1
        if self._nodes >= _MAX_NODES:
            raise RedactionError("too_large", str(place.child(key)))
        is_clean = place.skip and place.skip.get("[]" if isinstance(key, int) else key) == {}
        if isinstance(value, str) and value[:3] == "kp:" and _OUR_ID.fullmatch(value):
            is_clean = True
        if not (is_clean or place.label or label):
            if isinstance(value, str):
                if len(value) <= MAX_CHARACTERS and value.lstrip()[:1] not in BEGINS_JSON:
                    is_clean = self._rules.is_clean_word(value, f"{name[-64:]}: " if name else "")
            elif value is None or isinstance(value, bool):
                return value
            elif isinstance(value, float):
                is_clean = not (self._rules.has_own_rules or value.is_integer())
            elif isinstance(value, int):
                is_small = abs(value) < 10_000 and not _CARD_CODE.search(name)
                is_clean = is_small and not self._rules.has_own_rules
        return value if is_clean else self.clean(value, place.child(key, name, label))

    def _sibling_name(self, members: Mapping[Any, object]) -> str:
        """Return the name that ``{"name": "DB_PASSWORD", "value": …}`` gives the value."""
        value = {normalized_key(str(key)): member for key, member in members.items()}
        in_vault = ".vault.azure.net/secrets/" in str(value.get("id"))
        if in_vault or value.get("sensitive") is True:  # of Terraform
            return "password"
        if isinstance(kind := value.get("type"), str) and kind.lower() in _SECRET_TYPES:
            return "password"
        sibling = [name for key in _NAME_FIELDS if isinstance(name := value.get(key), str)]
        names = [clean_text(name[-120:], self._rules)[0] for name in sibling]
        return next(filter(self._rules.key_label, names), names[0] if names else "")

    def _items(self, value: Sequence[object], place: Location) -> list[Any]:
        is_pair = len(value) == 2 and place.path != () and isinstance(place.path[-1], int)
        is_flat = place.name.lower() in {"rawheaders", "raw_headers"}  # name, value, name …
        cleaned, before = [], None
        has_flag = any(isinstance(item, str) and item[:1] == "-" for item in value)
        for index, item in enumerate(self._arguments(value, place) if has_flag else value):
            name = label = ""
            if isinstance(before, str) and (
                is_pair or before[:1] == "-" or (is_flat and index % 2)
            ):
                name = before if before in _USER_FLAGS else ""
                label = self._rules.key_label(before) if _WORD.fullmatch(before) else ""
            if (
                isinstance(before, Mapping)
                and isinstance(item, Mapping)
                and (secret := answered_secret(before.get("content"), item.get("content")))
            ):
                self._known.learn(secret, "password", self._rules.is_allowed)
            cleaned.append(self._member(item, place, index, name or place.name, label))
            before = item
        return cleaned

    def _arguments(
        self, value: Sequence[object], place: Location, command: str = "_"
    ) -> Sequence[object]:
        """Return a list without the secrets that it only reveals as one command line."""
        if len(value) > _MAX_ARGUMENTS:
            return value
        befores = zip((command, *value), value, strict=False)  # what follows -u is searched alone
        parts = [
            one
            if isinstance(one, str) and len(one) < 1000 and str(before) not in _USER_FLAGS
            else "_"
            for before, one in befores
        ]
        line = json.dumps([command, *parts])
        cleaned, removed = clean_text(line, self._rules, known=self._known)
        read = parse_json(cleaned) if removed else None
        if not isinstance(read, list) or len(read) != len(parts) + 1:
            return value
        items = list(value)
        for index, (before, after) in enumerate(zip(parts, read[1:], strict=True)):
            if before != after and (label := PLACEHOLDER.search(str(after))):
                self._remove(label["label"], before, place.child(index))
                items[index] = after
        return items if isinstance(value, list) else tuple(items)

    def _string(self, text: str, place: Location) -> str:
        if is_too_large(text):
            raise RedactionError("too_large", str(place))
        if place.label:
            return self._redact_labelled(text, place)
        return self._text(self._document(text, place), place)

    def _document(self, text: str, place: Location) -> str:
        """Redact a string that is a JSON document; return any other text unchanged."""
        document = parse_json(text)
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

    def _text(self, text: str, place: Location) -> str:
        cue = f"{place.name[-64:]}: " if place.name else ""
        try:
            cleaned, removed = clean_text(
                text, self._rules, cue=cue, numbers=self._numbers, known=self._known
            )
        except RedactionError as error:
            if error.reason not in {"redactor_error", "redactor_timeout"}:
                raise
            raise RedactionError(error.reason, f"{place} {error.where}".strip()) from None
        self.found += (Found(str(place), span.label, span.end - span.start) for span in removed)
        return cleaned

    def _number(self, value: float, place: Location) -> float | str:
        is_card_code = _CARD_CODE.search(place.name) is not None
        counts = (abs(value) < 1000 and not is_card_code) or is_counter(place.name)
        if place.label and (place.label == DENIED or not counts):
            return self._redact_labelled(value, place)
        is_whole = isinstance(value, int) or value.is_integer()
        digits = str(abs(int(value))) if is_whole else ""
        reads_all = self._rules.has_own_rules or is_card_code
        spellings = [digits] if len(digits) > (0 if reads_all else 4) else []
        if self._rules.has_own_rules and math.isfinite(value):
            spellings += dict.fromkeys((json.dumps(value), format(Decimal(repr(value)), "f")))
        for spelling in spellings:
            cleaned = self._text(spelling, place)
            if cleaned != spelling:
                return cleaned
        return value

    def _redact_labelled(self, value: float | str, place: Location) -> str:
        """Return the label's placeholder, or the value if it only describes the secret."""
        text = str(value)
        if not text or PLACEHOLDER.fullmatch(text):
            return text
        if place.label != DENIED:
            if is_description(text) or is_message(text) or self._rules.is_allowed(text):
                return text
            if any(describes(str(part), place.name, text) for part in place.path):
                return text
            if is_object_name(place.name, text):
                return text
            if self._rules.key_label(place.name) or alternates(text):
                self._known.learn(text, place.label, self._rules.is_allowed)
        return self._remove(place.label, text, place)

    def _remove(self, label: str, text: str, place: Location) -> str:
        self.found.append(Found(str(place), label, len(text)))
        return f"[REDACTED:{label}]"


def _is_json_schema(value: Mapping[Any, object]) -> bool:
    kind = value.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    if kind is None:
        return not value.keys().isdisjoint(("anyOf", "allOf", "oneOf", "$ref"))
    return any(isinstance(one, str) and one in JSON_TYPES for one in kinds)


def _unique_key(key: str, taken: Mapping[str, object], numbers: dict[str, int]) -> str:
    """Return the key, numbered if it is taken; ``numbers`` has the last number of each key."""
    candidate = key
    while candidate in taken:
        numbers[key] = numbers.get(key, 1) + 1
        candidate = f"{key} {numbers[key]}"
    return candidate
