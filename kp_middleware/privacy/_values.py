"""Checks of a value alone: a secret, or a word, code, a placeholder, a number?"""

import base64
import math
import re
import socket
from collections import Counter
from collections.abc import Callable
from functools import partial
from importlib import import_module
from itertools import pairwise
from typing import TypeAlias

from kp_middleware.privacy._rules import TABLE

ValueCheck: TypeAlias = Callable[[str], bool]


def _whole(pattern: str, flags: int = 0) -> ValueCheck:
    """Return a check that a pattern matches the whole value."""
    fullmatch = re.compile(pattern, flags).fullmatch
    return lambda value: fullmatch(value) is not None


_IDENT = (
    r"(?=[A-Za-z_$])(?:[A-Z_]{3,80}+(?![a-z])"
    r"|[$_]{0,2}[A-Z]{0,12}+[a-z_]*+(?:[A-Z]{1,12}+[a-z_]{2,}+|\d{1,3}+[a-z_]*+)*+)"
)
_OBJECTS = (
    "self|cls|this|os|process|env|environ|settings|config|cfg|conf|args|params|options|opts|ctx"
    "|context|request|req|response|resp|res|state|data|event|props|secrets|vault|creds|credentials"
    r"|client|session|kwargs|import\.meta|github|steps|inputs|var|local|module|each"
)
is_code = _whole(
    rf"""
    [(!*]{{0,2}}(?=[\w$][\w$.:>-]{{2}}){_IDENT}(?:(?:[.]|->|::|\?\.){_IDENT})*+
      [(\[](?:[a-z]?["'].*|(?!\d{{4}}(?:[)\]]|\Z))(?:[^\#^~@!?%&|;$<]|[!?]=|\$[a-z])*+)  # a call
    | [(!&*]{{0,2}}(?:{_OBJECTS})\??[.][A-Za-z_][\w.?]*
    | [(!&*]{{0,2}}[A-Za-z_][\w.]*[._](?i:password|passwd|secret|token|key|credentials?)
    | {_IDENT}(?:(?:->|::){_IDENT})++[;,)\]]*
    | (?:Optional|Union|Annotated|List|Dict|Sequence|Callable|Literal|new|await)\b.*
    | \w+:                                                           # the next key
    | \\f[A-Z(].*                                                    # a manual page
    """,
    re.VERBOSE,
)
_STAND_IN = re.compile(
    r"""
    [$][{(][\w\s'./-].* | [$][A-Za-z_][A-Za-z0-9_]* | [$]env:.* | %[A-Za-z_]+%
    | %\(?[a-z_]*\)?s | [$@]\d
    | (?:[^\w{}%]{0,3}(?:[{]{1,2}[\s\w.\[\]"'()|:!>@-]*[}]{1,2}|%[sd])){1,4}[^\w{}]{0,3}
    | [{]{1,2}[\s\w.\[\]"'():!]*
    | <[\w\s.:/|'-]*> | <[A-Za-z\s_-]* | \[\[[\w\s.-]*\]{0,2} | :[A-Za-z_]\w* | [?]
    | (?:Bearer|Basic|Token)(?:[ ][{<$].*|[ ]?)
    | [\[(]?[Yy][Oo][Uu][Rr](?:[ _-].*)?
    | [A-Z]{2,}(?:[_-][A-Za-z]{2,})+ | [\W_]{1,2}             # fill me in
    | [|+:=-]{3,} | !(?:[a-z_]+|(?:[A-Z][a-z]+)+)(?:[ ][|>]-?)?
    | \$ANSIBLE_VAULT\S* | <[%?]=?(?:[ ].*)? | required\|.*
    | \d{4}-\d\d-\d\d[T ]\d\d:\d\d[\d:.]{0,16}(?:Z|[+-]\d\d:?\d\d)?  # when it was changed
    | ([*.xX#_-])\1{2,} | [*.\u2022]{2,} | \w{0,8}[-_]?(?:[.]{3}|\u2026)
    """,
    re.VERBOSE,
)
_USUAL = r"""
    0|1|a|an|any|are|array|assert|await|bool|boolean|break|bytes|char|class|const|continue|def|default
    |del|disabled|elif|else|empty|enabled|enum|except|expected|expired|false|field|float|for|from
    |getpass|hidden|if|import|in|input|int|integer|invalid|is|json|lambda|let|list|mandatory|masked
    |match|missing|new|nil|no|none|not|null|number|object|optional|or|and|pass|password|print|prompt
    |raise|redacted|required|return|revoked|secret|secretstr|self|set|str|string|text|the|this|throw
    |token|true|try|type|undefined|unknown|unset|unused|valid|var|varchar|void|was|while|with|wrong
    |yes|yield|your|user|username|passwd|enter
    |apikey|basic|bearer|bot|digest|hawk|jwt|negotiate|oauth  # schemes: the secret follows
    """
