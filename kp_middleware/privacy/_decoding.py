"""Readings of a text: its escapes decoded, and the names of secrets in it.

Escapes are entities, terminal colors and invisible characters, too.
"""

import json
import re
from bisect import bisect_right
from collections import Counter
from functools import lru_cache
from typing import Final
from unicodedata import digit, normalize

from kp_middleware.privacy._values import (
    TABLE,
    LabeledSpan,
    compiled,
    in_any_case,
    is_label,
    is_strong,
    unicode_forms,
    words,
)

PLACEHOLDER = re.compile(
    r"\[REDACTED:(?P<label>[a-z0-9_]{1,40})(?:[#]\d{1,9})?\]"
    r"|\[REDACTED(?::[a-z0-9_]{0,40}(?:[#]\d{0,9})?)?\Z"
)
"""A redaction placeholder, also one cut off at the end of a text."""

HIDDEN = "\ue000"
"""The character that replaces a placeholder: no word, number or white space to any rule."""

_NUMBERED = re.compile(r"\[REDACTED:([a-z0-9_]{1,40})#(\d{1,9})\]")


class PlaceholderNumbers:
    """The placeholder numbers of the contacts of one document, which mean nothing outside of it."""

    def __init__(self, document: object) -> None:
        """Continue after those in the document."""
        self._known: dict[tuple[str, str], str] = {}
        self._last: Counter[str] = Counter()
        for label, number in _NUMBERED.findall(str(document)):
            self._last[label] = max(self._last[label], int(number))

    def suffix(self, span: LabeledSpan, value: str) -> str:
        """Return the suffix of the label in the placeholder: ``#1``, or nothing."""
        if span.group != "contact":
            return ""
        key = span.label, value.casefold()
        if key not in self._known:
            self._last[span.label] += 1
            self._known[key] = f"#{self._last[span.label]}"
        return self._known[key]


def count_placeholders(text: str) -> Counter[str]:
    """Return the number of placeholders in a text, by label.

    >>> count_placeholders("[REDACTED:email#1] wrote to [REDACTED:email#2]")
    Counter({'email': 2})
    """
    return Counter(match["label"] for match in PLACEHOLDER.finditer(text) if match["label"])


_INVISIBLE = (
    "\u0000\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e007f\U000e0100-\U000e01ef"
)
_WIDE = "\uff01-\uff5e\u0660-\u0669\u06f0-\u06f9\u0966-\u096f"  # and digits of other scripts
_AHEAD = rf"(?=[\[\x1b\x9b%&\\^{_INVISIBLE}{_WIDE}])"  # five times faster than trying each kind
_COLOUR = r"[\d;:?]{0,32}[A-Za-z]"  # of a terminal, after ESC [
_SLASHES = r"(?<!\\)\\++"  # one more per nested string

_DISPLAYED = re.compile(
    rf"{_AHEAD}(?:(?P<hidden>{PLACEHOLDER.pattern})|[{_INVISIBLE}]+|(?P<wide>[{_WIDE}])"
    rf"|(?:\x1b\[|\x9b){_COLOUR})"
)
_ESCAPE = rf"""
    (?P<gap>(?: (?: \x1b | \^\[ | {_SLASHES}(?:x1[bB] | u001[bB] | 0?33 | e) )\[
      | \x9b | %1[bB](?: \[ | %5[bB] ) ){_COLOUR})
    | %(?:25){{0,4}}(?P<hex_in_url>[0-9A-Fa-f]{{2}})
    | {_SLASHES}(?: x(?P<hex_byte>[0-9A-Fa-f]{{2}}) | u(?P<hex_unit>[0-9A-Fa-f]{{4}})
      | (?P<octal>[0-3][0-7]{{2}}) | (?P<letter>[abefnrtv0/]) )
    | &(?:amp;){{0,3}}(?: [#](?P<decimal>\d{{1,6}}) | [#][xX](?P<hex_entity>[0-9A-Fa-f]{{1,5}})
      | (?P<entity>quot|apos|lt|gt|amp|nbsp) );
"""
ESCAPED = re.compile(f"{_AHEAD}(?:{_ESCAPE})", re.VERBOSE | re.ASCII)
ESCAPING = rf"[\\^\x1b\x9b{_INVISIBLE}{_WIDE}]|%[0-9a-f]{{2}}|&|redacted|cut:"
"""Parts, in lower case, of each text that has another reading than itself, or a cut."""

