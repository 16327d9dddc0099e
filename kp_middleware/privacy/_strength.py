"""The shape of a value alone: words, code, or random characters."""

import math
import re
from collections import Counter
from itertools import pairwise

_IDENT = (
    r"(?=[A-Za-z_$])(?:[A-Z_]{3,80}+(?![a-z])"
    r"|[$_]{0,2}[A-Z]{0,12}+[a-z_]*+(?:[A-Z]{1,12}+[a-z_]{2,}+|\d{1,3}+[a-z_]*+)*+)"
)
_OBJECTS = (
    "self|cls|this|os|process|env|environ|settings|config|cfg|conf|args|params|options|opts|ctx"
    "|context|request|req|response|resp|res|state|data|event|props|secrets|vault|creds|credentials"
    r"|client|session|kwargs|import\.meta|github|steps|inputs|var|local|module|each"
)
_CODE = re.compile(
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
_USUAL = re.compile(
    r"""
    0|1|a|an|any|are|array|assert|await|bool|boolean|break|bytes|char|class|const|continue|def|default
    |del|disabled|elif|else|empty|enabled|enum|except|expected|expired|false|field|float|for|from
    |getpass|hidden|if|import|in|input|int|integer|invalid|is|json|lambda|let|list|mandatory|masked
    |match|missing|new|nil|no|none|not|null|number|object|optional|or|and|pass|password|print|prompt
    |raise|redacted|required|return|revoked|secret|secretstr|self|set|str|string|text|the|this|throw
    |token|true|try|type|undefined|unknown|unset|unused|valid|var|varchar|void|was|while|with|wrong
    |yes|yield|your|user|username|passwd|enter
    |apikey|basic|bearer|bot|digest|hawk|jwt|negotiate|oauth  # schemes: the secret follows
    """,
    re.VERBOSE | re.IGNORECASE,
)
_MASKED = re.compile(
    rf"""
    [\[(<{{]{{1,2}}(?:{_USUAL.pattern}
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
_PASSPHRASE = re.compile(r"[A-Za-z][a-z]+(?:-[A-Za-z]?[a-z]+){3,}")
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
_HEX = re.compile(
    r"(?:0x)?[0-9a-f]+|[0-9A-F]+|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
)


def is_code(value: str) -> bool:
    """Return whether a value is a call, an index, an attribute or a type."""
    return _CODE.fullmatch(value) is not None


def is_call(value: str) -> bool:
    return is_code(value) and ("(" in value or "[" in value)


def is_stand_in(value: str) -> bool:
    """Return whether a value is a template, a mask or a placeholder to fill in."""
    value = value.strip()
    return (_STAND_IN.fullmatch(value) or _MASKED.fullmatch(value)) is not None


def describes(value: str) -> bool:
    """Return whether a value under a secret's name is its type, a mask or a mode of a browser."""
    value = value.strip()
    return (_DESCRIBED.fullmatch(value) or _MASKED.fullmatch(value)) is not None


def is_usual_word(value: str) -> bool:
    return _USUAL.fullmatch(value) is not None


def is_wordy(value: str) -> bool:
    """Return whether a value is hyphenated words of one case, as in a dictionary."""
    return _WORDY.fullmatch(_TYPESET.sub("-", value).rstrip("-")) is not None


def is_passphrase(value: str) -> bool:
    return _PASSPHRASE.fullmatch(value) is not None


def is_sign_of_model(value: str) -> bool:
    """Return whether a value is a language model's token: ``Yes``, `` the``, ``ization``."""
    return len(value) <= 17 and _LOGGED.fullmatch(value) is not None


def is_hexadecimal(value: str) -> bool:
    """Return whether a value is a hash, an id or a number."""
    return _HEX.fullmatch(value) is not None


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


def looks_random(value: str) -> bool:
    """Return whether digits, capitals and small letters alternate as in no word."""
    if not (any(map(str.isdigit, value)) and has_both_cases(value)):
        return False
    changes = sum(a != b for a, b in pairwise(map(_kind, value)))
    return changes >= 0.38 * len(value) and entropy(value) > 3.4


def is_mixed(value: str) -> bool:
    """Return whether a value has letters and digits, three kinds of signs, or many capitals."""
    digit, capital, small, _ = kinds = [
        any(_kind(character) == kind for character in value.strip(_AROUND)) for kind in range(4)
    ]
    return (digit and (capital or small)) or sum(kinds) > 2 or case_changes(value) > 4


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