is_usual_word = _whole(_USUAL, re.VERBOSE | re.IGNORECASE)
_MASKED = re.compile(
    rf"""
    [\[(<{{]{{1,2}}(?:{_USUAL}
      |blank|filtered|omitted|removed|n/a|[*\u2022]+|(?:not?|is)[ _-]\w{{1,12}})[\])>}}]{{0,2}}
    | [\[(<]not? | n/a
    """,
    re.VERBOSE | re.IGNORECASE,
)
_ATTRIBUTE = r"(?:(?:path|domain|max-age|expires|samesite)=[^;]*|httponly|secure|partitioned)"
_KIND = (  # a schema's type, or its format
    r"(?:array|bool|boolean|bytes?|binary|integer|u?int\d{1,2}|null|number|float\d{0,2}|double|decimal"
    r"|object|str|string|(?:var)?char\(\d{1,5}\)|jsonb?|uuid|guid|e-?mail|ur[il]|hostname|ipv[46]"
    r"|date|date-?time|timestamp|base64)"
)
_ASKED = (  # what a form asks of a field
    r"(?:required|optional|nullable|confirmed|sometimes|string"
    r"|(?:min|max|size|between|same|different):[\w,]{1,40})"
)
_DESCRIBED = re.compile(
    rf"{_KIND}(?:\[\]|\?)?(?: ?\| ?(?:{_KIND}|none))?|Optional\[{_KIND}\]"
    rf"|{_ASKED}(?:\|{_ASKED})*|this field (?:is required|may not be (?:blank|null))\."
    rf"|include|same-origin|omit|{_ATTRIBUTE}(?:;\s*{_ATTRIBUTE})*;?",  # of a browser
    re.IGNORECASE,
)
_WORDY = re.compile(r"(?:\d+[-%])?[A-Za-z]?[a-z]*(?:[-_'/][A-Za-z][a-z]*)*|[A-Z]+(?:[-_/][A-Z]+)*")
is_passphrase = _whole(r"[A-Za-z][a-z]+(?:-[A-Za-z]?[a-z]+){3,}")
_SEGMENT = re.compile(
    r"(?:[A-Za-z]?[a-z]+|[A-Z]+s?|(?:[A-Z][a-z]{2,})+|[a-z]+(?:[A-Z][a-z]{2,})+)?\d{0,4}"
)
_CAMEL = re.compile(r"[a-z]*(?:[A-Z][a-z]+)+\d{0,4}")
_BETWEEN = re.compile(r"[-/._:@,=+ ]+|'(?=(?:s|t|re|ve|ll|d|m)(?![^\W_]))")
_TYPE = re.compile(r"_?(?:[a-z_]{1,40}\.){0,3}_?(?:[A-Z][a-z]+|[A-Z]{2,}(?=[A-Z][a-z]))+\d?")
_TYPESET = re.compile(r"\\(?:f[A-Z]\Z|&\Z|-(?=\w))")  # of a manual page
_AROUND = "*_()[]{}<>\"'`.,;:!?&|"
_LOGGED = re.compile(
    r"[^\w\s]{0,2}[\s\u2581\u0120]{0,2}(?:[A-Z]?[a-z]{1,14}|[A-Z]{1,5}|\d{1,3}|[\W_]{1,4})?"
)
is_hexadecimal = _whole(
    r"(?:0x)?[0-9a-f]+|[0-9A-F]+|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
)
_ASKS = re.compile(r"(?i)[\w.-]*(?:pass(?:word|wd)?|pwd|secret|token|your)[\w.-]*")
_PATTERN = re.compile(r"\\|\(\?[:=!<P]|a-z|A-Z|0-9|\[\^\S+\]|[.][*+](?:[?)|$]|\Z)")
_FIELD = re.compile(r"\{\w*\}|%[sd(]")
_TEMPLATE = re.compile(
    r"[$%{<*].*|x{3,}|[^:]*:(?:[$%{<*].*|x{3,}|\.{3}|pass(?:word)?|pwd|)", re.IGNORECASE
)
_NO_PHONE = re.compile(
    r"(?:19|20)\d\d([-/. ])(?:0?[1-9]|1[0-2])\1(?:0?[1-9]|[12]\d|3[01])(?:[ -]\d{1,6})?"
    r"|[0-3]?\d([-/.])[0-3]?\d\2(?:19|20)?\d\d(?: \d{1,2})?"  # dates
    r"|\d{1,3}(?:\.\d{1,3}){3}|\+?\d{5,}\.\d+"
)
_MAPPED = bytes(10) + b"\xff\xff"

