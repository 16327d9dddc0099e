"""Checks of the value after a key: a secret, or code, a word or a placeholder?"""

import base64
import re
from functools import wraps

from kp_middleware.privacy._names import is_name, is_of_password, is_probable, pages, whole_name
from kp_middleware.privacy._rules import Check, matched_value, value_of, words
from kp_middleware.privacy._strength import (
    case_changes,
    describes,
    entropy,
    is_code,
    is_hexadecimal,
    is_mixed,
    is_passphrase,
    is_plain,
    is_stand_in,
    is_strong,
    is_type_name,
    is_usual_word,
    is_wordy,
    looks_random,
)

_COUNTER = re.compile(r"(?:tokens|counts?|total|limit|length|size|ttl|expires_(?:in|at)|version)\Z")
_NAME_BEFORE = re.compile(
    r"""([A-Za-z][\w.-]{0,40}+)(?:\\{0,7}["'`]|\*{1,2})?\]?\s{0,4}[:=]?\Z""", re.ASCII
)
_NOT_SECRET = re.compile(
    r"sha(?:1|256|384|512)-|/|(?:chatcmpl|call|toolu|msg|run|resp|req|thread)[_-]"
)
_NAME_OF_HASH = re.compile(
    r"(?i:ids?|hash|digest|etag|checksum|integrity|sha\d{0,3}|md5|fingerprint|commit|rev(?:ision)?|h1"
    r"|blob|image|img|src|href|url|uri|path|file|(?<!user)name|model|base64|cursor|state|cache_?key"
    r"|(?:pub(?:lic)?|host|cache|sort|partition|object|s3)[_-]?key|accept|marker|nonce)\Z"
)
_SETS = re.compile(r"(?i)(?<![A-Za-z])(?:set|with)\w{0,24}\Z")
_ASKED = re.compile(r"(?i)(?:get|fetch|read|load|find|has|delete|the|no|any)[ _]?[\w.-]{0,30}\Z")
_ASKS = re.compile(r"(?i)[\w.-]*(?:pass(?:word|wd)?|pwd|secret|token|your)[\w.-]*")
_LISTED_BEFORE = re.compile(r"""["']\s{0,4},\s{0,8}["'][\w.-]{0,40}\Z""")
_CODE_AFTER = re.compile(r"[a-z_]{4,}[)\]}]{1,3}[\[.(]")
_OF_ACCOUNT = frozenset(
    words(
        "user|username|user_name|login|email|account|role|type|kind|name|provider|region|"
        "zone|host|hostname|port|url|endpoint|database|db|dbname|project|scope|scopes|"
        "expires|expiry|status"
    )
)
_ESCAPED = re.compile(r"\\f[A-Z]")


def is_counter(name: str) -> bool:
    """Return whether a name is that of a number, even below a secret's name."""
    return _COUNTER.search(name.lower()) is not None


def is_of_account(name: str, value: str) -> bool:
    """Return whether a field beside a password only describes the account."""
    return name.lower() in _OF_ACCOUNT and not is_strong(value)


def is_usual(value: str) -> bool:
    """Return whether a value is a word of schemas or a placeholder."""
    return is_usual_word(value) or is_stand_in(value)


def whole(match: re.Match[str]) -> str:
    """Return the whole identifier around the ``name`` group of a match."""
    return whole_name(match.string, match.start("name"), match.end("name"))


def named(check: Check) -> Check:
    """Return the check, applied only to names that end in a secret's, and are of no page."""

    @wraps(check)
    def checked(match: re.Match[str]) -> bool:
        at = match.span("name")
        return is_name(match.string, *at) and not pages(whole(match)) and check(match)

    return checked


def is_no_code(match: re.Match[str]) -> bool:
    value = value_of(match)
    return not (is_code(value) or is_stand_in(value) or describes(value))


