"""Names of fields, variables and settings: those whose value is a secret."""

import re
from functools import lru_cache
from typing import Final

from kp_middleware.privacy._escapes import PLACEHOLDER, seen
from kp_middleware.privacy._values import TABLE, compiled, in_any_case, is_strong, spelled, words

_LISTS: Final = TABLE["names"]
_OWNERS, _HOLDERS = words(_LISTS["owners"]), words(_LISTS["holders"])
_OTHERS = (
    r"(?<=[A-Za-z0-9][_-])pass|(?-i:(?<=[a-z])Pass)|(?<![A-Za-z])(?:bind_?)?pw(?![A-Za-z])"
    r"|(?<![A-Za-z0-9])_auth"
)
_WHERE = "prod(?:uction)?|dev(?:elopment)?|staging|live|sandbox|pem|primary|secondary|v\\d{1,2}"


_FAMILIES = {
    "": spelled((*_LISTS["certain"], *_LISTS["foreign"])),
    "(?:[_-]?access)?[_ -]?keys?": _OWNERS,
    "[_-]?tokens?": ("access", "api", "auth", "refresh", "bearer", "session"),
    "(?:pass|_?pw(?![A-Za-z]))": _HOLDERS,
}
"""Words of names, by the pattern of their ending."""


def _any_name() -> str:
    """Return a pattern that tests the first letter once for all words that begin with it."""
    rests: dict[str, list[str]] = {}
    for end, family in _FAMILIES.items():
        for first in dict.fromkeys(word[0] for word in family):
            of_first = "|".join(in_any_case(word[1:]) for word in family if word[0] == first)
            rests.setdefault(first, []).append(f"(?:{of_first}){end}")
    return "|".join(
        f"(?-i:[{first}{first.upper()}])(?:{'|'.join(rests[first])})" for first in rests
    )


NAME = (
    rf"(?P<name>(?i:(?:{_any_name()}|{_OTHERS})(?:[_-]?(?:access[_-]?key|key|value|val"
    r"|hash|digest|salt|plain|plaintext|text|confirm(?:ation)?|repeat|again|new|old|b64|base64|encrypted"
    rf"|data|string|base))?\d{{0,3}}(?:[_-](?:{_WHERE}))?))"
)
"""A name, or the end of one, that certainly names a secret; as the group ``name``."""

_SIGN = r"[^\s\"'`=:,;|<>(){}\[\]/\\*]"
ANY_NAME = rf"(?P<name>{_SIGN}{{2,40}}+(?: (?![\d-]){_SIGN}{{2,10}}+){{0,2}}?)"
"""A candidate for a name, quick to compile, to be confirmed by `is_name`."""

PART_OF_NAME = rf"(?P<name>{_SIGN}{{2,40}}?)"
"""The same before a sign that names may have."""

_OF_SEVERAL = (  # the words at which names have a blank before or in them
    *("keys?", "phrase", "passe", "access", "ordine", "schl.{1,3}ssel", "cl[eé]", "clave", "sandi"),
    *("kh[aẩ]u", "المرور", "السر", "السري", "عبور"),
)
_ENDS = (  # or is followed by what a name of a secret ends in
    "(?:(?![a-z])|access|key|val|hash|digest|salt|plain|text|confirm|repeat|again|new|old|b0|base"
    "|encrypted|data|string|test|qa|uat|local|default|main|current|prev|prod|dev|stag|live|pem|der"
    "|field|input|box)"
)
NAMING = (
    rf"{NAME}|pw|wpa0|(?<=[a-z])pass|\A(?:{'|'.join(spelled(_OF_SEVERAL))}){_ENDS}"
    rf"|(?<![a-z0-9])(?:(?:auth|pass){_ENDS}|cv[vc])"
)
"""What is in a word, in lower case and with ``0`` for each digit, of each text in which `is_name`
or `names_a_secret` holds."""

