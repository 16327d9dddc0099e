"""Checks of a match in its context: its name, a call, an element, a sentence."""

import re
from collections.abc import Iterator, Mapping
from functools import wraps

from kp_middleware.privacy._decoding import (
    ends_in_name,
    is_page_token,
    is_password_name,
    is_probable,
    names_a_secret,
)
from kp_middleware.privacy._values import (
    CHECKS,
    TABLE,
    Check,
    alternates_often,
    case_changes,
    decoded_text,
    entropy,
    has_digits,
    is_code,
    is_description,
    is_flag_token,
    is_harmless,
    is_hexadecimal,
    is_long_name,
    is_made_of_words,
    is_message,
    is_passphrase,
    is_pattern,
    is_strong,
    is_strong_mix,
    is_strong_secret,
    is_strong_text,
    is_type_name,
    is_user_and_password,
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
    r"sha(?:1|256|384|512)-|/|(?:chatcmpl|call|toolu|msg|run|resp|req|thread)[_-]|_(?:Z|D\d|R[A-Z])"
)
_NAME_OF_HASH = pattern("NAME_OF_HASH")
_DIVIDER = re.compile(r"[^\w-]")
_LINK_BEFORE = re.compile(r"""(?:href|src|for|action)=\\?["'][^"'<>\n]*\Z""")
_TAKES_GROUP = re.compile(
    r"\b(?:docker|podman|nerdctl|kubectl|git|ps|chroot|setpriv|install|systemd-run)\b[^\n|;&]*\Z"
)
_FILE = re.compile(r"(?:[\w.=-]+/)+[\w.=-]*\.[a-z][a-z0-9]{1,6}")
_STYLE = re.compile(r"[a-z]{4,20}(?:-[a-z]+)*(?:\([^)]*\))?(?:::?[a-z-]+)*\{")
_SCRIPT = re.compile(r"\bfunction\b|=>|&&|\|\||\breturn\b|[!=]==?|[a-z]\(\)")
_PUBLIC = re.compile(r"(?i)\bpublic \Z")
_KEY_ID = re.compile(r"(?:0x)?(?:[0-9A-F]{8}){1,2}|[0-9A-F]{40}")  # of GnuPG
_VERSION = re.compile(
    r"[\^~=<>v]{0,2}\d{1,3}(?:\.\d{1,3}){1,2}(?:[-+.]?[a-z]{1,5}\.?\d{0,4})?|#(?:[0-9a-fA-F]{3}){1,2}"
)
_MEMBER = re.compile(  # of an object, or a type
    r"[$A-Za-z_]+(?:\??\.#?[A-Za-z_]+){1,8}[),;]*|(?:[A-Z][a-z\d]+)+(?:Key|Token|Secret|Credential)(?:Types?|s)?"
)
_BASE_32 = re.compile(r"(?=[A-Z]*[2-7])(?:[A-Z2-7]{4}){4,16}")
_WEAK = re.compile(r"[A-Za-z][A-Za-z@$]{2,15}(?:[-_@#.][A-Z][a-z]{2,12})?\d{1,4}[!@#$%*?]?")
_NAME_FIELD_BEFORE = re.compile(
    rf"""(?i:["'](?:[a-z_]{{0,12}}(?:{TABLE["names"]["name_fields"]}))["']\s?:\s?["'][^"\n]{{0,80}})\Z"""
)
_SETTER = re.compile(r"(?i)(?<![A-Za-z])(?:set|with)\w{0,24}\Z")
_READ = re.compile(r"(?i)(?:get|fetch|read|load|find|has|delete|the|no|any)[ _]?[\w.-]{0,30}\Z")
_LISTED_BEFORE = re.compile(r"""["']\s{0,4},\s{0,8}["'][\w.-]{0,40}\Z""")
_CODE_AFTER = re.compile(r"[a-z_]{4,}[)\]}]{1,3}[\[.(]")
_ESCAPED = re.compile(r"\\f[A-Z]")
NEXT_KEY = re.compile(r"\s{0,4}:(?!/)")
_CONSTRUCTOR = pattern("CONSTRUCTOR")
PRINTS_SECRET = pattern("PRINTS_SECRET")
_PROMPT, _ASKS, _LONE, _ID = map(pattern, ("PROMPT", "ASKS", "LONE_REPLY", "PRINTED_ID"))
_ASKED = re.compile(r"(?<![\w-])[A-Za-z][\w-]*+(?!=[\w\"'$])")
_HASHES = re.compile(r"\b(?:git|docker|\w*sum|hash\w*|digest)\b")
_FIRST_IN_LINE = re.compile(r"(?:[\w.-]{1,64}: )?\s*(?:[A-Za-z][\w.-]*)?")
_PLAIN = re.compile(r"[\w.-]+")
_KUBERNETES_SECRET = re.compile(r"(?:^|\n)[ \t]{0,4}kind:[ \t]{0,4}[\"']?[Ss]ecret\b")