_DECODED = re.compile(
    f"{_AHEAD}(?: (?P<hidden>{PLACEHOLDER.pattern}) | [{_INVISIBLE}]+ | (?P<wide>[{_WIDE}])"
    f"| {_ESCAPE} )",
    re.VERBOSE | re.ASCII,
)
_FULLY_DECODED = re.compile(
    rf"{_DECODED.pattern} | {_SLASHES}(?P<quote>[\"']) | (?P<slash>{_SLASHES})",
    re.VERBOSE | re.ASCII,
)
_EIGHT = "\\" * 8
_DEEP = re.compile(r"(?<!\\)\\{8,}+[\"']")  # a string in a string in a string in a string
_LEVELS = re.compile(r"(?P<slash>\\{8})|\\{1,7}(?=[\"'])")
_MAX_UNESCAPES = 5  # times, by three levels each but the first
_REPLACEMENTS = {None: "", "hidden": HIDDEN, "gap": " ", "slash": "\\"}
_LETTERS = {"n": "\n", "r": "\r", "t": "\t", "/": "/"}
_LETTERS |= {"quot": '"', "apos": "'", "lt": "<", "gt": ">", "amp": "&"}


class DecodedText:
    """A text with each escape decoded to one character or none."""

    def __init__(
        self, text: str, signs: re.Pattern[str], parent: "DecodedText | None" = None
    ) -> None:
        self._parent = parent  # another reading, of which this is one
        self._places = [0]  # of each piece in the decoded text
        self._pieces = [(0, 1)]  # its place in the original, and the size of a character
        parts: list[str] = []
        replacements: dict[str, str] = {}  # a text has the same few escapes
        place = reached = 0
        for sign in signs.finditer(text):
            start, end = sign.span()
            written = sign[0]
            if written not in replacements:
                replacements[written] = _replacement(sign)
            character = replacements[written]
            parts += text[reached:start], character
            place += start - reached
            if character:
                self._places.append(place)
                self._pieces.append((start, end - start))
                place += 1
            self._places.append(place)
            self._pieces.append((end, 1))
            reached = end
        self.text = "".join([*parts, text[reached:]]) if parts else text

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """Return the position of a non-empty part in the original text."""
        first, last = self._character(start)[0], self._character(end - 1)[1]
        return self._parent.origin(first, last) if self._parent else (first, last)

    def _character(self, place: int) -> tuple[int, int]:
        at = bisect_right(self._places, place) - 1
        origin, size = self._pieces[at]
        start = origin + place - self._places[at]
        return start, start + size


def readings(text: str) -> list[DecodedText]:
    r"""Return the text as displayed and, if it has escapes, also with them decoded.

    ``%3D`` hides the start of a value, as do ``\n`` in a serialized string and the end of a
    color: the last letter of each seems to belong to what follows. JSON nested in more than
    three strings is read again with three levels less.
    """
    decoded: list[DecodedText] = []
    unescaped = None
    for _ in range(_MAX_UNESCAPES):
        kinds = [_DISPLAYED, _DECODED] if ESCAPED.search(text) else [_DISPLAYED]
        decoded += [DecodedText(text, signs, unescaped) for signs in kinds]
        if _EIGHT not in text or not _DEEP.search(text):
            break
        unescaped = DecodedText(text, _LEVELS, unescaped)
        text = unescaped.text
    return decoded


def full_readings(text: str) -> list[DecodedText]:
    """Return the text as displayed and, if it has escapes, also with all of them decoded."""
    kinds = [_DISPLAYED, _FULLY_DECODED] if "\\" in text or ESCAPED.search(text) else [_DISPLAYED]
    return [DecodedText(text, signs) for signs in kinds]


def fully_decoded(text: str) -> str:
    return DecodedText(text, _FULLY_DECODED).text


