"""Checks of values assigned to names: ``password = …``, ``--token …``, ``DB_PASSWORD=…``."""

import re

from kp_middleware.privacy._checks import (
    NEXT_KEY,
    full_name,
    is_plain,
    line_before,
    separator_of,
    text_before,
)
from kp_middleware.privacy._decoding import (
    is_object_name,
    is_page_token,
    is_password_name,
    is_probable,
    is_variable_name,
)
from kp_middleware.privacy._values import (
    has_digits,
    is_call,
    is_code,
    is_common_word,
    is_description,
    is_dummy,
    is_flag_word,
    is_harmless,
    is_label,
    is_message,
    is_mixed,
    is_model_token,
    is_passphrase,
    is_plain_url,
    is_strong,
    is_strong_secret,
    is_title,
    is_type_name,
    is_words,
    is_wordy,
    matched_value,
    pattern,
    value_of,
)

_CONDITION = re.compile(
    r"\b(?:if|elif|while|for|with|unless|when|case|in|not|and|or|class|def) [^\n]*\Z"
)
_OPENED = re.compile(r"(?<![\w)\]}\"'`])([\"'`])[\w :,.()-]*\Z")
_TEXT_CONTINUES = re.compile(r"[\s,;:.)\]}+%]")
_FLAG_BEFORE = re.compile(r"(?<![\w-])(?:--?(?:[A-Za-z]{1,12}-){0,3}|/)\Z")
_FONT = re.compile(r"[BIRP](?:\W.*|[A-Z_]+|string)?")  # of a manual page
_SEGMENTS = re.compile(r"[,;)\]}&|<>\"'`]")
_IDENTIFIER = re.compile(r"[^\W\d]+(?:['’][a-z]{1,2})?|[$][A-Za-z_]*")
_HUMPS = re.compile(r"_?[A-Z]+[a-z]+\d?[A-Z]")
_TYPE_END = re.compile(r"\s{0,2}[,)|=\]?;]|\s{0,2}\Z|\[|\n")
_WORDS_FOLLOW = re.compile(r"[,.]?(?: (?:[^\W\d]|['\"`(),.*/-]){1,30}){1,3}(?=\s|\Z)")
_SECRET_PART = re.compile(r"(?i)pass|pw|cred|secret|token|key|auth|prompt|input|value|default")
_ENV = re.compile(r"[A-Z0-9_]+")
_LINE_BEFORE = pattern("LINE_BEFORE")
_ARN_BEFORE = re.compile(r"\barn:[\w-]{1,20}:secretsmanager:[\w-]{0,30}:\d{0,12}:\Z")
_FIELD_NUMBER = re.compile(r"\d{1,3}\s{0,2}[;\[]")  # of Protocol Buffers
_FIELD_TYPE = re.compile(
    r"(?:\A|[\s{])(?:string|bytes|bool|double|float|[su]?int(?:32|64)|s?fixed(?:32|64)"
    r"|[A-Z]\w{1,40}|\w{1,40}(?:\.\w{1,40}){1,5}|map<[\w., ]{1,60}>)\s{1,4}\w{0,40}\Z"
)
_SHOWN_TEXTS = pattern("SHOWN_TEXTS")
_ARGUMENT_END, _LINE_GOES_ON = re.compile(r"\s{0,2}[,)}]"), re.compile(r",[ \t]{0,8}(?:\n|\Z)")
_CALL_BEFORE = re.compile(r"\w\([^()]{0,200}\Z")
_STORAGE_NAME, _STORED_NAME = pattern("STORAGE_NAME"), pattern("STORED_NAME")
_STORED_TOKEN = re.compile(r"(?i)token|session|cookie|jwt|auth")
_STORED_PARTS = re.compile("[A-Za-z][-_:./@][A-Za-z]")
_STORED_SECRET = re.compile(r"(?i)secret|pass|pw")
_NEXT_PAIR = re.compile(r"[;&,]\w{2,40}=")
_BLOCK_SCALAR = re.compile(r"(?:[|>][-+]?|`{3}\w*)\s+\Z")
_FIELD_BEFORE = re.compile(r"[\w.]=\S{0,80}[ \t]{1,4}[\w.-]*\Z")