def text_before(match: re.Match[str], size: int, group: str | int = 0) -> str:
    start = match.start(group)
    return match.string[max(0, start - size) : start]


def line_before(match: re.Match[str]) -> str:
    """Return the text before the name in its line, at most 200 characters."""
    at = match.start("name")
    return match.string[match.string.rfind("\n", max(0, at - 200), at) + 1 : at]


def separator_of(match: re.Match[str]) -> str:
    return match.string[match.end("name") : matched_value(match)[0]]


def full_name(match: re.Match[str]) -> str:
    """Return the identifier around the name, of at most 48 characters more on each side."""
    text, (start, end) = match.string, match.span("name")
    before = _DIVIDER.split(text[max(0, start - 48) : start])[-1]
    if _PUBLIC.search(text_before(match, 12, "name")):
        before = "public_"
    return before + text[start:end] + _DIVIDER.split(text[end : end + 48], maxsplit=1)[0]


def after_name(check: Check) -> Check:
    """Return the check, applied only to names that end in a secret's and are not page tokens."""

    @wraps(check)
    def checked(match: re.Match[str]) -> bool:
        start, end = match.span("name")
        first = max(0, start - 2)  # its lookbehinds read two characters
        is_secret_name = ends_in_name(match.string[first:end], start - first)
        return is_secret_name and not is_page_token(full_name(match)) and check(match)

    return checked


def is_plain(value: str, name: str, bare: str) -> bool:
    """Return whether a value is no token: a version, a color, a word or the id of a key.

    If it is ``bare``, that is the sign before it, it can be a number or code, too.
    """
    if (
        (len(value) == 1 and not bare)
        or _VERSION.fullmatch(value)
        or ("signing" in name.lower() and _KEY_ID.fullmatch(value))
    ):
        return True
    if not bare:
        return False
    is_setting = bare == "=" and not name.islower()
    if (value.isdecimal() and len(value) < 6) or (not is_setting and _MEMBER.fullmatch(value)):
        return True
    if name == "--secret":
        return is_words(value)  # its name
    is_token = name.lower().endswith(("token", "cookie", "cookies"))
    is_word = value.isalpha() and (value.islower() or value.istitle())
    return is_token and is_word and 2 < len(value) < 20


def is_secret_in_prose(match: re.Match[str]) -> bool:
    """Return whether a value in prose, where any word may follow, is not a dictionary word."""
    value = value_of(match).rstrip(".,:;!?)\"'*_")
    if value.startswith("--") and value.islower():
        return False  # another flag
    if "name" in match.re.groupindex:
        name = match["name"]
        if not is_password_name(name) and is_plain(value, name, " is "):
            return False
    if not any(sign.isascii() and not sign.isalpha() for sign in value) and not value.isascii():
        return False  # a word of another language
    if len(value) < 4 or (value.isdecimal() and "pass" not in match[0].lower()):
        return False
    if is_passphrase(value):
        return True
    if is_quoted(match) and "name" in match.re.groupindex and is_password_name(match["name"]):
        return is_secret_argument(match) and " " not in value
    return is_secret_argument(match) and not (is_harmless(value) or is_wordy(value))


def is_secret_in_element(match: re.Match[str]) -> bool:
    return not _LINK_BEFORE.search(text_before(match, 120, "name")) and is_secret_in_prose(match)


def is_login_flag(match: re.Match[str]) -> bool:
    """Return whether ``-u user:password`` is not a template, nor a user and a group or a branch."""
    value = value_of(match)
    if _TAKES_GROUP.search(text_before(match, 200)):
        return False
    return is_user_and_password(value) if ":" in value else CHECKS["is_no_template"](value)


