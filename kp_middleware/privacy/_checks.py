"""Checks of a value where it stands: beside its name, in a call, an assignment, a sentence."""

import re
from functools import wraps

from kp_middleware.privacy._reading import ends_in_name, is_of_password, is_probable, pages
from kp_middleware.privacy._values import (
    TABLE,
    Check,
    alternates_often,
    case_changes,
    describes,
    entropy,
    has_digits,
    is_call,
    is_code,
    is_hexadecimal,
    is_key_of_vendor,
    is_mixed,
    is_of_model,
    is_passphrase,
    is_pattern,
    is_plain,
    is_stand_in,
    is_strong,
    is_strong_mix,
    is_strong_or_phrase,
    is_strong_text,
    is_title,
    is_type_name,
    is_usual,
    is_usual_word,
    is_wordy,
    matched_value,
    pattern,
    value_of,
    words,
)

_NAME_BEFORE = re.compile(
    r"""([A-Za-z][\w.-]{0,40}+)(?:\\{0,7}["'`]|\*{1,2})?\]?\s{0,4}[:=]?\Z""", re.ASCII
)
_NOT_SECRET = re.compile(
    r"sha(?:1|256|384|512)-|/|(?:chatcmpl|call|toolu|msg|run|resp|req|thread)[_-]"
)
_NAME_OF_HASH, _VERSION_BEFORE = pattern("NAME_OF_HASH"), pattern("VERSION_BEFORE")
_DIVIDER = re.compile(r"[^\w-]")
_SETS = re.compile(r"(?i)(?<![A-Za-z])(?:set|with)\w{0,24}\Z")
_ASKED = re.compile(r"(?i)(?:get|fetch|read|load|find|has|delete|the|no|any)[ _]?[\w.-]{0,30}\Z")
_LISTED_BEFORE = re.compile(r"""["']\s{0,4},\s{0,8}["'][\w.-]{0,40}\Z""")
_CODE_AFTER = re.compile(r"[a-z_]{4,}[)\]}]{1,3}[\[.(]")
_ESCAPED = re.compile(r"\\f[A-Z]")
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
_OF_SECRETS = re.compile(r"(?i)pass|pw|cred|secret|token|key|auth|prompt|input|value|default")
_ENV = re.compile(r"[A-Z0-9_]+")
_LINE_BEFORE, _MAKES = pattern("LINE_BEFORE"), pattern("MAKES")
_TELLS, _OTHER = pattern("TELLS"), pattern("OTHER")
_NEXT = re.compile(r"[;&,]\w{2,40}=")
_FIELD_BEFORE = re.compile(r"[\w.]=\S{0,80}[ \t]{1,4}[\w.-]*\Z")
_KIND = re.compile(r"(?:^|\n)[ \t]{0,4}kind:[ \t]{0,4}[\"']?[Ss]ecret\b")
_VENDORS = dict.fromkeys(words(TABLE["words"]["VENDORS"]))
_VENDOR = re.compile("|".join(_VENDORS), re.IGNORECASE)
_ROUTE_BEFORE = re.compile(r"\b(?:GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS|route|endpoint)\s[\"']?\Z")
_FILE_AT_SCALE = re.compile(r"[^@]+@\dx?\.\w+", re.IGNORECASE)


def _before(match: re.Match[str], size: int, group: str | int = 0) -> str:
    start = match.start(group)
    return match.string[max(0, start - size) : start]


def _line_before(match: re.Match[str]) -> str:
    """Return what stands before the name in its line, or in a text that has none near."""
    at = match.start("name")
    return match.string[match.string.rfind("\n", max(0, at - 200), at) + 1 : at]


def _sign(match: re.Match[str]) -> str:
    return match.string[match.end("name") : matched_value(match)[0]]


def _whole(match: re.Match[str]) -> str:
    """Return the identifier around the name, of at most 48 characters more on each side."""
    text, (start, end) = match.string, match.span("name")
    before = _DIVIDER.split(text[max(0, start - 48) : start])[-1]
    return before + text[start:end] + _DIVIDER.split(text[end : end + 48], maxsplit=1)[0]


def named(check: Check) -> Check:
    """Return the check, applied only to names that end in a secret's, and are of no page."""

    @wraps(check)
    def checked(match: re.Match[str]) -> bool:
        start, end = match.span("name")
        first = max(0, start - 2)  # what its lookbehinds read
        is_one = ends_in_name(match.string[first:end], start - first)
        return is_one and not pages(_whole(match)) and check(match)

    return checked


