"""Judging the value beside a key: is it the secret itself, or code, a word, a stand-in?"""

import math
import re
from collections import Counter
from itertools import pairwise

from kp_middleware.privacy._rules import matched_value, value_of

_STAND_IN = re.compile(
    r"""
    [$][{(].* | [$][A-Z_][A-Z0-9_]* | [$]env:.* | %[A-Za-z_]+% | %\(?[a-z_]*\)?s | [$@]\d
    | [{]{1,2}[^{}]*[}]{0,2} | <[^<>]*>? | \[\[.* | :[A-Za-z_]\w* | [?]                  # templates
    | (?:Bearer|Basic|Token)[ ][{<$].*
    | [Yy][Oo][Uu][Rr][ _-].* | [A-Z]{2,}(?:[_-][A-Za-z]{2,})+ | [\W_]{1,2}             # fill me in
    | ([*.xX#_-])\1{2,} | [*.\u2022]{2,} | \w{0,8}[-_]?(?:[.]{3}|\u2026)
    """,
    re.VERBOSE,
)
_CODE = re.compile(
    r"""
    \(?[A-Za-z_][A-Za-z_.]{1,60}[(\[].*                              # a call, an index
    | (?:self|cls|this|os|process|env|environ|settings|config|cfg|conf|args|params|options|opts|ctx
       |context|request|req|response|resp|res|state|data|event|props|secrets|vault|creds|credentials
       |client|session|kwargs|import\.meta|github|steps|inputs|var|local|module|each
      )\??[.][A-Za-z_][\w.?]*
    | [A-Za-z_][\w.]*[._](?i:password|passwd|secret|token|key|credentials?)
    | (?:Optional|Union|Annotated|List|Dict|Sequence|Callable|Literal)\b.*
    | \w+:                                                           # the next key
    """,
    re.VERBOSE,
)
_WORDS = re.compile(
    r"""
    0|1|a|any|are|array|assert|await|bool|boolean|break|bytes|char|class|const|continue|def|default
    |del|disabled|elif|else|empty|enabled|enum|except|expected|expired|false|field|float|for|from
    |getpass|hidden|if|import|in|input|int|integer|invalid|is|json|lambda|let|list|mandatory|masked
    |match|missing|new|nil|no|none|not|null|number|object|optional|or|and|pass|password|print|prompt
    |raise|redacted|required|return|revoked|secret|secretstr|self|set|str|string|text|the|this|throw
    |token|true|try|type|undefined|unknown|unset|unused|valid|var|varchar|void|was|while|with|wrong
    |yes|yield
    |apikey|basic|bearer|bot|digest|hawk|jwt|negotiate|oauth  # schemes: the secret follows
    """,
    re.VERBOSE | re.IGNORECASE,
)
_COUNTER = re.compile(r"(?:tokens|counts?|total|limit|length|size|ttl|expires_(?:in|at)|version)\Z")
_NEXT_KEY = re.compile(r"\s{0,4}:(?!/)")
_CONDITION = re.compile(r"\b(?:if|elif|while|for|with|unless|when|case|in|not|and|or) [^\n]*\Z")
_OPENED = re.compile(r"([\"'`])[\w -]*\Z")
_NAME_BEFORE = re.compile(
    r"""([A-Za-z][\w.-]{0,40}+)(?:\\{0,7}["'`]|\*{1,2})?\]?\s{0,4}:?\Z""", re.ASCII
)
_FLAG_BEFORE = re.compile(r"(?<![\w-])--?(?:[A-Za-z]{1,12}-){0,3}\Z")
_WORDY = re.compile(r"(?:\d+[-%])?[A-Za-z]?[a-z]*(?:[-_'/][A-Za-z][a-z]*)*|[A-Z]+(?:[-_/][A-Z]+)*")
_HEX_ID = re.compile(
    r"(?:0x)?[0-9a-f]+|[0-9A-F]+|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
)
_NOT_SECRET = re.compile(
    r"sha(?:1|256|384|512)-|/|(?:chatcmpl|call|toolu|msg|run|resp|req|thread)[_-]"
)
_NAME_OF_HASH = re.compile(
    r"(?i:ids?|hash|digest|etag|checksum|integrity|sha\d{0,3}|md5|fingerprint|commit|rev(?:ision)?|h1"
    r"|blob|image|img|src|href|url|uri|path|file|(?<!user)name|model|base64|cursor)\Z"
)


def is_counter(name: str) -> bool:
    """Whether what has this name is a number of something, even below a name of a secret."""
    return _COUNTER.search(name.lower()) is not None


def is_usual(value: str) -> bool:
    """A word of schemas, or what stands for a value."""
    return bool(_WORDS.fullmatch(value) or _STAND_IN.fullmatch(value.strip()))


