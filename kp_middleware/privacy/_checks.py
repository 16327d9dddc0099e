"""Checks of a match in its context: its name, a call, an assignment, a sentence."""

import re
from functools import wraps

from kp_middleware.privacy._decoding import (
    ends_in_name,
    is_object_name,
    is_page_token,
    is_password_name,
    is_probable,
    is_variable_name,
)
from kp_middleware.privacy._values import (
    Check,
    alternates_often,
    case_changes,
    entropy,
    has_digits,
    is_call,
    is_code,
    is_common_word,
    is_description,
    is_dummy,
    is_flag_word,
    is_harmless,
    is_hexadecimal,
    is_label,
    is_long_name,
    is_message,
    is_mixed,
    is_model_token,
    is_passphrase,
    is_pattern,
    is_plain_url,
    is_strong,
    is_strong_mix,
    is_strong_secret,
    is_strong_text,
    is_title,
    is_type_name,
    is_words,
    is_wordy,
    matched_value,
    pattern,
    value_of,
)

_NAME_BEFORE = re.compile(
    r"""([A-Za-z][\w.-]{0,40}+)(?:\\{0,7}["'`]|\*{1,2})?\]?\s{0,4}[:=]?\Z""", re.ASCII
)
_NOT_SECRET = re.compile(
    r"sha(?:1|256|384|512)-|/|(?:chatcmpl|call|toolu|msg|run|resp|req|thread)[_-]"
)
_NAME_OF_HASH = pattern("NAME_OF_HASH")
_DIVIDER = re.compile(r"[^\w-]")
_SETTER = re.compile(r"(?i)(?<![A-Za-z])(?:set|with)\w{0,24}\Z")
_READ = re.compile(r"(?i)(?:get|fetch|read|load|find|has|delete|the|no|any)[ _]?[\w.-]{0,30}\Z")
_LISTED_BEFORE = re.compile(r"""["']\s{0,4},\s{0,8}["'][\w.-]{0,40}\Z""")
_CODE_AFTER = re.compile(r"[a-z_]{4,}[)\]}]{1,3}[\[.(]")
_ESCAPED = re.compile(r"\\f[A-Z]")
_NEXT_KEY = re.compile(r"\s{0,4}:(?!/)")
_CONDITION = re.compile(
    r"\b(?:if|elif|while|for|with|unless|when|case|in|not|and|or|class|def) [^\n]*\Z"
)
_OPENED = re.compile(r"(?<![\w)\]}\"'`])([\"'`])[\w -]*\Z")
_TEXT_CONTINUES = re.compile(r"[\s,;:.)\]}+%]")
_FLAG_BEFORE = re.compile(r"(?<![\w-])(?:--?(?:[A-Za-z]{1,12}-){0,3}|/)\Z")
_FONT = re.compile(r"[BIRP](?:\W.*|[A-Z_]+|string)?")  # of a manual page
_SEGMENTS = re.compile(r"[,;)\]}&|<>\"'`]")
_IDENTIFIER = re.compile(r"[^\W\d]+|[$][A-Za-z_]*")
_HUMPS = re.compile(r"_?[A-Z]+[a-z]+\d?[A-Z]")
_TYPE_END = re.compile(r"\s{0,2}[,)|=\]?;]|\s{0,2}\Z|\[|\n")
_WORDS_FOLLOW = re.compile(r"[,.]?(?: (?:[^\W\d_]|['(),.-]){1,30}){1,3}(?=\s|\Z)")
_SECRET_PART = re.compile(r"(?i)pass|pw|cred|secret|token|key|auth|prompt|input|value|default")
_ENV = re.compile(r"[A-Z0-9_]+")
_LINE_BEFORE, _CONSTRUCTOR = pattern("LINE_BEFORE"), pattern("CONSTRUCTOR")
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
_FIRST_IN_LINE = re.compile(r"(?:[\w.-]{1,64}: )?\s*(?:[A-Za-z][\w.-]*)?")
_BLOCK_SCALAR = re.compile(r"[|>][-+]?\s+\Z")
_PLAIN = re.compile(r"[\w.-]+")
_FIELD_BEFORE = re.compile(r"[\w.]=\S{0,80}[ \t]{1,4}[\w.-]*\Z")
_KUBERNETES_SECRET = re.compile(r"(?:^|\n)[ \t]{0,4}kind:[ \t]{0,4}[\"']?[Ss]ecret\b")