def is_told(match: re.Match[str]) -> bool:
    """Return whether a value in prose, where any word may follow, is no dictionary word."""
    value = value_of(match).rstrip(".,:;!?)\"'")
    if not any(sign.isascii() and not sign.isalpha() for sign in value) and not value.isascii():
        return False  # a word of another language
    if len(value) < 4 or (value.isdecimal() and "pass" not in match[0].lower()):
        return False
    if is_passphrase(value):
        return True
    if _is_quoted(match) and "name" in match.re.groupindex and is_of_password(match["name"]):
        return is_argument(match) and " " not in value
    return is_argument(match) and not (is_usual(value) or is_wordy(value))


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
    if "\n" in _sign(match):
        return False
    if value.isdecimal():
        return 4 <= len(value) <= 12 and _whole(match).lower() in {"pin", "otp"}
    if value.startswith("sha") or value.endswith("(") or _CODE_AFTER.match(value):
        return False
    return not is_type_name(value) and is_strong(value) and is_probable(_whole(match))


def is_typed(match: re.Match[str]) -> bool:
    """Return whether ``with password …`` or ``password("…")`` gives a secret."""
    value = value_of(match).strip("`")
    is_word = is_plain(value.strip("[](){}<>\\&*|.,;:!?")) or "\\" in value
    if is_word or _ASKED.search(_before(match, 40, "name")):
        return False
    if is_of_password(match["name"]) and len(value) >= 6 and is_told(match):
        return has_digits(value) or is_strong_or_phrase(value)
    return is_strong(value) and not pages(_whole(match))


def is_called(match: re.Match[str]) -> bool:
    sets = _SETS.search(_before(match, 24, "name") + match["name"])
    return is_told(match) if sets else is_typed(match)


def is_second(match: re.Match[str]) -> bool:
    if _LISTED_BEFORE.search(_before(match, 60, "name")):
        return is_strong(value_of(match))
    return is_told(match)


def is_cell(match: re.Match[str]) -> bool:
    in_table = _line_before(match).lstrip().startswith("|")
    return (in_table or any(map(str.isspace, _sign(match)))) and is_told(match)


def is_line_of_password(match: re.Match[str]) -> bool:
    return is_of_password(match["name"]) and " " not in value_of(match)


def is_whole_line(match: re.Match[str]) -> bool:
    first, *others = value_of(match).split()
    if len(_line_before(match).split()) > 1 or not is_of_password(match["name"]):
        return False
    if is_usual(first) or is_code(first):
        return False
    return not all(is_plain(word.strip(".,;!?()")) and not word.isdecimal() for word in others)


def is_default(match: re.Match[str]) -> bool:
    before = _before(match, 64, "name")
    begun = before.rpartition("${")[2].replace("_", "").isalnum() or before.endswith("${")
    return begun and is_argument(match)


def is_opaque(match: re.Match[str]) -> bool:
    """Return whether the value after any name looks random and is no hash or id."""
    value = value_of(match)
    named = _NAME_BEFORE.search(_before(match, 48))
    if named is None or _NAME_OF_HASH.search(named[1]) or _NOT_SECRET.match(value):
        return False
    return not pages(named[1]) and alternates_often(value)


def is_token(match: re.Match[str]) -> bool:
    """Return whether the value of a doubtful name is random, and not hexadecimal."""
    value, name = value_of(match), _whole(match)
    if is_hexadecimal(value) or _NOT_SECRET.match(value) or "(" in value:
        return False
    if name.lower() != "key" and not is_probable(name):
        return False
    mixed = not value.isdecimal() and has_digits(value, 3) and entropy(value) > 3
    return mixed or alternates_often(value) or case_changes(value) >= 0.38 * len(value)


def is_given(match: re.Match[str]) -> bool:
    """Return whether the value of a secret's name is no code, word or placeholder."""
    text, (start, end) = match.string, matched_value(match)
    value, sign, name = text[start:end], _sign(match), _whole(match)
    is_bare = match["value_bare"] is not None
    if is_bare and is_usual_word(value.rstrip(".:")):
        return False
    if is_stand_in(value) or describes(value) or text.startswith("...", end):
        return False
    if pages(name) or _is_working_folder(name, value):
        return False
    around = text[max(0, match.start() - 200) : match.end() + 200]
    if name.lower() in {"token", "tokens"} and is_of_model(value, around):
        return False
    is_docstring = match["value_triple"] or match["value_three"]
    if "\n" in sign and (is_docstring or _CONDITION.search(_before(match, 48, "name"))):
        return False
    check = _is_bare_value if is_bare else _is_quoted_value
    return check(match, value, name, sign)


def _is_working_folder(name: str, value: str) -> bool:
    return name in {"PWD", "OLDPWD"} and value.startswith(("/", "~"))


def is_flag(match: re.Match[str]) -> bool:
    if _FLAG_BEFORE.search(_before(match, 48)) is None or _FONT.fullmatch(value_of(match)):
        return False
    return is_given(match)