_OF_TITLE = re.compile(r"[A-Za-z]?[a-z'.,-]*|[A-Z]+[.,]?|\W+")
_HEX_KEY = re.compile(
    r"(?:[0-9a-fA-F]{20,}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})\Z"
)


def is_call(value: str) -> bool:
    return is_code(value) and ("(" in value or "[" in value)


def is_stand_in(value: str) -> bool:
    """Return whether a value is a template, a mask or a placeholder to fill in."""
    value = value.strip()
    return (_STAND_IN.fullmatch(value) or _MASKED.fullmatch(value)) is not None


def is_usual(value: str) -> bool:
    """Return whether a value is a word of schemas or a placeholder."""
    return is_usual_word(value) or is_stand_in(value)


def describes(value: str) -> bool:
    """Return whether a value under a secret's name is its type, a mask or a mode of a browser."""
    value = value.strip()
    return (_DESCRIBED.fullmatch(value) or _MASKED.fullmatch(value)) is not None


def is_no_code(value: str) -> bool:
    return not (is_code(value) or is_stand_in(value) or describes(value))


def is_filled_in(value: str) -> bool:
    return not (is_stand_in(value) or _ASKS.fullmatch(value))


def is_wordy(value: str) -> bool:
    """Return whether a value is hyphenated words of one case, as in a dictionary."""
    return _WORDY.fullmatch(_TYPESET.sub("-", value).rstrip("-")) is not None


def is_sign_of_model(value: str) -> bool:
    """Return whether a value is a language model's token: ``Yes``, `` the``, ``ization``."""
    return len(value) <= 17 and _LOGGED.fullmatch(value) is not None


def is_strong(value: str) -> bool:
    """Return whether a value has at least 8 characters and is no word, number, path or code."""
    if len(value) < 8 or value.isdecimal() or any(map(str.isspace, value)):
        return False
    if is_plain(value.strip(_AROUND)) and not is_hexadecimal(value):
        return False
    if is_stand_in(value) or is_code(value):
        return False
    if is_hexadecimal(value):
        return len(value) >= 16 and not value.isalpha()
    return "://" not in value


def is_strong_or_phrase(value: str) -> bool:
    return is_strong(value) or is_passphrase(value)


def is_pattern(value: str) -> bool:
    return _PATTERN.search(value) is not None


def is_strong_text(value: str) -> bool:
    """Return whether a string in code is strong, without its fields, and no pattern."""
    return not is_pattern(value) and is_strong(_FIELD.sub("", value))