def is_assigned_secret(match: re.Match[str]) -> bool:
    """Return whether the value of a secret's name is not code, a word or a placeholder."""
    text, (start, end) = match.string, matched_value(match)
    value, sign, name = text[start:end], separator_of(match), full_name(match)
    is_bare = match["value_bare"] is not None
    if is_dummy(value) or is_description(value) or is_plain_url(value):
        return False
    if text.startswith("...", end) or (text.startswith("}", end) and is_dummy(value + "}")):
        return False
    if not is_password_name(name) and is_plain(value, name, sign if is_bare else ""):
        return False
    if is_page_token(name) or _is_working_folder(name, value) or is_object_name(name, value):
        return False
    if _ARN_BEFORE.search(text_before(match, 120, "name")):
        return False
    around = text[max(0, match.start() - 200) : match.end() + 200]
    if name.lower() in {"token", "tokens"} and is_model_token(value, around):
        return False
    is_docstring = match["value_triple"] or match["value_three"]
    if "\n" in sign and (is_docstring or _CONDITION.search(text_before(match, 48, "name"))):
        return False
    check = _is_bare_value if is_bare else _is_quoted_value
    return check(match, value, name, sign)


def _is_argument(match: re.Match[str], sign: str) -> bool:
    """Return whether a variable is passed: ``User(password=hashed_pw)``, ``password: newPass,``."""
    value, before = match["value_bare"], line_before(match)
    if sign not in {"=", ": "} or not is_variable_name(value):
        return False
    if not _ARGUMENT_END.match(match.string, match.end("value_bare")):
        return False
    is_in_call = before.count("(") > before.count(")")
    if sign == "=":
        return is_in_call and value in value.lower()
    if before.strip():
        is_in_braces = before.count("{") > before.count("}")
        return is_in_call and (is_in_braces or _CALL_BEFORE.search(before) is not None)
    return (
        value not in value.lower()
        and _LINE_GOES_ON.match(match.string, match.end("value_bare")) is not None
    )


def _is_stored_name(name: str, value: str) -> bool:
    """Return whether the value of ``STORAGE_KEY`` and the like names what a browser stores."""
    found = _STORAGE_NAME.fullmatch(name)
    if found is None or not _STORED_NAME.fullmatch(value) or is_passphrase(value):
        return False
    if found["other"]:
        return _STORED_PARTS.search(value) is not None and not _STORED_SECRET.search(value)
    return _STORED_TOKEN.search(value) is not None and not _STORED_SECRET.search(value)


def _is_told(match: re.Match[str]) -> bool:
    """Return whether a requirement or the number of a field begins: ``password: at least 8 …``."""
    text, start = match.string, match.start("value_bare")
    line = text[start : start + 200].partition("\n")[0].strip()
    if is_message(line, is_whole=False):
        return True
    field = _FIELD_NUMBER.match(text, start)
    return field is not None and _FIELD_TYPE.search(line_before(match)) is not None


def _is_working_folder(name: str, value: str) -> bool:
    return name in {"PWD", "OLDPWD"} and value.startswith(("/", "~"))


def is_flag_value(match: re.Match[str]) -> bool:
    if _FLAG_BEFORE.search(text_before(match, 48)) is None or _FONT.fullmatch(value_of(match)):
        return False
    is_told = match["value_bare"] is not None and is_flag_word(value_of(match))
    return not is_told and is_assigned_secret(match)


def _is_quoted_value(match: re.Match[str], value: str, name: str, sign: str) -> bool:
    if is_message(value) or _is_stored_name(name, value):
        return False
    is_compared_secret = "==" in sign or "!=" in sign
    if is_password_name(name) or (is_compared_secret and "secret" in name.lower()):
        if is_compared_secret:
            return True
        if is_label(value) and _SHOWN_TEXTS.search(text_before(match, 200, "name")):
            return False
    elif is_compared_secret or is_title(value):
        return is_strong_secret(value)
    if NEXT_KEY.match(match.string, match.end()):
        return False
    opened = _OPENED.search(text_before(match, 120, "name"))  # as in ``input('Password: ', x)``
    in_one_quote = opened and opened[1] == sign[-1:] and sign[0] not in "'\"`\\"
    return not (in_one_quote and _TEXT_CONTINUES.match(value))