def text_before(match: re.Match[str], size: int, group: str | int = 0) -> str:
    start = match.start(group)
    return match.string[max(0, start - size) : start]


def _line_before(match: re.Match[str]) -> str:
    """Return the text before the name in its line, at most 200 characters."""
    at = match.start("name")
    return match.string[match.string.rfind("\n", max(0, at - 200), at) + 1 : at]


def _separator(match: re.Match[str]) -> str:
    return match.string[match.end("name") : matched_value(match)[0]]


def _full_name(match: re.Match[str]) -> str:
    """Return the identifier around the name, of at most 48 characters more on each side."""
    text, (start, end) = match.string, match.span("name")
    before = _DIVIDER.split(text[max(0, start - 48) : start])[-1]
    return before + text[start:end] + _DIVIDER.split(text[end : end + 48], maxsplit=1)[0]


def after_name(check: Check) -> Check:
    """Return the check, applied only to names that end in a secret's and are not page tokens."""

    @wraps(check)
    def checked(match: re.Match[str]) -> bool:
        start, end = match.span("name")
        first = max(0, start - 2)  # its lookbehinds read two characters
        is_secret_name = ends_in_name(match.string[first:end], start - first)
        return is_secret_name and not is_page_token(_full_name(match)) and check(match)

    return checked


def is_secret_in_prose(match: re.Match[str]) -> bool:
    """Return whether a value in prose, where any word may follow, is not a dictionary word."""
    value = value_of(match).rstrip(".,:;!?)\"'")
    if not any(sign.isascii() and not sign.isalpha() for sign in value) and not value.isascii():
        return False  # a word of another language
    if len(value) < 4 or (value.isdecimal() and "pass" not in match[0].lower()):
        return False
    if is_passphrase(value):
        return True
    if _is_quoted(match) and "name" in match.re.groupindex and is_password_name(match["name"]):
        return is_secret_argument(match) and " " not in value
    return is_secret_argument(match) and not (is_harmless(value) or is_wordy(value))


def is_secret_argument(match: re.Match[str]) -> bool:
    """Return whether an argument in a secret's position is not a placeholder or usual word."""
    value = value_of(match)
    if is_harmless(value) or _ESCAPED.search(value):
        return False
    return _is_quoted(match) or not is_code(value)


def _is_quoted(match: re.Match[str]) -> bool:
    start, end = matched_value(match)
    sign = match.string[start - 1 : start]
    return sign in {'"', "'", "`"} and match.string[end : end + 1] == sign


def is_strong_named_value(match: re.Match[str]) -> bool:
    """Return whether the value of a probable name is not a word, number, path or id."""
    value = value_of(match)
    if "\n" in _separator(match):
        return False
    if value.isdecimal():
        return 4 <= len(value) <= 12 and _full_name(match).lower() in {"pin", "otp"}
    if value.startswith("sha") or value.endswith("(") or _CODE_AFTER.match(value):
        return False
    return not is_type_name(value) and is_strong(value) and is_probable(_full_name(match))


def is_supplied_secret(match: re.Match[str]) -> bool:
    """Return whether ``with password …`` or ``password("…")`` contains a secret."""
    value = value_of(match).strip("`")
    is_word = is_words(value.strip("[](){}<>\\&*|.,;:!?")) or "\\" in value
    if is_word or _READ.search(text_before(match, 40, "name")):
        return False
    if is_password_name(match["name"]) and len(value) >= 6 and is_secret_in_prose(match):
        return has_digits(value) or is_strong_secret(value)
    return is_strong(value) and not is_page_token(_full_name(match))