def _is_quoted_value(match: re.Match[str], value: str, name: str, sign: str) -> bool:
    is_compared = "==" in sign or "!=" in sign
    if is_of_password(name) or (is_compared and "secret" in name.lower()):
        if is_compared:
            return True
    elif is_compared or is_title(value):
        return is_strong_or_phrase(value)
    if _NEXT_KEY.match(match.string, match.end()):
        return False
    opened = _OPENED.search(_before(match, 40, "name"))  # as in ``input('Password: ', x)``
    in_one_quote = opened and opened[1] == sign[-1:] and sign[0] not in "'\"`\\"
    return not (in_one_quote and _GOES_ON.match(value))


def _is_bare_value(match: re.Match[str], value: str, name: str, sign: str) -> bool:
    if value.isdecimal() and len(value) < 4 and sign[:1] in {'"', "'"}:
        return False  # a count: ``"token": 12``
    own = match["name"].strip("_").lower()
    if sign == "=" and _ENV.fullmatch(name) and value[0] not in "[{(":
        return not (is_usual(value) or is_call(value) or value.lower() == own)
    first = _SEGMENTS.split(value, maxsplit=1)[0]
    is_whole = len(first) > 2 and first[0] not in ":$%{<" and first[-1] != ":"
    if any(_is_no_value(one, own, name) for one in (value.rstrip(".:"), first)[: 1 + is_whole]):
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


def is_rest_of_line(match: re.Match[str]) -> bool:
    """Return whether all up to the end of the line, or to a log's next field, is the value."""
    value, name = value_of(match), _whole(match)
    before = _FIELD_BEFORE.search if match["next"] else _LINE_BEFORE.match
    if not before(_line_before(match)) or is_usual(value) or _NEXT.search(value):
        return False
    if value.strip("_").lower() in {match["name"].lower(), name.lower()}:
        return False
    if _is_working_folder(name, value) or not (is_of_password(name) or is_probable(name)):
        return False
    if match["sign"] == "=" and _ENV.fullmatch(name):
        return not is_call(value)
    return is_strong(value) and is_mixed(value)


def is_compared(match: re.Match[str]) -> bool:
    value = value_of(match)
    if is_of_password(match["name"]) and not is_pattern(value):
        return is_argument(match) and " " not in value
    return is_strong_text(value)


def is_built(match: re.Match[str]) -> bool:
    """Return whether an expression that makes a secret holds it, not the name of it."""
    value, code = value_of(match), match["code"].strip()
    made = re.split(r"\W", code.rstrip("([{").rstrip())[-1]
    if code[-1:] in {"(", "[", "{"} and _MAKES.match(made) and is_of_password(match["name"]):
        return not (is_usual(value) or describes(value) or is_wordy(value) or is_pattern(value))
    return is_strong_text(value)


def is_named_after(match: re.Match[str]) -> bool:
    value = value_of(match)
    if "(" in value or " for " in match[0] or "log" in match[0][len(value) :]:
        return is_strong_mix(value)
    return is_told(match)


def is_of_a_secret(match: re.Match[str]) -> bool:
    before = _before(match, 2000).rpartition("\n---")[2]
    after = match.string[match.end() : match.end() + 2000].partition("---")[0]
    return _KIND.search(before + after) is not None and "{{" not in match["value"]


def is_issued_by_vendor(match: re.Match[str]) -> bool:
    name, value = match["name"].strip(), value_of(match)
    known = _VENDOR.match(match["name"])
    if known is None or _OTHER.search(name):
        return False
    vendor, before = known[0], _before(match, 1)  # it begins a word or a part: MY_PLAID, myPlaid
    if before.isalpha() and not (before.islower() and vendor[0].isupper()):
        return False
    if vendor[0].islower() and vendor[-1].isupper():
        return False
    alone = name.lower() in _VENDORS
    told = alone or _TELLS.search(name) is not None
    return is_key_of_vendor(value, alone=alone, told=told)


def is_address(match: re.Match[str]) -> bool:
    """Return whether it is an e-mail address, not ``git@host:path`` or ``icon@2x.png``."""
    following = match.string[match.end() : match.end() + 1]
    cloned = value_of(match).lower().startswith(("git@", "hg@", "svn@")) and following in {":", "/"}
    return not cloned and not _FILE_AT_SCALE.fullmatch(value_of(match))


def is_host(match: re.Match[str]) -> bool:
    """Return whether it is a host's IPv4 address, not a netmask, loopback or version."""
    octets = [int(octet) for octet in match["octets"].split(".")]
    is_one = max(octets) < 256 and octets[0] not in {0, 127, 255}
    return is_one and not _VERSION_BEFORE.search(_before(match, 24))


def is_hardware(match: re.Match[str]) -> bool:
    digits = re.sub(r"[^0-9a-f]", "", value_of(match).lower())
    return len(set(digits)) > 1 and not ("-" in match[0] and digits.isdecimal())


def is_home(match: re.Match[str]) -> bool:
    return not _ROUTE_BEFORE.search(_before(match, 16))