def is_told_password(match: re.Match[str]) -> bool:
    """Return whether a value in prose mixes letters and digits, after a password weakly."""
    value, is_far = value_of(match), "far" in match.re.groupindex and match["far"]
    before = match[0][: -len(value)]
    is_after_password = is_password_name(before) or "cred" in before.lower()
    if is_far:
        return is_after_password and is_strong_mix(value) and not is_hexadecimal(value)
    return is_strong_mix(value) or (is_after_password and _WEAK.fullmatch(value) is not None)


def is_key_in_prose(match: re.Match[str]) -> bool:
    """Return whether a random token, no hash, is a key, unless it is a public or primary key."""
    words = text_before(match, 24, "name").split()[-1:]
    value = value_of(match)
    named = "_".join([*words, "key"])
    is_token = is_flag_token(value) or _BASE_32.fullmatch(value) is not None
    is_long_hex = len(value) >= 32 and is_hexadecimal(value)
    is_token |= is_long_hex and names_a_secret(named) and not is_plain(value, named, "")
    return is_token and is_probable(named)


def is_secret_of_client(match: re.Match[str]) -> bool:
    return any(
        alternates_often(one) and not (is_long_name(one) or is_made_of_words(one))
        for one in re.split("[\"']", value_of(match))
    )


def is_secret_beside_name(match: re.Match[str]) -> bool:
    is_named = _NAME_FIELD_BEFORE.search(text_before(match, 120, "name")) is not None
    return is_named and is_secret_argument(match)


def is_secret_argument(match: re.Match[str]) -> bool:
    """Return whether an argument in a secret's position is not a placeholder or usual word."""
    value = value_of(match)
    if is_harmless(value) or _ESCAPED.search(value):
        return False
    return is_quoted(match) or not is_code(value)


def is_quoted(match: re.Match[str]) -> bool:
    start, end = matched_value(match)
    sign = match.string[start - 1 : start]
    return sign in {'"', "'", "`"} and match.string[end : end + 1] == sign


def is_strong_named_value(match: re.Match[str]) -> bool:
    """Return whether the value of a probable name is not a word, number, path or id."""
    value = value_of(match)
    if "\n" in separator_of(match):
        return False
    if value.isdecimal():
        return 4 <= len(value) <= 12 and full_name(match).lower() in {"pin", "otp"}
    if value.startswith("sha") or value.endswith("(") or _CODE_AFTER.match(value):
        return False
    if _STYLE.match(value) or (len(value) > 40 and _SCRIPT.search(value)):
        return False  # minified: ``.key:before{color``, ``key:a?b:c``
    if match[0].startswith("PASS:") and "/" in value:
        return False  # the result of a test
    name = full_name(match)
    if is_type_name(value) or is_plain(value, name, "") or (is_quoted(match) and is_pattern(value)):
        return False
    return is_strong(value) and is_probable(name)


def is_supplied_secret(match: re.Match[str]) -> bool:
    """Return whether ``with password …`` or ``password("…")`` contains a secret."""
    value = value_of(match).strip("`")
    is_word = is_words(value.strip("[](){}<>\\&*|.,;:!?")) or "\\" in value
    if is_word or _READ.search(text_before(match, 40, "name")):
        return False
    if not is_password_name(match["name"]) and is_plain(value, match["name"], ""):
        return False
    if is_password_name(match["name"]) and len(value) >= 6 and is_secret_in_prose(match):
        return has_digits(value) or is_strong_secret(value)
    return is_strong(value) and not is_page_token(full_name(match))


def is_secret_call_argument(match: re.Match[str]) -> bool:
    sets = _SETTER.search(text_before(match, 24, "name") + match["name"])
    return is_secret_in_prose(match) if sets else is_supplied_secret(match)


def is_second_argument(match: re.Match[str]) -> bool:
    if _LISTED_BEFORE.search(text_before(match, 60, "name")):
        return is_strong(value_of(match))
    if NEXT_KEY.match(match.string, match.end()) or is_description(value_of(match)):
        return False
    return is_secret_in_prose(match)