def is_secret_call_argument(match: re.Match[str]) -> bool:
    sets = _SETTER.search(text_before(match, 24, "name") + match["name"])
    return is_secret_in_prose(match) if sets else is_supplied_secret(match)


def is_second_argument(match: re.Match[str]) -> bool:
    if _LISTED_BEFORE.search(text_before(match, 60, "name")):
        return is_strong(value_of(match))
    if _NEXT_KEY.match(match.string, match.end()):
        return False
    return is_secret_in_prose(match)


def is_secret_cell(match: re.Match[str]) -> bool:
    in_table = _line_before(match).lstrip().startswith(("|", "│", "┃", "║"))
    return (in_table or any(map(str.isspace, _separator(match)))) and is_secret_in_prose(match)


def is_second_column(match: re.Match[str]) -> bool:
    """Return whether a line has a name and a random value only: ``password    q7Rm2xWz``."""
    value = value_of(match)
    is_random = has_digits(value, 2) or case_changes(value) > 4 or not _PLAIN.fullmatch(value)
    return (
        bool(_FIRST_IN_LINE.fullmatch(_line_before(match))) and is_random and is_strong_mix(value)
    )


def is_password_line(match: re.Match[str]) -> bool:
    return is_password_name(match["name"]) and " " not in value_of(match)


def is_phrase_line(match: re.Match[str]) -> bool:
    first, *others = value_of(match).split()
    if len(_line_before(match).split()) > 1 or not is_password_name(match["name"]):
        return False
    if is_harmless(first) or is_code(first) or is_message(value_of(match), is_whole=False):
        return False
    return not all(is_words(word.strip(".,;!?()")) and not word.isdecimal() for word in others)


def is_shell_default(match: re.Match[str]) -> bool:
    before = text_before(match, 64, "name")
    begun = before.rpartition("${")[2].replace("_", "").isalnum() or before.endswith("${")
    return begun and is_secret_argument(match)


def is_opaque_value(match: re.Match[str]) -> bool:
    """Return whether the value after any name looks random and is not a hash or id."""
    value = value_of(match)
    name = _NAME_BEFORE.search(text_before(match, 48))
    if name is None or _NAME_OF_HASH.search(name[1]) or _NOT_SECRET.match(value):
        return False
    return not is_page_token(name[1]) and alternates_often(value) and not is_long_name(value)


def is_doubtful_token(match: re.Match[str]) -> bool:
    """Return whether the value of a doubtful name is random, and not hexadecimal."""
    value, name = value_of(match), _full_name(match)
    if is_hexadecimal(value) or _NOT_SECRET.match(value) or "(" in value:
        return False
    if name.lower() != "key" and not is_probable(name):
        return False
    mixed = not value.isdecimal() and has_digits(value, 3) and entropy(value) > 3
    return mixed or alternates_often(value) or case_changes(value) >= 0.38 * len(value)


def is_assigned_secret(match: re.Match[str]) -> bool:
    """Return whether the value of a secret's name is not code, a word or a placeholder."""
    text, (start, end) = match.string, matched_value(match)
    value, sign, name = text[start:end], _separator(match), _full_name(match)
    is_bare = match["value_bare"] is not None
    if is_bare and is_common_word(value.rstrip(".:")):
        return False
    if is_dummy(value) or is_description(value) or text.startswith("...", end):
        return False
    if is_plain_url(value) or (not is_bare and is_message(value)):
        return False
    if is_bare and (_is_told(match) or _is_argument(match, sign)):
        return False
    if not is_bare and _is_stored_name(name, value):
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
    value, before = match["value_bare"], _line_before(match)
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
    return field is not None and _FIELD_TYPE.search(_line_before(match)) is not None