def is_told(match: re.Match[str]) -> bool:
    """Return whether a value in prose, where any word may follow, is no dictionary word."""
    value = value_of(match).rstrip(".,:;!?)\"'")
    if not (value.isascii() or any(map(_is_sign, value))):
        return False  # a word of another language
    if len(value) < 4 or (value.isdecimal() and "pass" not in match[0].lower()):
        return False
    if is_passphrase(value):
        return True
    if _is_quoted(match) and "name" in match.re.groupindex and is_of_password(match["name"]):
        return is_argument(match) and " " not in value
    return is_argument(match) and not (is_usual(value) or is_wordy(value))


def _is_sign(character: str) -> bool:
    """Return whether a character is an ASCII digit or symbol, as in passwords."""
    return character.isascii() and not character.isalpha()


def is_argument(match: re.Match[str]) -> bool:
    """Return whether an argument in a secret's position is no placeholder or usual word."""
    value = value_of(match)
    if is_usual(value) or _ESCAPED.search(value):
        return False
    return _is_quoted(match) or not is_code(value)


def _is_quoted(match: re.Match[str]) -> bool:
    start, end = matched_value(match)
    sign = match.string[start - 1 : start]
    return sign in {'"', "'", "`"} and match.string[end : end + 1] == sign


def is_named_strong(match: re.Match[str]) -> bool:
    """Return whether the value of a probable name is no word, number, path or id."""
    value = value_of(match)
    if "\n" in match.string[match.end("name") : matched_value(match)[0]]:
        return False
    if value.isdecimal():
        return 4 <= len(value) <= 12 and whole(match).lower() in {"pin", "otp"}
    if value.startswith("sha") or value.endswith("(") or _CODE_AFTER.match(value):
        return False
    if is_type_name(value):
        return False
    return is_strong(value) and is_probable(whole(match))


def is_typed(match: re.Match[str]) -> bool:
    """Return whether ``with password …`` or ``password("…")`` gives a secret."""
    value, text = value_of(match).strip("`"), match.string
    if _ASKED.search(text[max(0, match.start("name") - 40) : match.start("name")]):
        return False
    if is_plain(value.strip("[](){}<>\\&*|.,;:!?")) or "\\" in value:
        return False
    if is_of_password(match["name"]) and len(value) >= 6 and is_told(match):
        return any(map(str.isdigit, value)) or is_strong(value) or is_passphrase(value)
    return is_strong(value) and not pages(whole(match))


def is_called(match: re.Match[str]) -> bool:
    """Return whether ``setPassword("…")`` or ``token("…")`` gives a secret."""
    before = match.string[max(0, match.start("name") - 24) : match.end("name")]
    return is_told(match) if _SETS.search(before) else is_typed(match)


def is_second(match: re.Match[str]) -> bool:
    """Return whether ``set("password", "…")`` gives a secret, not a list of names."""
    start = match.start("name")
    if _LISTED_BEFORE.search(match.string, max(0, start - 60), start):
        return is_strong(value_of(match))
    return is_told(match)


def is_cell(match: re.Match[str]) -> bool:
    """Return whether the next cell of a table row is a secret, not an alternative in a regex."""
    between = match.string[match.end("name") : matched_value(match)[0]]
    if not any(map(str.isspace, between)):
        at = match.start("name")
        line = match.string.rfind("\n", max(0, at - 200), at) + 1
        if not match.string[line:at].lstrip().startswith("|"):
            return False
    return is_told(match)


def is_line_of_password(match: re.Match[str]) -> bool:
    """Return whether a Gradle line such as ``password 'secret'`` gives a password."""
    return is_of_password(match["name"]) and " " not in value_of(match)


def is_whole_line(match: re.Match[str]) -> bool:
    """Return whether the whole line is a value with spaces: ``password: Tr0ub 4dor &3``."""
    at = match.start("name")
    start = match.string.rfind("\n", max(0, at - 200), at) + 1
    if len(match.string[start : match.start("name")].split()) > 1:
        return False
    first, *others = value_of(match).split()
    if not is_of_password(match["name"]) or is_usual(first) or is_code(first):
        return False
    return not all(is_plain(word.strip(".,;!?()")) and not word.isdecimal() for word in others)