def is_secret_cell(match: re.Match[str]) -> bool:
    in_table = line_before(match).lstrip().startswith(("|", "│", "┃", "║"))
    return (in_table or any(map(str.isspace, separator_of(match)))) and is_secret_in_prose(match)


def is_printed_secret(match: re.Match[str]) -> bool:
    """Return whether a line is all that the command in the line before printed."""
    command = text_before(match, 100).rpartition("\n")[2] + match[0].partition("\n")[0]
    value = value_of(match)
    return PRINTS_SECRET.search(command) is not None and (
        is_strong_secret(value) or not (is_harmless(value) or is_words(value.strip(".:")))
    )


def requested_secret(request: str, reply: object) -> str:
    """Return the reply's only word if it may be the secret that the request names, else ``""``."""
    lone = _LONE.fullmatch(reply) if isinstance(reply, str) and len(reply) < 400 else None
    if lone is None or _ID.match(value := lone["value"]):
        return ""
    if is_hexadecimal(value) and _HASHES.search(request):
        return ""
    is_weak = _WEAK.fullmatch(value) is not None and _ASKS.search(request) is not None
    is_named = (is_weak or is_strong_mix(value)) and (
        PRINTS_SECRET.search(request) is not None or _names_a_secret(request)
    )
    return value if is_named else ""


def secrets_given(query: str, parameters: object) -> Iterator[str]:
    """Yield random parameters of a query that names a secret: ``UPDATE … SET password = $1``."""
    given = [*parameters.values()] if isinstance(parameters, Mapping) else parameters
    if isinstance(given, list | tuple) and _names_a_secret(query):
        yield from (one for one in given if isinstance(one, str) and is_strong_mix(one))


def _names_a_secret(request: str) -> bool:
    return any(names_a_secret(request[: word.end()]) for word in _ASKED.finditer(request))


def answered_secret(question: object, answer: object) -> str:
    """Return the secret that a message asks for and the next one answers with, else ``""``."""
    asked = question[-200:] if isinstance(question, str) else ""
    secret = requested_secret(asked, answer)
    return secret if secret and _ASKS.search(asked) else ""


def is_shown_secret(match: re.Match[str]) -> bool:
    """Return whether a line is all that a shell or interpreter shows of a secret."""
    value, rest = value_of(match), match["rest"]
    if match["value_bare"] is None:
        return not rest.strip(" \t\"'])") and is_strong_secret(value)
    line = line_before(match)
    return _PROMPT.match(line) is not None and bool(
        requested_secret(line + match["name"] + rest, value)
    )


def is_second_column(match: re.Match[str]) -> bool:
    """Return whether a line has a name and a random value only: ``password    q7Rm2xWz``."""
    value = value_of(match)
    is_random = has_digits(value, 2) or case_changes(value) > 4 or not _PLAIN.fullmatch(value)
    return bool(_FIRST_IN_LINE.fullmatch(line_before(match))) and is_random and is_strong_mix(value)


def is_password_line(match: re.Match[str]) -> bool:
    return is_password_name(match["name"]) and " " not in value_of(match)


def is_phrase_line(match: re.Match[str]) -> bool:
    first, *others = value_of(match).split()
    if len(line_before(match).split()) > 1 or not is_password_name(match["name"]):
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
    before = text_before(match, 48)
    name = _NAME_BEFORE.search(before)
    if name is None or _PUBLIC.search(before[: name.start(1)]):
        return False
    if _NAME_OF_HASH.search(name[1]) or _NOT_SECRET.match(value):
        return False
    if is_page_token(name[1]) or not alternates_often(value) or is_made_of_words(value):
        return False
    content = decoded_text(value)  # base64 of lines or words is searched by itself
    return not (is_long_name(value) or " " in content or "\n" in content)


def is_doubtful_token(match: re.Match[str]) -> bool:
    """Return whether the value of a doubtful name is random, and not hexadecimal."""
    value, name = value_of(match), full_name(match)
    if is_hexadecimal(value) or _NOT_SECRET.match(value) or "(" in value:
        return False
    if is_made_of_words(value) or _FILE.fullmatch(value):
        return False
    if name.lower() != "key" and not is_probable(name):
        return False
    mixed = not value.isdecimal() and has_digits(value, 3) and entropy(value) > 3
    return mixed or alternates_often(value) or case_changes(value) >= 0.38 * len(value)


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
