"""Judging what is assigned to the name of a secret: the secret itself, code, a word?"""

import re

from kp_middleware.privacy._names import is_of_password, pages
from kp_middleware.privacy._rules import matched_value
from kp_middleware.privacy._strength import (
    is_call,
    is_code,
    is_passphrase,
    is_plain,
    is_sign_of_model,
    is_stand_in,
    is_strong,
    is_usual_word,
    is_wordy,
)
from kp_middleware.privacy._values import is_usual, whole

_NEXT_KEY = re.compile(r"\s{0,4}:(?!/)")
_CONDITION = re.compile(
    r"\b(?:if|elif|while|for|with|unless|when|case|in|not|and|or|class|def) [^\n]*\Z"
)
_OPENED = re.compile(r"(?<![\w)\]}\"'`])([\"'`])[\w -]*\Z")
_GOES_ON = re.compile(r"[\s,;:.)\]}+%]")
_FLAG_BEFORE = re.compile(r"(?<![\w-])(?:--?(?:[A-Za-z]{1,12}-){0,3}|/)\Z")
_FONT = re.compile(r"[BIRP](?:\W.*|[A-Z_]+|string)?")  # of a manual page
_SEGMENTS = re.compile(r"[,;)\]}&|<>\"'`]")
_IDENTIFIER = re.compile(r"[^\W\d]+|[$][A-Za-z_]*")
_TYPE = re.compile(r"_?(?:[a-z_]{1,40}\.){0,3}_?(?:[A-Z][a-z]+|[A-Z]{2,}(?=[A-Z][a-z]))+\d?")
_HUMPS = re.compile(r"_?[A-Z]+[a-z]+\d?[A-Z]")
_TYPE_ENDS = re.compile(r"\s{0,2}[,)|=\]?;]|\s{0,2}\Z|\[|\n")
_WORDS_FOLLOW = re.compile(r"[,.]?(?: (?:[^\W\d_]|['(),.-]){1,30}){1,3}(?=\s|\Z)")
_WORD = re.compile(r"[A-Za-z]?[a-z'.,-]*|[A-Z]+[.,]?|\W+")
_OF_SECRETS = re.compile(r"(?i)pass|pw|cred|secret|token|key|auth|prompt|input|value|default")
_ENV = re.compile(r"[A-Z0-9_]+")


def is_given(match: re.Match[str]) -> bool:
    """After a name that names a secret: the value is one, unless it is code or a stand-in."""
    text, (start, end) = match.string, matched_value(match)
    value, sign = text[start:end], text[match.end("name") : start]
    is_bare = match["value_bare"] is not None
    if is_bare and is_usual_word(value.rstrip(".:")):
        return False
    if is_stand_in(value) or text.startswith("...", end):
        return False
    name = whole(match)
    if pages(name) or _is_of_model(match, name, value) or is_working_folder(name, value):
        return False
    if "\n" in sign and _is_below(match):
        return False
    if is_bare:
        return _is_bare_value(match, value, name, sign)
    return _is_quoted_value(match, value, name, sign)


def is_working_folder(name: str, value: str) -> bool:
    """``PWD=/srv/app``: a shell's own variable."""
    return name in {"PWD", "OLDPWD"} and value.startswith(("/", "~"))


def is_flag(match: re.Match[str]) -> bool:
    """On a command line, after ``--name``: as ``is_given``."""
    text, (start, end) = match.string, matched_value(match)
    before = text[max(0, match.start() - 48) : match.start()]
    if _FLAG_BEFORE.search(before) is None or _FONT.fullmatch(text, start, end):
        return False
    return is_given(match)


def _is_of_model(match: re.Match[str], name: str, value: str) -> bool:
    """``{"token": "Yes", "logprob": -0.1}``: a piece of text, as language models count them."""
    if name.lower() not in {"token", "tokens"} or not is_sign_of_model(value):
        return False
    around = match.string[max(0, match.start() - 200) : match.end() + 200]
    return is_usual_word(value.strip()) or "prob" in around


