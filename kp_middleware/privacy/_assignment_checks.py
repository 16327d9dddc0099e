"""Checks of values assigned, passed or compared to names, and of those told in a sentence."""

import re

from kp_middleware.privacy._checks import (
    is_argument,
    is_mixed_value,
    is_told,
    is_usual,
    whole,
)
from kp_middleware.privacy._names import is_of_password, is_probable, pages
from kp_middleware.privacy._rules import matched_value, value_of
from kp_middleware.privacy._strength import (
    describes,
    is_call,
    is_code,
    is_mixed,
    is_passphrase,
    is_plain,
    is_sign_of_model,
    is_stand_in,
    is_strong,
    is_type_name,
    is_usual_word,
    is_wordy,
)

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
_HUMPS = re.compile(r"_?[A-Z]+[a-z]+\d?[A-Z]")
_TYPE_ENDS = re.compile(r"\s{0,2}[,)|=\]?;]|\s{0,2}\Z|\[|\n")
_WORDS_FOLLOW = re.compile(r"[,.]?(?: (?:[^\W\d_]|['(),.-]){1,30}){1,3}(?=\s|\Z)")
_WORD = re.compile(r"[A-Za-z]?[a-z'.,-]*|[A-Z]+[.,]?|\W+")
_OF_SECRETS = re.compile(r"(?i)pass|pw|cred|secret|token|key|auth|prompt|input|value|default")
_ENV = re.compile(r"[A-Z0-9_]+")


def is_given(match: re.Match[str]) -> bool:
    """Return whether the value of a secret's name is no code, word or placeholder."""
    text, (start, end) = match.string, matched_value(match)
    value, sign = text[start:end], text[match.end("name") : start]
    is_bare = match["value_bare"] is not None
    if is_bare and is_usual_word(value.rstrip(".:")):
        return False
    if is_stand_in(value) or describes(value) or text.startswith("...", end):
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
    """Return whether the value is a shell's own variable: ``PWD=/srv/app``."""
    return name in {"PWD", "OLDPWD"} and value.startswith(("/", "~"))


def is_flag(match: re.Match[str]) -> bool:
    """Return whether the value of a command-line flag ``--name`` passes `is_given`."""
    text, (start, end) = match.string, matched_value(match)
    before = text[max(0, match.start() - 48) : match.start()]
    if _FLAG_BEFORE.search(before) is None or _FONT.fullmatch(text, start, end):
        return False
    return is_given(match)


def _is_of_model(match: re.Match[str], name: str, value: str) -> bool:
    """Return whether a token is a language model's: ``{"token": "Yes", "logprob": -0.1}``."""
    if name.lower() not in {"token", "tokens"} or not is_sign_of_model(value):
        return False
    around = match.string[max(0, match.start() - 200) : match.end() + 200]
    return is_usual_word(value.strip()) or "prob" in around


def _is_below(match: re.Match[str]) -> bool:
    """Return whether the value is on the line after a condition, or is a docstring."""
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
    """Return whether a value is a title such as ``"template data"`` or ``DEFAULT``."""
    if " " in value:
        return all(map(_WORD.fullmatch, value.split()))
    return len(value) < 12 and value.isupper() and value.isalpha()


def _in_one_quote(match: re.Match[str], sign: str) -> bool:
    """Return whether name and value are in one quoted string: ``input('Password: ', x)``."""
    text, start = match.string, match.start("name")
    opened = _OPENED.search(text[max(0, start - 40) : start])
    return opened is not None and sign[:1] not in {"'", '"', "`", "\\"} and opened[1] == sign[-1:]


def _is_bare_value(match: re.Match[str], value: str, name: str, sign: str) -> bool:
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
    """Return whether a type or words follow: ``api_key: MyKeyType``, ``api_key: API key for …``."""
    text, end = match.string, match.end("value_bare")
    value = value.lstrip("&*")
    if is_type_name(value) and _TYPE_ENDS.match(text, end):
        return _HUMPS.match(value) is not None or text[end : end + 1] != "\n"
    bare = value.strip("(.,'&*")
    if not (_IDENTIFIER.fullmatch(bare) and is_plain(bare)):
        return False
    if _WORDS_FOLLOW.match(text, end):
        return True
    return bare.isascii() and not (is_of_password(name) or value.islower())