def is_given(match: re.Match[str]) -> bool:
    """After a name that names a secret: the value is one, unless it is code or a stand-in."""
    bare = match["value_bare"]
    if bare is not None and not _is_bare_value(match, bare):
        return False
    if _STAND_IN.fullmatch(value_of(match).strip()) or _is_condition(match):
        return False
    return bare is not None or not (
        _NEXT_KEY.match(match.string, match.end()) or _in_one_quote(match)
    )


def _is_bare_value(match: re.Match[str], value: str) -> bool:
    """Without quotes, it must be neither a word nor code."""
    if _WORDS.fullmatch(word := value.rstrip(".:")) or _CODE.fullmatch(value):
        return False
    compared = "==" in match.string[match.end("name") : match.start("value_bare")]
    return not compared and word.lower() != match["name"].lower()


def _is_condition(match: re.Match[str]) -> bool:
    """``if not password:`` and then another line."""
    text, start, end = match.string, match.start("name"), match.end("name")
    below = "\n" in text[end : matched_value(match)[0]]
    return below and _CONDITION.search(text[max(0, start - 48) : start]) is not None


def _in_one_quote(match: re.Match[str]) -> bool:
    """``input('Password: ', x)``: the quote after the name closes the one before it."""
    text, start = match.string, matched_value(match)[0]
    opened = _OPENED.search(text[max(0, match.start("name") - 40) : match.start("name")])
    closed = text[match.end("name") : match.end("name") + 1] in {"'", '"', "`", "\\"}
    return opened is not None and not closed and opened[1] == text[start - 1]


def is_no_code(match: re.Match[str]) -> bool:
    """Beside a name: ``token, value = get_token(line)`` gives no secret away."""
    return not _CODE.fullmatch(value_of(match))


def is_told(match: re.Match[str]) -> bool:
    """In prose, where any word can follow: the value is a secret if no dictionary has it."""
    value = value_of(match).rstrip(".,:;!?)\"'")
    if len(value) < 4 or (value.isdecimal() and "pass" not in match[0].lower()):
        return False
    return not any(usual.fullmatch(value) for usual in (_WORDS, _STAND_IN, _WORDY, _CODE))


def is_opaque(match: re.Match[str]) -> bool:
    """After any name: the value is a secret if it looks random and is not a hash or an id."""
    value = value_of(match)
    before = match.string[max(0, match.start() - 48) : match.start()]
    named = _NAME_BEFORE.search(before)
    if named is None or _NAME_OF_HASH.search(named[1]) or _NOT_SECRET.match(value):
        return False
    return _looks_random(value)


def is_flag(match: re.Match[str]) -> bool:
    """On a command line, after ``--name``: as ``is_given``."""
    before = match.string[max(0, match.start() - 48) : match.start()]
    return _FLAG_BEFORE.search(before) is not None and is_given(match)


def is_token(match: re.Match[str]) -> bool:
    """After a word that may name a secret: random characters, not hexadecimal ones."""
    value = value_of(match)
    if _HEX_ID.fullmatch(value) or _NOT_SECRET.match(value) or "(" in value:
        return False
    mixed = not value.isdecimal() and _has_digits(value, 3) and entropy(value) > 3
    return mixed or _looks_random(value) or _case_changes(value) >= 0.38 * len(value)


def is_unlike_words(match: re.Match[str]) -> bool:
    """Words joined by hyphens hold neither digits nor capitals inside."""
    value = value_of(match)
    return _has_digits(value, 1) or _case_changes(value) >= 3


def is_random(match: re.Match[str]) -> bool:
    """Two digits or many changes of case, and not the same character over and over."""
    value = value_of(match)
    varied = len(set(value[-12:])) > 3
    return varied and (_has_digits(value, 2) or _case_changes(value) >= 6)


def is_credential(match: re.Match[str]) -> bool:
    """After ``Bearer`` and its like: anything with a digit, a capital inside or a symbol."""
    value = value_of(match)
    return not _STAND_IN.fullmatch(value) and not _WORDY.fullmatch(value)


def _has_digits(value: str, least: int) -> bool:
    return sum(map(str.isdigit, value)) >= least


def _case_changes(value: str) -> int:
    cases = [character.isupper() for character in value if character.isalpha()]
    return sum(a != b for a, b in pairwise(cases))


def _looks_random(value: str) -> bool:
    if not (
        any(map(str.isdigit, value))
        and any(map(str.isupper, value))
        and any(map(str.islower, value))
    ):
        return False
    changes = sum(a != b for a, b in pairwise(map(_kind, value)))
    return changes >= 0.38 * len(value) and entropy(value) > 3.4


def _kind(character: str) -> int:
    if character.isdigit():
        return 0
    if character.isupper():
        return 1
    return 2 if character.islower() else 3


def entropy(value: str) -> float:
    """Bits for each character."""
    size = len(value)
    return -sum(count / size * math.log2(count / size) for count in Counter(value).values())