def displayed(text: str) -> str:
    return DecodedText(text, _DISPLAYED).text


def _replacement(sign: re.Match[str]) -> str:
    """Return the character that an escape stands for, or an empty string."""
    kind = sign.lastgroup
    match kind:
        case None | "hidden" | "gap" | "slash":
            return _REPLACEMENTS[kind]
        case "quote":
            return sign[kind]
        case "letter" | "entity":
            return _LETTERS.get(sign[kind], " ")
        case "wide":
            wide = sign[kind]
            return normalize("NFKC", wide) if wide > "\uff00" else str(digit(wide))
    code = int(sign[kind], {"octal": 8, "decimal": 10}.get(kind, 16))
    is_printed = code < 0xD800 or 0xE000 < code < 0x110000  # not surrogates nor private use
    return chr(code) if is_printed else " "


def unique_members(members: list[tuple[str, object]]) -> dict[str, object]:
    """Return the members of a JSON object, or raise ValueError for a duplicate key."""
    document = dict(members)
    if len(document) < len(members):
        raise ValueError("duplicate key")
    return document


BEGINS_JSON = frozenset('{["')


def parse_json(text: str) -> object:
    """Parse a text that is a JSON object, list or string; return None for anything else."""
    if text.lstrip()[:1] not in BEGINS_JSON:
        return None
    try:
        parsed: object = json.loads(text, object_pairs_hook=unique_members)
    except (ValueError, RecursionError):
        return None
    return parsed


_NAMES: Final = TABLE["names"]
_OWNERS, _HOLDERS = words(_NAMES["owners"]), words(_NAMES["holders"])
_OTHER_NAMES = (
    r"(?<=[A-Za-z0-9][_-])pass|(?-i:(?<=[a-z])Pass)|(?<![A-Za-z])(?:bind_?)?pw(?![A-Za-z])"
    r"|(?<![A-Za-z0-9])_auth"
)
_VARIANTS = "prod(?:uction)?|dev(?:elopment)?|staging|live|sandbox|pem|primary|secondary|v\\d{1,2}"


_FAMILIES = {
    "": unicode_forms((*_NAMES["certain"], *_NAMES["foreign"])),
    "(?:[_-]?access)?[_ -]?keys?": _OWNERS,
    "[_-]?tokens?": ("access", "api", "auth", "refresh", "bearer", "session"),
    "(?:pass|_?pw(?![A-Za-z]))": _HOLDERS,
}
"""Words of names, by the pattern of their ending."""

_TAILS: dict[str, list[str]] = {}  # by the first letter, which is tested once for all of them
for _end, _family in _FAMILIES.items():
    for _first in dict.fromkeys(word[0] for word in _family):
        _tail = "|".join(in_any_case(word[1:]) for word in _family if word[0] == _first)
        _TAILS.setdefault(_first, []).append(f"(?:{_tail}){_end}")
_ANY = "|".join(f"(?-i:[{one}{one.upper()}])(?:{'|'.join(_TAILS[one])})" for one in _TAILS)

NAME = (
    rf"(?P<name>(?i:(?:{_ANY}|{_OTHER_NAMES})(?:[_-]?(?:access[_-]?key|key|value|val"
    r"|hash|digest|salt|plain|plaintext|text|confirm(?:ation)?|repeat|again|new|old|b64|base64|encrypted"
    rf"|data|string|base))?\d{{0,3}}(?:[_-](?:{_VARIANTS}))?))"
)
"""A name, or the end of one, that certainly names a secret; as the group ``name``."""

_SIGN = r"[^\s\"'`=:,;|<>(){}\[\]/\\*]"
ANY_NAME = rf"(?P<name>{_SIGN}{{2,40}}+(?: (?![\d-]){_SIGN}{{2,10}}+){{0,2}}?)"
"""A candidate for a name, quick to compile, to be confirmed by `ends_in_name`."""

PART_OF_NAME = rf"(?P<name>{_SIGN}{{2,40}}?)"
"""The same before a sign that names may have."""