def _is_variable(value: str, name: str, sign: str) -> bool:
    """Return whether a value is a variable: ``token = value_str``, ``passwd = password_mgr``."""
    if ":" in sign or not (value.isascii() and _IDENTIFIER.fullmatch(value) and is_plain(value)):
        return False
    if " " not in sign:
        return "_" in value and "pass" in value.lower()
    return not is_of_password(name) or _OF_SECRETS.search(value) is not None


_LINE_BEFORE = re.compile(
    r"\s*(?:-\s+)?(?:export\s+|ENV\s+|ARG\s+|SET\s+|set\s+|setx?\s+)?[\w.-]*\Z"
)


_NEXT = re.compile(r"[;&,]\w{2,40}=")


_FIELD_BEFORE = re.compile(r"[\w.]=\S{0,80}[ \t]{1,4}[\w.-]*\Z")


def is_rest_of_line(match: re.Match[str]) -> bool:
    """Return whether all up to the end of the line, or to a log's next field, is the value."""
    value, name, at = value_of(match), whole(match), match.start("name")
    line = match.string.rfind("\n", max(0, at - 200), at) + 1
    before = _FIELD_BEFORE.search if match["next"] else _LINE_BEFORE.match
    if not before(match.string, line, at) or is_usual(value) or _NEXT.search(value):
        return False
    if value.strip("_").lower() in {match["name"].lower(), name.lower()} or is_working_folder(
        name, value
    ):
        return False
    if not (is_of_password(name) or is_probable(name)):
        return False
    if match["sign"] == "=" and _ENV.fullmatch(name):
        return not is_call(value)
    return is_strong(value) and is_mixed(value)


_MAKES = re.compile(
    r"(?i:|new|str|string|(?:secret|protected)?(?:str|string|bytes)|secret|bytes?|buffer|strdup|some|just|of"
    r"|optional|from\w{0,12}|to\w{0,12}|quote\w{0,6}|(?:encode|utf)\w{0,16}|getbytes|text|literal|plain\w*|raw)\Z"
)
_PATTERN = re.compile(r"\\|\(\?[:=!<P]|a-z|A-Z|0-9|\[\^\S+\]|[.][*+](?:[?)|$]|\Z)")
_FIELD = re.compile(r"\{\w*\}|%[sd(]")


def is_compared(match: re.Match[str]) -> bool:
    """Return whether the value with which a secret is compared is no word and no pattern."""
    value = value_of(match)
    if is_of_password(match["name"]) and not _PATTERN.search(value):
        return is_argument(match) and " " not in value
    return _is_random(value)


def is_built(match: re.Match[str]) -> bool:
    """Return whether an expression that makes a secret holds it, not the name of it."""
    value, code = value_of(match), match["code"].strip()
    made = re.split(r"\W", code.rstrip("([{").rstrip())[-1]
    if code[-1:] in {"(", "[", "{"} and _MAKES.match(made) and is_of_password(match["name"]):
        return not (
            is_usual(value) or describes(value) or is_wordy(value) or _PATTERN.search(value)
        )
    return _is_random(value)


def _is_random(value: str) -> bool:
    return not _PATTERN.search(value) and is_strong(_FIELD.sub("", value))


def is_strong_argument(match: re.Match[str]) -> bool:
    return _is_random(value_of(match))


def is_named_after(match: re.Match[str]) -> bool:
    """Return whether ``… as the password`` follows a value that is no word and no code."""
    value = value_of(match)
    if "(" in value or " for " in match[0] or "log" in match[0][len(value) :]:
        return is_mixed_value(match)
    return is_told(match)


def is_code_number(match: re.Match[str]) -> bool:
    return value_of(match).isdecimal() or is_mixed_value(match)


def is_array_of_secrets(match: re.Match[str]) -> bool:
    values = re.split(r"[\"']\s*,\s*[\"']", value_of(match))
    return any(any(map(str.isdigit, value)) and is_strong(value) for value in values)
