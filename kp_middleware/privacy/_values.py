"""Values in a text: whether they are secrets, words, code or masks."""

import base64
import math
import re
import socket
import tomllib
from codecs import utf_8_decode, utf_16_le_decode
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache, partial
from importlib import import_module
from importlib.resources import files
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple, TypeAlias
from unicodedata import normalize

Group: TypeAlias = Literal["secret", "sensitive", "identity", "contact"]
"""Secrets and sensitive values (payment cards, a user's own rules) are redacted at every level;
identities (national ids, bank accounts) and contacts, only if others read the text."""

Check: TypeAlias = Callable[[re.Match[str]], bool]


TABLE: Final[dict[str, Any]] = tomllib.loads(
    re.sub(r"\n {4}", "", files(__package__).joinpath("rules.toml").read_text("utf-8"))
)
"""The contents of ``rules.toml``, with wrapped lines joined."""


class LabeledSpan(NamedTuple):
    start: int
    end: int
    label: str
    group: Group


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern on first use: all together take some hundredths of a second."""
    return re.compile(pattern, re.ASCII)


def words(divided: str) -> tuple[str, ...]:
    return tuple(divided.split("|"))


def unicode_forms(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(form for word in words for form in (word, normalize("NFD", word))))


def in_any_case(pattern: str) -> str:
    """Expand non-ASCII letters to both cases, for ``(?i:…)`` with ``re.ASCII``.

    >>> in_any_case("łódź|x")
    '[łŁ][óÓ]d[źŹ]|x'
    """
    return "".join(
        character
        if character.isascii() or len(other := character.upper()) > 1 or other == character
        else f"[{character}{other}]"
        for character in pattern
    )


def matched_value(match: re.Match[str]) -> tuple[int, int]:
    last = match.lastgroup
    if last is not None and last.startswith("value"):  # nearly always
        return match.span(last)
    for name in match.re.groupindex:
        if name.startswith("value") and match[name] is not None:
            return match.span(name)
    return match.span()


def value_of(match: re.Match[str]) -> str:
    start, end = matched_value(match)
    return match.string[start:end]


def pattern(name: str) -> re.Pattern[str]:
    text: str = TABLE["patterns"][name]
    return re.compile(_REFERENCE.sub(lambda other: pattern(other[1]).pattern, text))


def _full_match(found: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda value: found.fullmatch(value) is not None


_REFERENCE = re.compile("<([A-Z_]{3,})>")
_DUMMY, _MASK, _DESCRIBED = map(pattern, ("DUMMY", "MASK", "DESCRIBED"))
_MESSAGE_WORDS, _MESSAGE_PHRASE = pattern("MESSAGE_WORDS"), pattern("MESSAGE_PHRASE")
_MESSAGE_START, _MESSAGE_NOUN = pattern("MESSAGE_START"), pattern("MESSAGE_NOUN")
_MODEL_TOKEN, _NOT_A_PHONE = pattern("MODEL_TOKEN"), pattern("NOT_A_PHONE")
is_plain_url, is_flag_word = _full_match(pattern("PLAIN_URL")), _full_match(pattern("FLAG_WORD"))
is_code, is_common_word = _full_match(pattern("CODE")), _full_match(pattern("COMMON_WORD"))
_WORDY = re.compile(r"(?:\d+[-%])?[A-Za-z]?[a-z]*(?:[-_'/][A-Za-z][a-z]*)*|[A-Z]+(?:[-_/][A-Z]+)*")
is_passphrase = _full_match(re.compile(r"[A-Za-z][a-z]+(?:-[A-Za-z]?[a-z]+){3,}"))
_SEGMENT = re.compile(
    r"(?:[A-Za-z]?[a-z]+|[A-Z]+s?|(?:[A-Z][a-z]{2,})+|[a-z]+(?:[A-Z][a-z]{2,})+)?\d{0,4}"
)
_CAMEL = re.compile(r"[a-z]*(?:[A-Z][a-z]+)+\d{0,4}")
_SEPARATORS = re.compile(r"[-/._:@,=+ ]+|'(?=(?:s|t|re|ve|ll|d|m)(?![^\W_]))|(?<=\b[cdlmn])'")
_TYPE = re.compile(r"_?(?:[a-z_]{1,40}\.){0,3}_?(?:[A-Z][a-z]+|[A-Z]{2,}(?=[A-Z][a-z]))+\d?")
_TYPESET = re.compile(r"\\(?:f[A-Z]\Z|&\Z|-(?=\w))")  # of a manual page
_PUNCTUATION = "*_()[]{}<>\"'`.,;:!?&|"
_UUID = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
is_hexadecimal = _full_match(re.compile(f"(?:0x)?[0-9a-f]+|[0-9A-F]+|{_UUID}"))
_PLACEHOLDER_WORD = re.compile(
    r"(?i)[\w.-]*your[\w.-]*|(?:(?:an?|the|my|some|new|old|user|db)[_.-])?"
    r"(?:the|new|old)?(?:pass(?:word|wd|phrase)?|pwd|secret|token)(?:[_.-]?here)?"
)
_PATTERN = re.compile(r"\\|\(\?[:=!<P]|a-z|A-Z|0-9|\[\^\S+\]|[.][*+](?:[?)|$]|\Z)")
_FIELD = re.compile(r"\{\w*\}|%[sd(]")
_TEMPLATE = re.compile(
    r"[$%{<*].*|x{3,}|[^:]*:(?:[$%{<*].*|x{3,}|\.{3}|pass(?:word)?|pwd|)", re.IGNORECASE
)
_MAPPED_IPV4 = bytes(10) + b"\xff\xff"

_HUMPS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_SPOKEN = pattern("SPOKEN_WORD")
_DASH = re.compile(r"[-_./+=~]|(?<=[a-z])(?=[A-Z][a-z])|(?<=[a-z]\d)(?=[A-Z][a-z]{2})")
_NAME_PART = re.compile(
    r"v?\d+[A-Za-z]{0,2}|(?:[A-Z]?[a-z]+|[A-Z]*)\d{0,4}|[a-z]*(?:[A-Z][a-z]+)+[A-Z]{0,3}\d?"
)  # MyService-2024, releases/V2
_TITLE_WORD = re.compile(r"[A-Za-z]?[a-z'.,-]*|[A-Z]+[.,]?|\W+")
_MIN_ENCODED = 20
_NO_TEXT = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_STANDARD_ALPHABET = str.maketrans("-_", "+/")
_HEX_KEY = re.compile(rf"(?:[0-9a-fA-F]{{20,}}|{_UUID})\Z")


def is_call(value: str) -> bool:
    return is_code(value) and ("(" in value or "[" in value)


def is_dummy(value: str) -> bool:
    """Return whether a value is a template, a mask or a placeholder to fill in."""
    value = value.strip()
    name = value.lstrip("${")
    if name != value and name.isalnum() and has_both_cases(name):
        return is_made_of_words(name) or not is_strong_mix(name)
    return (_DUMMY.fullmatch(value) or _MASK.fullmatch(value)) is not None


def is_harmless(value: str) -> bool:
    return is_common_word(value) or is_dummy(value)


def is_description(value: str) -> bool:
    """Return whether a value under a secret's name is its type, a mask or a mode of a browser."""
    value = value.strip()
    return (_DESCRIBED.fullmatch(value) or _MASK.fullmatch(value)) is not None