_LAST_WORDS = (  # the words with a blank before or inside names
    *("keys?", "phrase", "passe", "access", "ordine", "schl.{1,3}ssel", "cl[eé]", "clave", "sandi"),
    *("recovery", "backup", "answer", "jeton", "chiave", "klucz", "ключ", "anahtarı"),
    *("kh[aẩ]u", "المرور", "السر", "السري", "عبور"),
)
_ENDS = (  # or is followed by the end of a secret's name
    "(?:(?![a-z])|access|key|val|hash|digest|salt|plain|text|confirm|repeat|again|new|old|b0|base"
    "|encrypted|data|string|test|qa|uat|local|default|main|current|prev|prod|dev|stag|live|pem|der"
    "|field|input|box)"
)
NAMING = (
    rf"{NAME}|pw|wpa0|(?<=[a-z])pass|\A(?:{'|'.join(unicode_forms(_LAST_WORDS))}){_ENDS}"
    rf"|(?<![a-z0-9])(?:(?:auth|pass){_ENDS}|cv[vc])"
)
"""Parts of a word, in lower case and with ``0`` for each digit, of each text in which
`ends_in_name` or `names_a_secret` holds."""

NAME_STARTS = unicode_forms(
    (*words(_NAMES["starts"]), *_OWNERS, *(f"{holder}p" for holder in _HOLDERS))
)
"""The beginnings of `NAME`."""

_PASSWORD = re.compile(r"(?i)pass|pw|psk|phrase|mnemonic|wi-?fi|wlan|ssid|[^\x00-\x7f]|" + "|".join(
    word for word in _NAMES["foreign"] if word.isascii()
))  # fmt: skip
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_PAGE_WORDS = frozenset(words(_NAMES["of_pages"]))
_TOKENS = frozenset(("token", "tokens"))
_ACCESS_WORDS = frozenset(("access", "refresh", "auth", "api", "secret", "bearer", "oauth"))
_HARMLESS_WORDS = frozenset(words(_NAMES["of_none"]))
_COUNTER = re.compile(
    r"(?:tokens|counts?|total|limit|length|size|ttl|expires_(?:in|at)|version|date|timestamp"
    r"|(?:created|updated|changed|modified|accessed|rotated|deleted|issued)_?(?:at|on))\Z"
)
_ACCOUNT_FIELDS = frozenset(words(_NAMES["of_account"]))
_OF_VARIABLE, _OF_WEAK, _SHORT = (
    frozenset(words(_NAMES[f"of_{key}"])) for key in ("variable", "weak_password", "short_variable")
)
_VARIABLE = re.compile(r"[a-z]{1,20}(?:_[a-z]{1,20}){1,4}|[a-z]{1,20}(?:[A-Z][a-z]{1,20}){1,4}")
_SHOWN_TEXTS = frozenset(words(_NAMES["of_shown_texts"]))
_SECRET_FIELDS = frozenset(words(_NAMES["of_secret"]))
_OBJECTS, _IN_OBJECTS = (frozenset(words(_NAMES[key])) for key in ("of_object", "in_object"))
_PERMISSIONS = {"read": {"id", "token"}, "write": {"id", "token"}, "inherit": {"secrets"}}
# letters, or with a separator: a weak password ends in digits instead
_PLAIN_NAME = re.compile(r"(?=[^A-Za-z]*+[A-Za-z])(?:[A-Za-z]++|\w*+[ ./@:+-][\w ./@:+-]*+)")
_AROUND_OBJECTS = frozenset(words("existing|image|pull|secret|secrets|name|names|ref|refs"))
_OBJECT_NAME = re.compile(r"[a-z][a-z0-9]{0,30}(?:[-.][a-z0-9]{1,30}){0,8}")  # of Kubernetes
_NAME_OF_VARIABLE = re.compile(r"[A-Z]{2,30}(?:_[A-Z]{2,30}){1,8}")
_ARN = re.compile(r"arn:[\w-]{1,20}:[\w-]{1,40}:[\w-]{0,30}:\d{0,12}:\S{1,300}")
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ][\d:.Z+-]{1,32})?")