def is_default(match: re.Match[str]) -> bool:
    """Return whether the value is a shell default in braces: ``${PASSWORD:-…}``."""
    before = match.string[max(0, match.start("name") - 64) : match.start("name")]
    if not is_argument(match):
        return False
    return before.rpartition("${")[2].replace("_", "").isalnum() or before.endswith("${")


def is_filled_in(match: re.Match[str]) -> bool:
    value = value_of(match)
    return not (is_stand_in(value) or _ASKS.fullmatch(value))


def is_of_router(match: re.Match[str]) -> bool:
    """Return whether a value in a router's configuration has a digit and is no placeholder."""
    value = value_of(match)
    return any(map(str.isdigit, value)) and not is_stand_in(value)


def is_user_and_password(match: re.Match[str]) -> bool:
    """Return whether ``user:password``, or a key as the user, is no template."""
    user, _, password = value_of(match).partition(":")
    password = password.strip("\"'")
    if not password:
        return is_strong(user)
    return is_strong(password.strip("{}")) or not (is_stand_in(password) or password.isdecimal())


def is_list_of_secrets(match: re.Match[str]) -> bool:
    return any(is_strong(item.strip("-\"'")) for item in value_of(match).split())


def is_strong_value(match: re.Match[str]) -> bool:
    value = value_of(match)
    return is_strong(value) or is_passphrase(value)


def is_mixed_value(match: re.Match[str]) -> bool:
    """Return whether the value is strong and has letters and digits, or three kinds of signs."""
    value = value_of(match)
    return "\\" not in value and is_strong(value) and is_mixed(value)


def is_password_of_flag(match: re.Match[str]) -> bool:
    """Return whether ``-p …`` gives a password, not a port, a folder or a commit."""
    return is_mixed_value(match) and not is_hexadecimal(value_of(match))


def is_strong_user(match: re.Match[str]) -> bool:
    return is_strong(value_of(match).partition(":")[2])


def is_of_kubernetes(match: re.Match[str]) -> bool:
    """Return whether the value is base64 of a text, as in a Kubernetes Secret."""
    value = value_of(match)
    try:
        decoded = base64.b64decode(value, validate=True).decode()
    except ValueError:
        return False
    return not value.isdecimal() and all(sign.isprintable() or sign.isspace() for sign in decoded)


def is_opaque(match: re.Match[str]) -> bool:
    """Return whether the value after any name looks random and is no hash or id."""
    value = value_of(match)
    before = match.string[max(0, match.start() - 48) : match.start()]
    named = _NAME_BEFORE.search(before)
    if named is None or _NAME_OF_HASH.search(named[1]) or _NOT_SECRET.match(value):
        return False
    return not pages(named[1]) and looks_random(value)


def is_token(match: re.Match[str]) -> bool:
    """Return whether the value of a doubtful name is random, and not hexadecimal."""
    value, name = value_of(match), whole(match)
    if is_hexadecimal(value) or _NOT_SECRET.match(value) or "(" in value:
        return False
    if name.lower() != "key" and not is_probable(name):
        return False
    mixed = not value.isdecimal() and _has_digits(value, 3) and entropy(value) > 3
    return mixed or looks_random(value) or case_changes(value) >= 0.38 * len(value)


def is_unlike_words(match: re.Match[str]) -> bool:
    value = value_of(match)
    return _has_digits(value, 1) or case_changes(value) >= 3


def is_random(match: re.Match[str]) -> bool:
    """Return whether the value has two digits or many case changes, and varied characters."""
    value = value_of(match)
    varied = len(set(value[-12:])) > 3
    return varied and (_has_digits(value, 2) or case_changes(value) >= 6)


def is_credential(match: re.Match[str]) -> bool:
    """Return whether the value after ``Bearer`` or the like is no word or placeholder."""
    value = value_of(match)
    words = value.split()
    if is_stand_in(value) or (
        len(words) > 1 and all(is_wordy(word.strip(".,:;!?()")) for word in words)
    ):
        return False
    return is_passphrase(value) or not is_wordy(value)


def _has_digits(value: str, least: int) -> bool:
    return sum(map(str.isdigit, value)) >= least