NAME_STARTS = spelled((*words(_LISTS["starts"]), *_OWNERS, *(f"{holder}p" for holder in _HOLDERS)))
"""The beginnings of `NAME`."""

_PASSWORD = re.compile(r"(?i)pass|pw|psk|phrase|mnemonic|[^\x00-\x7f]|" + "|".join(
    word for word in _LISTS["foreign"] if word.isascii()
))  # fmt: skip
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_DIVIDER = re.compile(r"[^\w-]")
_OF_PAGES = frozenset(words(_LISTS["of_pages"]))
_TOKENS = frozenset(("token", "tokens"))
_OF_ACCESS = frozenset(("access", "refresh", "auth", "api", "secret", "bearer", "oauth"))
_OF_NONE = frozenset(words(_LISTS["of_none"]))
_COUNTER = re.compile(r"(?:tokens|counts?|total|limit|length|size|ttl|expires_(?:in|at)|version)\Z")
_OF_ACCOUNT = frozenset(
    words(
        "user|username|user_name|login|email|account|role|type|kind|name|provider|region|"
        "zone|host|hostname|port|url|endpoint|database|db|dbname|project|scope|scopes|"
        "expires|expiry|status"
    )
)


def whole_name(text: str, start: int, end: int) -> str:
    """Return the identifier around a part of it, of at most 48 characters more on each side."""
    before = _DIVIDER.split(text[max(0, start - 48) : start])[-1]
    after = _DIVIDER.split(text[end : end + 48], maxsplit=1)[0]
    return f"{before}{text[start:end]}{after}"


@lru_cache(1024)
def parts_of(name: str) -> frozenset[str]:
    """Return the words of a name; ``nextPageToken`` and ``next_page_token`` give the same."""
    return frozenset(part.lower() for part in _PART.findall(name))


def pages(name: str) -> bool:
    """Return whether a name is a page token, such as ``next_page_token``, or a model's token."""
    if "token" not in name.lower():
        return False
    parts = parts_of(name)
    is_of_page = bool(parts & _TOKENS) and bool(parts & _OF_PAGES)
    return is_of_page and parts.isdisjoint(_OF_ACCESS)


def is_probable(name: str) -> bool:
    """Return whether no part of the name rules out a secret."""
    is_key = name.lower().strip("_0123456789") == "key"
    return not is_key and parts_of(name).isdisjoint(_OF_NONE) and not pages(name)


def is_name(text: str, start: int, end: int) -> bool:
    """Return whether a part of a text ends in what `NAME` matches."""
    first = max(0, start - 2)  # what its lookbehinds read
    return _ends_in_name(text[first:end], start - first)


@lru_cache(4096)
def _ends_in_name(text: str, start: int) -> bool:
    return compiled(rf"{NAME}\Z").search(text, start) is not None


def is_of_password(name: str) -> bool:
    """Return whether the name is of a value that a person chose, which may be a word."""
    return _PASSWORD.search(name) is not None


_PLACES = "test|testing|qa|uat|local|default|main|current|previous|prod|dev|staging|live|pem|der"
_SECRET_NAME = (
    rf"(?:{NAME}|\A(?i:auth|pass|cvv\d?|cvc\d?))"
    rf"(?i:[ _-](?:field|input|(?:text)?box)|[ _-]?(?:{_PLACES}))?\Z"
)


def names_a_secret(name: str) -> bool:
    """Return whether any value under this name is redacted."""
    name = seen(PLACEHOLDER.sub("|", name))[-120:].rstrip(" :=_-*[]\"'")
    return compiled(_SECRET_NAME).search(name) is not None and not pages(name)


def is_counter(name: str) -> bool:
    """Return whether a name is that of a number, even below a secret's name."""
    return _COUNTER.search(name.lower()) is not None


def is_of_account(name: str, value: str) -> bool:
    """Return whether a field beside a password only describes the account."""
    return name.lower() in _OF_ACCOUNT and not is_strong(value)