def is_mixed(value: str) -> bool:
    """Return whether a value has letters and digits, three kinds of signs, or many capitals."""
    digit, capital, small, _ = kinds = [
        any(_kind(character) == kind for character in value.strip(_AROUND)) for kind in range(4)
    ]
    return (digit and (capital or small)) or sum(kinds) > 2 or case_changes(value) > 4


def is_strong_mix(value: str) -> bool:
    return "\\" not in value and is_strong(value) and is_mixed(value)


def is_number_or_mix(value: str) -> bool:
    return value.isdecimal() or is_strong_mix(value)


def is_password_of_flag(value: str) -> bool:
    """Return whether ``-p …`` gives a password, not a port, a folder or a commit."""
    return is_strong_mix(value) and not is_hexadecimal(value)


def is_password_of_user(value: str) -> bool:
    return is_strong(value.partition(":")[2])


def is_user_and_password(value: str) -> bool:
    """Return whether ``user:password``, or a key as the user, is no template."""
    user, _, password = value.partition(":")
    password = password.strip("\"'")
    if not password:
        return is_strong(user)
    return is_strong(password.strip("{}")) or not (is_stand_in(password) or password.isdecimal())


def is_list_of_secrets(value: str) -> bool:
    return any(is_strong(item.strip("-\"'")) for item in value.split())


def is_array_of_secrets(value: str) -> bool:
    values = re.split(r"[\"']\s*,\s*[\"']", value)
    return any(has_digits(one) and is_strong(one) for one in values)


def is_of_router(value: str) -> bool:
    """Return whether a value in a router's configuration has a digit and is no placeholder."""
    return has_digits(value) and not is_stand_in(value)


def is_of_kubernetes(value: str) -> bool:
    """Return whether the value is base64 of a text, as in a Kubernetes Secret."""
    try:
        decoded = base64.b64decode(value, validate=True).decode()
    except ValueError:
        return False
    return not value.isdecimal() and all(sign.isprintable() or sign.isspace() for sign in decoded)


def is_no_template(value: str) -> bool:
    return not _TEMPLATE.fullmatch(value)


def is_credential(value: str) -> bool:
    """Return whether the value after ``Bearer`` or the like is no word or placeholder."""
    words = value.split()
    if is_stand_in(value) or (
        len(words) > 1 and all(is_wordy(word.strip(".,:;!?()")) for word in words)
    ):
        return False
    return is_passphrase(value) or not is_wordy(value)


def is_basic_auth(value: str) -> bool:
    """Return whether the value is base64 of a text with a colon, or looks like a credential."""
    try:
        decoded = base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
    except ValueError:
        return len(value) >= 16 and is_credential(value)
    return b":" in decoded or is_credential(value)


def is_title(value: str) -> bool:
    """Return whether a value is a title such as ``"template data"`` or ``DEFAULT``."""
    if " " in value:
        return all(map(_OF_TITLE.fullmatch, value.split()))
    return len(value) < 12 and value.isupper() and value.isalpha()


def is_type_name(value: str) -> bool:
    value = value.lstrip("&*")
    return _TYPE.fullmatch(value) is not None and len(value) >= 3 * sum(map(str.isupper, value))


def is_plain(value: str) -> bool:
    """Return whether a value is only words, variable names and numbers, with separators."""
    return all(map(_is_plain_part, _BETWEEN.split(_TYPESET.sub("-", value))))


def _is_plain_part(part: str) -> bool:
    if _SEGMENT.fullmatch(part) or (part.isalpha() and not part.isascii()):
        return True
    return len(part) >= 3 * sum(map(str.isupper, part)) and _CAMEL.fullmatch(part) is not None


def is_unlike_words(value: str) -> bool:
    return has_digits(value) or case_changes(value) >= 3


def is_random(value: str) -> bool:
    """Return whether the value has two digits or many case changes, and varied characters."""
    varied = len(set(value[-12:])) > 3
    return varied and (has_digits(value, 2) or case_changes(value) >= 6)