def is_message(value: str, *, is_whole: bool = True) -> bool:
    """Return whether a value is what a form says of a secret: ``must have 8 characters``.

    The rest of a line, which is not ``is_whole``, may begin with the secret.
    """
    if not _MESSAGE_PHRASE.search(value[:300]) or not _MESSAGE_WORDS.fullmatch(value):
        return False
    return _MESSAGE_START.match(value) is not None or (
        is_whole and _MESSAGE_NOUN.search(value) is not None
    )


def is_label(value: str) -> bool:
    named = _MESSAGE_NOUN.search(value) is not None
    return (
        named
        and value[:1].isupper()
        and re.fullmatch(r"[^\W\d_ ]+(?: [^\W\d_ ]+){0,5}[?:.]?", value) is not None
    )


def is_wordy(value: str) -> bool:
    return _WORDY.fullmatch(_TYPESET.sub("-", value).rstrip("-")) is not None


def is_model_token(token: str, around: str) -> bool:
    """Return whether a token is a language model's: ``{"token": "Yes", "logprob": -0.1}``."""
    if len(token) > 17 or not _MODEL_TOKEN.fullmatch(token):
        return False
    return "prob" in around or is_common_word(token.strip())


def is_strong(value: str) -> bool:
    """Return whether a value has 8 or more characters and is not a word, number, path or code."""
    if len(value) < 8 or value.isdecimal() or any(map(str.isspace, value)):
        return False
    if is_words(value.strip(_PUNCTUATION)) and not is_hexadecimal(value):
        return False
    if is_dummy(value) or is_code(value):
        return False
    if is_hexadecimal(value):
        return len(value) >= 16 and not value.isalpha()
    return "://" not in value


def is_strong_secret(value: str) -> bool:
    return is_strong(value) or is_passphrase(value)


def is_pattern(value: str) -> bool:
    return _PATTERN.search(value) is not None


def is_strong_text(value: str) -> bool:
    """Return whether a string in code is strong, without its fields, and no pattern."""
    return not is_pattern(value) and is_strong(_FIELD.sub("", value))


def is_mixed(value: str) -> bool:
    kinds = set(map(_kind, value.strip(_PUNCTUATION)))
    return (0 in kinds and bool(kinds & {1, 2})) or len(kinds) > 2 or case_changes(value) > 4