def _is_below(match: re.Match[str]) -> bool:
    """``if not password:`` and then another line; what documents a class."""
    if match["value_triple"] or match["value_three"]:
        return True
    text, start = match.string, match.start("name")
    return _CONDITION.search(text[max(0, start - 48) : start]) is not None


def _is_quoted_value(match: re.Match[str], value: str, name: str, sign: str) -> bool:
    is_compared = "==" in sign or "!=" in sign
    if is_of_password(name) or (is_compared and "secret" in name.lower()):
        if is_compared:
            return True
    elif is_compared or _is_title(value):
        return is_strong(value) or is_passphrase(value)
    return not (
        _NEXT_KEY.match(match.string, match.end())
        or (_GOES_ON.match(value) and _in_one_quote(match, sign))
    )


def _is_title(value: str) -> bool:
    """``TOKEN_DATA: "template data"``, ``DEFAULT``: no key has spaces."""
    if " " in value:
        return all(map(_WORD.fullmatch, value.split()))
    return len(value) < 12 and value.isupper() and value.isalpha()


def _in_one_quote(match: re.Match[str], sign: str) -> bool:
    """``input('Password: ', x)``: the quote after the name closes the one before it."""
    text, start = match.string, match.start("name")
    opened = _OPENED.search(text[max(0, start - 40) : start])
    return opened is not None and sign[:1] not in {"'", '"', "`", "\\"} and opened[1] == sign[-1:]


def _is_bare_value(match: re.Match[str], value: str, name: str, sign: str) -> bool:
    """Without quotes, it must be neither a word nor code."""
    if value.isdecimal() and len(value) < 4 and sign[:1] in {'"', "'"}:
        return False  # a count: ``"token": 12``
    own = match["name"].strip("_").lower()
    if sign == "=" and _ENV.fullmatch(name) and value[0] not in "[{(":
        return not (is_usual(value) or is_call(value) or value.lower() == own)
    first = _SEGMENTS.split(value, maxsplit=1)[0]
    if _is_no_value(value.rstrip(".:"), own, name) or (
        len(first) > 2
        and first[0] not in ":$%{<"
        and first[-1] != ":"
        and _is_no_value(first, own, name)
    ):
        return False
    if value[0] == "(" and is_of_password(name) and " " not in sign:
        return True
    if "==" in sign or "!=" in sign or value[0] in "[{(" or "\n" in sign:
        return is_strong(value) and not is_wordy(value.strip("[{()}]"))
    if ":" in sign and _is_described(match, value, name):
        return False
    return not _is_variable(value, name, sign)


def _is_no_value(value: str, own: str, name: str) -> bool:
    value = value.lstrip("&*")
    if is_usual(value) or is_code(value) or value.strip("_").lower() in {own, name.lower()}:
        return True
    return value.endswith((".value", ".type", ".text", ".string"))


def _is_described(match: re.Match[str], value: str, name: str) -> bool:
    """``api_key: MyKeyType``, ``api_key: API key for …``."""
    text, end = match.string, match.end("value_bare")
    value = value.lstrip("&*")
    if _TYPE.fullmatch(value) and _TYPE_ENDS.match(text, end):
        is_long = len(value) >= 3 * sum(map(str.isupper, value))
        return is_long and (_HUMPS.match(value) is not None or text[end : end + 1] != "\n")
    bare = value.strip("(.,'&*")
    if not (_IDENTIFIER.fullmatch(bare) and is_plain(bare)):
        return False
    if _WORDS_FOLLOW.match(text, end):
        return True
    return bare.isascii() and not (is_of_password(name) or value.islower())


def _is_variable(value: str, name: str, sign: str) -> bool:
    """``token = value_str``, ``passwd = password_mgr``: code."""
    if ":" in sign or not (value.isascii() and _IDENTIFIER.fullmatch(value) and is_plain(value)):
        return False
    if " " not in sign:
        return "_" in value and "pass" in value.lower()
    return not is_of_password(name) or _OF_SECRETS.search(value) is not None