def alternates_often(value: str) -> bool:
    """Return whether digits, capitals and small letters alternate as in no word."""
    if not (has_digits(value) and has_both_cases(value)):
        return False
    changes = sum(a != b for a, b in pairwise(map(_kind, value)))
    return changes >= 0.38 * len(value) and entropy(value) > 3.4


def is_issued(value: str) -> bool:
    """Return whether an ambiguous prefix is followed by a long run of letters and digits."""
    runs = re.findall("[A-Za-z0-9]+", value)
    longest = max(runs, key=len)
    if has_both_cases(longest):
        return len(longest) >= (16 if len(runs) < 3 else 12) and has_digits(longest, 2)
    return len(longest) >= 16 and has_digits(longest, 5) and entropy(longest) > 3


def is_key_of_vendor(value: str, *, alone: bool, told: bool) -> bool:
    """Return whether a value is a key: after only a vendor's name, or one that tells of keys."""
    if _HEX_KEY.match(value):
        return told and len(set(value)) > 6
    digits = sum(map(str.isdigit, value))
    if digits == len(value) or entropy(value) < 3 or _is_made_of_words(value):
        return False
    if has_both_cases(value):
        many_changes = case_changes(value) * 3 > sum(map(str.isalpha, value))
        return len(value) >= (14 if told else 20) and (digits > 1 or many_changes)
    is_one_run = re.search("[A-Za-z0-9]{14}", value) is not None
    return told and digits >= 4 and (len(value) >= 24 or not alone) and is_one_run


def _is_made_of_words(value: str) -> bool:
    """Return whether the value is like ``MyService-2024-Production`` or ``releases/V2/linux64``."""
    parts = re.split(r"[-_./+=~]|(?<=[a-z])(?=[A-Z][a-z])", value)
    return all(re.fullmatch(r"v?\d+|(?:[A-Z]?[a-z]+|[A-Z]*)\d{0,4}", part) for part in parts)


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
    """Return the entropy in bits per character."""
    size = len(value)
    return -sum(count / size * math.log2(count / size) for count in Counter(value).values())


def _bare(value: str) -> str:
    return re.sub(r"[^0-9A-Za-z]", "", value)


def is_valid(module: str, value: str) -> bool:
    """Return the answer of a module of python-stdnum, which is imported on first use."""
    return bool(import_module(module).is_valid(_bare(value)))


def is_card(value: str) -> bool:
    """Return whether the number has a known issuer's prefix and length, and passes Luhn."""
    digits = _bare(value)
    issued = any(
        first <= digits[: len(first)] <= last and len(digits) in lengths
        for first, last, lengths in TABLE["cards"]["issued"]
    )
    return issued and is_valid("stdnum.luhn", value)


def is_iban(value: str) -> bool:
    """Return whether the ISO 13616 checksum is valid; national formats are not checked."""
    return is_valid("stdnum.iso7064.mod_97_10", _bare(value)[4:] + _bare(value)[:4])


def _is_dated(value: str, *, month: int, day: int) -> bool:
    """Return whether the digits at these positions are a month and a day."""
    text = _bare(value)
    return 1 <= int(text[month : month + 2]) <= 12 and 1 <= int(text[day : day + 2]) <= 31


def _is_number(value: str, *, least: int, most: int) -> bool:
    return least <= sum(map(str.isdigit, value)) <= most and not _NO_PHONE.fullmatch(value)


is_month_day = partial(_is_dated, month=2, day=4)
is_day_month = partial(_is_dated, month=2, day=0)
is_phone = partial(_is_number, least=7, most=15)
is_short_phone = partial(_is_number, least=9, most=12)


def is_host_v6(value: str) -> bool:
    """Return whether it is a global, local, link-local or mapped IPv6 address, unlike ``a::b``."""
    try:
        address = socket.inet_pton(
            socket.AF_INET6, re.split("[/%]", value)[0]
        )  # not slow ipaddress
    except OSError:
        return False
    if address.startswith(_MAPPED):
        return address[len(_MAPPED)] != 127
    first = int.from_bytes(address[:2])
    return 0x2000 <= first < 0x4000 or first >= 0xFC00 or first == 0x64