@lru_cache(1024)
def words_of_name(name: str) -> frozenset[str]:
    """Return the words of a name; ``nextPageToken`` and ``next_page_token`` give the same."""
    return frozenset(part.lower() for part in _PART.findall(name))


def is_page_token(name: str) -> bool:
    """Return whether a name is a page token, such as ``next_page_token``, or a model's token."""
    if "token" not in name.lower():
        return False
    parts = words_of_name(name)
    is_page = bool(parts & _TOKENS) and bool(parts & _PAGE_WORDS)
    return is_page and parts.isdisjoint(_ACCESS_WORDS)


def is_probable(name: str) -> bool:
    """Return whether no part of the name rules out a secret."""
    is_key = name.lower().strip("_0123456789") == "key"
    return not (is_key or words_of_name(name) & _HARMLESS_WORDS or is_page_token(name))


@lru_cache(4096)
def ends_in_name(text: str, start: int) -> bool:
    """Return whether a text ends in a name of a secret that begins at ``start`` or later."""
    return compiled(rf"{NAME}\Z").search(text, start) is not None


def is_password_name(name: str) -> bool:
    """Return whether the name is of a value that a person chose, which may be a word."""
    return _PASSWORD.search(name) is not None


_SUFFIXES = "test|testing|qa|uat|local|default|main|current|previous|prod|dev|staging|live|pem|der"
_SECRET_NAME = (
    rf"(?:{NAME}|\A(?i:auth|pass|cvv\d?|cvc\d?))"
    rf"(?i:[ _-](?:field|input|(?:text)?box)|[ _-]?(?:{_SUFFIXES}))?\Z"
)


def names_a_secret(name: str) -> bool:
    """Return whether any value under this name is redacted."""
    name = displayed(PLACEHOLDER.sub("|", name))[-120:].rstrip(" :=_-*[]()\"'")
    return compiled(_SECRET_NAME).search(name) is not None and not is_page_token(name)


def is_counter(name: str) -> bool:
    return _COUNTER.search(name.lower()) is not None


def is_secret_field(name: str, value: str) -> bool:
    """Return whether a field below ``secrets`` only says which secret it is."""
    field = name.lower().replace("_", "").replace("-", "")
    if is_counter(name) and _DATE.fullmatch(value):
        return True
    if field not in _SECRET_FIELDS:
        return False
    if _NAME_OF_VARIABLE.fullmatch(value) or _ARN.fullmatch(value):
        return True
    is_named = _PLAIN_NAME.fullmatch(value) is not None
    return is_named and field not in {"secrets", "keys"} and not is_strong(value)


def describes(holder: str, name: str, value: str) -> bool:
    """Return whether a field below a key such as ``credentials`` or ``secrets`` is no secret."""
    holder = holder.lower()
    is_account = ("cred" in holder or holder == "auth") and name.lower() in _ACCOUNT_FIELDS
    if is_account and not is_strong(value):
        return True
    if holder in _SHOWN_TEXTS and is_label(value):
        return True
    return "secret" in holder and is_secret_field(name, value)


def is_variable_name(value: str) -> bool:
    """Return whether a value in code names a variable that holds a secret: ``hashed_pw``."""
    if not _VARIABLE.fullmatch(value):
        return value in _SHORT
    parts = words_of_name(value)
    return not parts.isdisjoint(_OF_VARIABLE) and parts.isdisjoint(_OF_WEAK)


def is_object_name(name: str, value: str) -> bool:
    """Return whether a value names a Kubernetes Secret or is a workflow's permission.

    As in ``existingSecret: db-credentials`` and ``id-token: write``.
    """
    if value in _PERMISSIONS:
        return words_of_name(name) == _PERMISSIONS[value]
    if not _OBJECT_NAME.fullmatch(value) or is_strong(value):
        return False
    parts = words_of_name(name)
    if not parts & {"secret", "secrets"} or not parts <= _OBJECTS | _AROUND_OBJECTS:
        return False
    if {"existing", "secret"} <= parts or {"image", "pull"} <= parts:
        return True
    return not _IN_OBJECTS.isdisjoint(re.split("[-.]", value)) and "-" in value