def is_strong_mix(value: str) -> bool:
    return "\\" not in value and is_strong(value) and is_mixed(value)


def is_user_and_password(value: str) -> bool:
    """Return whether ``user:password``, or a key as the user, is not a template."""
    user, _, password = value.partition(":")
    password = password.strip("\"'")
    if not password:
        return is_strong(user)
    return is_strong(password.strip("{}")) or not (is_dummy(password) or password.isdecimal())


def is_kubernetes_secret_data(value: str) -> bool:
    """Return whether the value is base64 of a text, as in a Kubernetes Secret."""
    try:
        decoded = base64.b64decode(value, validate=True).decode()
    except ValueError:
        return False
    return not value.isdecimal() and all(sign.isprintable() or sign.isspace() for sign in decoded)


def decoded_text(encoded: str) -> str:
    """Return the text in base64 of either alphabet, or an empty string."""
    signs = "".join(encoded.split()).rstrip("=").translate(_STANDARD_ALPHABET)
    if len(encoded) < _MIN_ENCODED or len(signs) % 4 == 1:
        return ""
    data = base64.b64decode(signs + "=" * (-len(signs) % 4))
    try:  # a truncated text may end within a character
        text, _ = utf_8_decode(data) if any(data[1::2]) else utf_16_le_decode(data)
    except UnicodeDecodeError:
        return ""
    return "" if _NO_TEXT.search(text) else text


def is_credential(value: str) -> bool:
    """Return whether the value after ``Bearer`` or similar is not a word or placeholder."""
    words = [word.strip(".,:;!?()") for word in value.split()]
    if is_dummy(value) or (len(words) > 1 and all(map(is_wordy, words))):
        return False
    return is_passphrase(value) or not is_wordy(value)


def is_basic_auth(value: str) -> bool:
    """Return whether the value is base64 of a text with a colon, or looks like a credential."""
    try:
        decoded = base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
    except ValueError:
        decoded = b""
    is_mixed = len(value) >= 16 and (has_digits(value) or case_changes(value) >= 6)
    is_text = has_digits(value) and bool(decoded) and decoded.isascii()
    is_encoded = (value.endswith("=") or is_mixed or is_text) and not is_words(value)
    return b":" in decoded or (is_encoded and is_credential(value))


def is_title(value: str) -> bool:
    """Return whether a value is a title such as ``"template data"`` or ``DEFAULT``."""
    if " " in value:
        return all(map(_TITLE_WORD.fullmatch, value.split()))
    return len(value) < 12 and value.isupper() and value.isalpha()


def is_type_name(value: str) -> bool:
    value = value.lstrip("&*")
    return _TYPE.fullmatch(value) is not None and len(value) >= 3 * sum(map(str.isupper, value))


def is_words(value: str) -> bool:
    """Return whether a value is only words, variable names and numbers, with separators."""
    return all(
        _SEGMENT.fullmatch(part)
        or (part.isalpha() and not part.isascii())
        or (_CAMEL.fullmatch(part) and len(part) >= 3 * sum(map(str.isupper, part)))
        for part in _SEPARATORS.split(_TYPESET.sub("-", value))
    )


def is_random(value: str) -> bool:
    varied = len(set(value[-12:])) > 3
    return varied and (has_digits(value, 2) or case_changes(value) >= 6)


def alternates_often(value: str) -> bool:
    """Return whether digits, capitals and small letters alternate as in no word."""
    if not (has_digits(value) and has_both_cases(value)):
        return False
    changes = sum(a != b for a, b in pairwise(map(_kind, value)))
    return changes >= 0.38 * len(value) and entropy(value) > 3.4


def is_long_name(value: str) -> bool:
    """Return whether a value is a name of words and versions: ``convertUtf8ToBase64``."""
    parts = _HUMPS.findall(value)
    words = [part for part in parts if part.isalpha()]
    size = sum(map(len, words))
    if not value.isidentifier() or size < 3 * len(words) or len(value) < 2.6 * len(parts):
        return False
    return sum(len(word) for word in words if _SPOKEN.fullmatch(word)) >= 0.8 * size


def is_issued_token(value: str) -> bool:
    runs = re.findall(f"{_UUID}|[A-Za-z0-9]+", value)
    longest = max(runs, key=len, default="")
    if has_both_cases(longest):
        return len(longest) >= (16 if len(runs) < 3 else 12) and has_digits(longest, 2)
    return len(longest) >= 16 and has_digits(longest, 5) and entropy(longest) > 3


def is_flag_token(value: str) -> bool:
    is_name = is_hexadecimal(value.removeprefix("0x")) or is_made_of_words(value)
    return is_issued_token(value) and not is_name