def _is_bare_value(match: re.Match[str], value: str, name: str, sign: str) -> bool:
    if is_common_word(value.rstrip(".:")) or _is_told(match) or _is_argument(match, sign):
        return False
    if value.isdecimal() and len(value) < 4 and sign[:1] in {'"', "'"}:
        return False  # a count: ``"token": 12``
    own_name = match["name"].strip("_").lower()
    if sign == "=" and _ENV.fullmatch(name) and value[0] not in "[{(":
        return not (is_harmless(value) or is_call(value) or value.lower() == own_name)
    first = _SEGMENTS.split(value, maxsplit=1)[0]
    is_whole = len(first) > 2 and first[0] not in ":$%{<" and first[-1] != ":"
    is_whole |= first[:1] == "$" and value[len(first) : len(first) + 1] in {")", "}"}
    candidates = (value.rstrip(".:"), first)[: 1 + is_whole]
    if any(_is_reference(candidate, own_name, name) for candidate in candidates):
        return False
    if value[0] == "(" and is_password_name(name) and " " not in sign:
        return True
    if "==" in sign or "!=" in sign or value[0] in "[{(" or "\n" in sign:
        if is_password_name(name) and _BLOCK_SCALAR.search(sign) and has_digits(value):
            return True
        return is_strong(value) and not is_wordy(value.strip("[{()}]"))
    if ":" in sign and _is_described(match, value, name):
        return False
    return not _is_variable(value, name, sign)


def _is_reference(value: str, own_name: str, name: str) -> bool:
    value = value.lstrip("&*")
    if is_harmless(value) or is_code(value) or value.strip("_").lower() in {own_name, name.lower()}:
        return True
    return value.endswith((".value", ".type", ".text", ".string"))


def _is_described(match: re.Match[str], value: str, name: str) -> bool:
    """Return whether a type or words follow: ``api_key: MyKeyType``, ``api_key: API key for …``."""
    text, end = match.string, match.end("value_bare")
    value = value.lstrip("&*")
    if is_type_name(value) and _TYPE_END.match(text, end):
        return _HUMPS.match(value) is not None or text[end : end + 1] != "\n"
    bare = value.strip("(.,'&*")
    if not (_IDENTIFIER.fullmatch(bare) and is_words(bare)):
        return False
    if _WORDS_FOLLOW.match(text, end):
        return True
    return bare.isascii() and not (is_password_name(name) or value.islower())


def _is_variable(value: str, name: str, sign: str) -> bool:
    """Return whether a value is a variable: ``token = value_str``, ``passwd = password_mgr``."""
    if ":" in sign or not (value.isascii() and _IDENTIFIER.fullmatch(value) and is_words(value)):
        return False
    if " " not in sign:
        return "_" in value and "pass" in value.lower()
    return not is_password_name(name) or _SECRET_PART.search(value) is not None


def is_rest_of_line(match: re.Match[str]) -> bool:
    """Return whether the value extends to the end of the line or to a log's next field."""
    value, name = value_of(match), full_name(match)
    before = _FIELD_BEFORE.search if match["next"] else _LINE_BEFORE.match
    if not before(line_before(match)) or is_harmless(value):
        return False
    if match["sign"] == "=" and _NEXT_PAIR.search(value):
        return False
    own_names = {match["name"].lower(), name.lower()}
    if value.strip("_").lower() in own_names or _is_working_folder(name, value):
        return False
    if not is_password_name(name) and (
        not is_probable(name) or is_plain(value, name, match["sign"])
    ):
        return False
    if match["sign"] == "=" and _ENV.fullmatch(name):
        return not is_call(value)
    return is_strong(value) and is_mixed(value)