def _is_working_folder(name: str, value: str) -> bool:
    return name in {"PWD", "OLDPWD"} and value.startswith(("/", "~"))


def is_flag_value(match: re.Match[str]) -> bool:
    if _FLAG_BEFORE.search(text_before(match, 48)) is None or _FONT.fullmatch(value_of(match)):
        return False
    is_told = match["value_bare"] is not None and is_flag_word(value_of(match))
    return not is_told and is_assigned_secret(match)


def _is_quoted_value(match: re.Match[str], value: str, name: str, sign: str) -> bool:
    is_compared_secret = "==" in sign or "!=" in sign
    if is_password_name(name) or (is_compared_secret and "secret" in name.lower()):
        if is_compared_secret:
            return True
        if is_label(value) and _SHOWN_TEXTS.search(text_before(match, 200, "name")):
            return False
    elif is_compared_secret or is_title(value):
        return is_strong_secret(value)
    if _NEXT_KEY.match(match.string, match.end()):
        return False
    opened = _OPENED.search(text_before(match, 40, "name"))  # as in ``input('Password: ', x)``
    in_one_quote = opened and opened[1] == sign[-1:] and sign[0] not in "'\"`\\"
    return not (in_one_quote and _TEXT_CONTINUES.match(value))


def _is_bare_value(match: re.Match[str], value: str, name: str, sign: str) -> bool:
    if value.isdecimal() and len(value) < 4 and sign[:1] in {'"', "'"}:
        return False  # a count: ``"token": 12``
    own_name = match["name"].strip("_").lower()
    if sign == "=" and _ENV.fullmatch(name) and value[0] not in "[{(":
        return not (is_harmless(value) or is_call(value) or value.lower() == own_name)
    first = _SEGMENTS.split(value, maxsplit=1)[0]
    is_whole = len(first) > 2 and first[0] not in ":$%{<" and first[-1] != ":"
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
    value, name = value_of(match), _full_name(match)
    before = _FIELD_BEFORE.search if match["next"] else _LINE_BEFORE.match
    if not before(_line_before(match)) or is_harmless(value) or _NEXT_PAIR.search(value):
        return False
    if value.strip("_").lower() in {match["name"].lower(), name.lower()}:
        return False
    if _is_working_folder(name, value) or not (is_password_name(name) or is_probable(name)):
        return False
    if match["sign"] == "=" and _ENV.fullmatch(name):
        return not is_call(value)
    return is_strong(value) and is_mixed(value)


def is_compared_secret(match: re.Match[str]) -> bool:
    value = value_of(match)
    if is_password_name(match["name"]) and not is_pattern(value):
        return is_secret_argument(match) and " " not in value
    return is_strong_text(value)


def is_secret_in_expression(match: re.Match[str]) -> bool:
    """Return whether an expression that builds a secret contains it, not its name."""
    value, code = value_of(match), match["code"].strip()
    function = re.split(r"\W", code.rstrip("([{").rstrip())[-1]
    builds = code[-1:] in {"(", "[", "{"} and _CONSTRUCTOR.match(function)
    if builds and is_password_name(match["name"]):
        is_text = is_description(value) or is_wordy(value) or is_pattern(value)
        return not (is_harmless(value) or is_text or is_message(value))
    return is_strong_text(value)


def is_value_before_name(match: re.Match[str]) -> bool:
    value = value_of(match)
    if "(" in value or " for " in match[0] or "log" in match[0][len(value) :]:
        return is_strong_mix(value)
    return is_secret_in_prose(match)


def is_in_kubernetes_secret(match: re.Match[str]) -> bool:
    before = text_before(match, 2000).rpartition("\n---")[2]
    after = match.string[match.end() : match.end() + 2000].partition("---")[0]
    return _KUBERNETES_SECRET.search(before + after) is not None and "{{" not in match["value"]