def is_made_of_words(value: str) -> bool:
    """Return whether a value is a path, an id or a class of words: ``all-MiniLM-L6-v2``."""
    return all(map(_NAME_PART.fullmatch, _DASH.split(value)))


def is_vendor_token(value: str, *, alone: bool, names_key: bool) -> bool:
    """Return whether a value is a key, after only a vendor's name or one that mentions keys."""
    if _HEX_KEY.match(value):
        return names_key and len(set(value)) > 6
    digits = sum(map(str.isdigit, value))
    if is_made_of_words(value) or digits == len(value) or entropy(value) < 3:
        return False
    if has_both_cases(value):
        many_changes = case_changes(value) * 3 > sum(map(str.isalpha, value))
        return len(value) >= (14 if names_key else 20) and (digits > 1 or many_changes)
    is_one_run = re.search("[A-Za-z0-9]{14}", value) is not None
    return names_key and digits >= 4 and (len(value) >= 24 or not alone) and is_one_run


def has_digits(value: str, least: int = 1) -> bool:
    return sum(map(str.isdigit, value)) >= least


def has_both_cases(value: str) -> bool:
    return any(map(str.isupper, value)) and any(map(str.islower, value))


def case_changes(value: str) -> int:
    cases = [character.isupper() for character in value if character.isalpha()]
    return sum(a != b for a, b in pairwise(cases))


def _kind(character: str) -> int:
    if character.isdigit():
        return 0
    if character.isupper():
        return 1
    return 2 if character.islower() else 3


def entropy(value: str) -> float:
    size = len(value)
    return -sum(count / size * math.log2(count / size) for count in Counter(value).values())


def _compact(value: str) -> str:
    return re.sub(r"[^0-9A-Za-z]", "", value)


def is_valid_number(module: str, value: str) -> bool:
    """Return the answer of a module of python-stdnum, which is imported on first use."""
    is_one = import_module(module).is_valid
    try:
        return bool(is_one(_compact(value)))
    except KeyError:  # of a county that it does not list
        return True


def is_card(value: str) -> bool:
    digits = _compact(value)
    for first, last, lengths in TABLE["cards"]["issued"]:
        if first <= digits[: len(first)] <= last and len(digits) in lengths:
            return is_valid_number("stdnum.luhn", value)
    return False


def is_iban(value: str) -> bool:
    """Return whether the ISO 13616 checksum is valid; national formats are not checked."""
    return is_valid_number("stdnum.iso7064.mod_97_10", _compact(value)[4:] + _compact(value)[:4])


def is_month_day(value: str, *, day: int = 4) -> bool:
    return 1 <= int(_compact(value)[2:4]) <= 12 and 1 <= int(_compact(value)[day : day + 2]) <= 31


def is_phone(value: str, *, least: int = 7, most: int = 15) -> bool:
    return least <= sum(map(str.isdigit, value)) <= most and not _NOT_A_PHONE.fullmatch(value)


is_day_month = partial(is_month_day, day=0)


def is_ipv6_host(value: str) -> bool:
    """Return whether it is a global, local, link-local or mapped IPv6 address, unlike ``a::b``."""
    try:  # `ipaddress` would be slow
        address = socket.inet_pton(socket.AF_INET6, re.split("[/%]", value)[0])
    except OSError:
        return False
    if address.startswith(_MAPPED_IPV4):
        return address[len(_MAPPED_IPV4)] != 127
    first = int.from_bytes(address[:2])
    return 0x2000 <= first < 0x4000 or first >= 0xFC00 or first == 0x64


CHECKS: Final[dict[str, Callable[[str], bool]]] = {
    "is_array_of_secrets": lambda value: any(
        has_digits(one) and is_strong(one) for one in re.split(r"[\"']\s*,\s*[\"']", value)
    ),
    "is_no_dummy": lambda value: not (is_dummy(value) or _PLACEHOLDER_WORD.fullmatch(value)),
    "is_list_of_secrets": lambda value: any(is_strong(one.strip("-\"'")) for one in value.split()),
    "is_no_code": lambda value: not (is_code(value) or is_dummy(value) or is_description(value)),
    "is_no_template": lambda value: not _TEMPLATE.fullmatch(value),
    "is_number_or_mix": lambda value: value.isdecimal() or is_strong_mix(value),
    "is_protocol_password": lambda value: is_mixed(value) and is_strong(value) and "/" not in value,
    "is_router_password": lambda value: has_digits(value) and not is_dummy(value),
    "is_flag_password": lambda value: is_strong_mix(value) and not is_hexadecimal(value),
    "is_user_password": lambda value: is_strong(value.partition(":")[2]),
    "is_short_phone": partial(is_phone, least=9, most=12),
    "is_random_key": lambda value: is_random(value) and not is_long_name(value),
    "is_unlike_words": lambda value: has_digits(value) or case_changes(value) >= 3,
}
"""The checks that only rules use."""
