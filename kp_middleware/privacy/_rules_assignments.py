"""Rules for values assigned to names: separators, quotes and the end of a bare value."""

import re

from kp_middleware.privacy._checks import (
    is_argument,
    is_braced,
    is_cell,
    is_default,
    is_filled_in,
    is_line_of_password,
    is_named_strong,
    is_no_code,
    is_opaque,
    is_token,
    is_told,
    is_typed,
    is_usual,
    is_whole_line,
    named,
    whole,
)
from kp_middleware.privacy._names import (
    ANY_NAME,
    DOUBTFUL,
    NAME,
    NAME_STARTS,
    PART_OF_NAME,
    PROBABLE_ALONE,
    PROBABLE_PART,
    PROBABLE_STARTS,
    is_of_password,
    is_probable,
    pages,
)
from kp_middleware.privacy._rules import SPACE, Check, Rule, matched_value, value_of
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

S = f"[{SPACE}]"
_CLOSE = r"""(?:\\{0,7}["'`]|\*{1,2})?\]?(?:\[\d{0,4}\]|</\w{1,10}>|\?)?"""
_TYPE = (
    r"(?:(?::\s?(?:str|string|String|bytes|SecretStr|Optional\[\w{1,20}\]|str \| None)\s?(?==))"
    r"|:\s?&?[A-Za-z_][\w.]{0,40}(?:[\[<][\w., |]{1,30}[\]>])?\??(?: \| \w{1,20})?\s{1,2}(?== ))?"
)
_AGAIN = (
    r"(?: \((?i:again|confirm(?:ation)?|repeat|re-?type|verify|new|old|current)\)"
    r"|(?: #?\d{1,2})(?=:))?"
)
CLOSE = _CLOSE
"""The end of a name: a quote, a bracket or bold markup."""

IS = (
    rf"{_CLOSE}{_AGAIN}{S}{{0,8}}+{_TYPE}(?:=>|<-|[:?|+!]{{0,3}}={{1,3}}|:(?!:)|[：＝])"
    rf"(?:\*\*)?{S}{{0,24}}"
    r"(?:(?<=\s)!{1,2}[A-Za-z][\w/.:-]{0,40}\s{1,4})?"  # a tag of YAML
    r"(?:[|>][-+]?\s{1,12})?"  # a block of it
)
"""The separator between a name and its value, in assignments, comparisons and documents."""

_PREFIX = r"(?:[bBfFrRuULN]{1,2}|[@$]{1,2}|r#{1,3})?"
QUOTED = (
    r"(?:(?:SecretStr|SecretBytes|Secret|str|String|quote|quote_plus|bytes)\(|\[\s{0,4})?"
    rf"{_PREFIX}"
    r"(?:\"\"\"(?P<value_triple>(?:(?!\"\"\")[\s\S]){1,2048}+)\"\"\""
    r"|'''(?P<value_three>(?:(?!''')[\s\S]){1,2048}+)'''"
    r"""|"(?P<value_double>(?:[^"\\]|\\.){1,16384}+)\""""
    r"""|'(?P<value_single>(?:[^'\\]|\\.){1,16384}+)'"""
    r"""|`(?P<value_back>[^`\n]{1,16384}+)`"""
    r"""|(?P<quote>\\{1,7}["'])(?P<value_escaped>(?:(?!(?P=quote))[^\n]){1,1024}?)(?P=quote))"""
)
"""A value in quotes of any kind."""

_ENDS = (
    rf"""(?:[,;)\]}}>"'`.:]{{1,6}}(?:[{SPACE}]|\Z)"""  # what closes a sentence, a call, a document
    r"""|[,;]["']?(?:[a-z_]{2}[a-z_.-]{0,40}|[A-Z][a-z]{1,20}(?: ?[A-Z][a-z]{1,20}){0,3}"""
    r"""|[A-Z_]{3,40})["']?(?:=|:["'\s])"""  # the next of its kind
    r"""|(?<![\s:"'(])&[A-Za-z_][\w.-]{0,40}="""
    r"""|["'`][,;)\]}>:+|\\]"""
    rf"""|[)\]}}]{{1,3}}\.[A-Za-z_]{{2,40}}\(|(?:;|&&)[A-Za-z]{{2,20}}[{SPACE}]"""
    r"""|\)\]\(|</[A-Za-z][\w:-]{0,30}>|<(?:br|p|div|span|td|tr|li|code|pre) ?/?>"""
    r"""|\\(?:n|\\{0,7}["']))"""
)
RUN = rf"""(?:[^{SPACE}"'`,;&)\]}}><\\.:]{{1,64}}+|(?!{_ENDS})[^{SPACE}])"""
"""A part of an unquoted value, which ends at white space or at the next element."""

BARE = (
    r"""["'`]?(?P<value_bare>(?![bBfFrRuU]{1,2}["']|["'`]|[\[{(](?:[bru]?["']|[`\[{(]"""
    r"""|\\{1,7}["']))"""
    rf"{RUN}{{1,16384}}+)"
)
"""A value without quotes."""


def loose(least: int) -> str:
    """Return a pattern for a value in prose, quoted or not, of at least this length."""
    return (
        r"""\\{0,7}(?:"(?P<value_double>[^"\n]{4,256}+)"|'(?P<value_single>[^'\n]{4,256}+)'"""
        rf"""|`(?P<value_back>[^`\n]{{4,256}}+)`|["'`(]?(?P<value>"""
        rf"""(?=[^{SPACE}]{{{least}}}){RUN}{{1,4096}}+))"""
    )


def quoted(name: str = "value", least: int = 1, most: int = 512) -> str:
    """Return a pattern for a value in single or double quotes, which may contain the other."""
    size = f"{{{least},{most}}}+"
    return rf"""(?:"(?P<{name}_d>[^"\n]{size})"|'(?P<{name}_s>[^'\n]{size})')"""


def password(
    pattern: str,
    *,
    starts: tuple[str, ...] = NAME_STARTS,
    needs: tuple[str, ...] = (),
    check: Check | None = None,
) -> Rule:
    """Return a rule for a value next to a secret's name."""
    return Rule("password", "secret", pattern, starts, needs, check)


_SUFFIX = r"(?:[_-]\w[\w-]{0,40}+|(?-i:(?<=[a-z])[A-Z])\w{0,40}+|\d{1,3}+)"
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
    """Return whether an unquoted value is neither a word nor code."""
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
    """Return whether all after the name is the value: ``DB_PASSWORD=a`;{}b``, ``a=b key=c``{ d=e``.

    All up to the end of the line, or to the next field of a log.
    """
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


ASSIGNMENT_RULES: tuple[Rule, ...] = (
    password(rf"{NAME}{IS}(?:{QUOTED}|{BARE})", check=is_given),
    password(  # a whole line: DB_PASSWORD=…, or a field of a log
        rf"(?<![^\w\s.-]){ANY_NAME}(?P<sign>=|:[ \t]{{1,8}})"
        rf"(?P<value>[^{SPACE}\"'][^{SPACE}]{{3,200}}+(?<![,;]))"
        r"[ \t\r]{0,4}+(?=\n|\Z|(?P<next>[A-Za-z][\w.-]{0,40}=))",
        needs=("=", ":"),
        check=named(is_rest_of_line),
    ),
    password(  # password = <<EOF
        rf"{ANY_NAME}{S}{{0,4}}[:=]{S}{{0,4}}<<[-~]?[\"'`]?(\w{{1,16}})[\"'`]?\n{S}{{0,16}}"
        r"(?P<value>(?!\2\b)[^\n]{4,512}+)",
        needs=("<<",),
        check=named(is_argument),
    ),
    password(  # a line of YAML whose value has spaces
        rf"{ANY_NAME}[ \t]{{0,2}}[:=][ \t]{{1,8}}(?P<value>(?!\[[\"'\[])[^\s\"'`]\S{{0,40}}+"
        r"(?: [^\s=:#\"'`]{1,24}){1,5})[ \t]{0,4}(?=\n|\Z)",
        needs=(": ", "= ", ":\t", "=\t"),
        check=named(is_whole_line),
    ),
    password(  # a cookie header goes whole
        rf"""(?i:cookie){IS}\\{{0,7}}["']?(?P<value>[\w.-]{{1,64}}=[^\n"'\\]{{1,4096}})""",
        starts=("cookie",),
        check=is_no_code,
    ),
    password(  # a passphrase of words
        rf"(?i:passphrase|mnemonic|phrase){IS}[\"'`]?"
        r"(?P<value>[a-z]{2,12}(?: [a-z]{2,12}){2,23})",
        starts=("passphrase", "mnemonic", "phrase"),
    ),
    password(  # on a command line
        rf"{NAME}{S}{{1,4}}(?!-[A-Za-z]{{1,12}}(?:[\s=]|\Z)|--[a-z])(?:{QUOTED}|{BARE})",
        needs=("-",),
        check=is_flag,
    ),
    password(  # a name that may mean something else: only what looks like a token
        rf"(?<![A-Za-z/])(?P<name>(?i:{'|'.join(DOUBTFUL)})){IS}{loose(16)}",  # not …/key=a/…
        starts=DOUBTFUL,
        check=is_token,
    ),
    password(  # the same as a part of a name: only what is no word
        rf"(?P<name>(?i:{PROBABLE_ALONE}{_SUFFIX}?+|{PROBABLE_PART}{_SUFFIX})){IS}(?:{QUOTED}"
        rf"|{BARE})",
        starts=PROBABLE_STARTS,
        check=is_named_strong,
    ),
    password(rf"(?<![A-Za-z])(?P<name>pass){IS}{loose(4)}", starts=("pass",), check=is_told),
    password(  # any name: only what looks random
        rf"""[=:]>?{S}{{0,4}}\\{{0,7}}["'`]?(?P<value>[\w+/-]{{24,4096}}+={{0,2}})(?![\w.:@])""",
        starts=("=", ":"),
        needs=("LONG",),
        check=is_opaque,
    ),
    password(  # with password …
        rf"{ANY_NAME}[ \t\u00a0]{{1,3}}[\"'`(]?(?P<value>(?=\S{{6}})"
        rf"(?![\"'`=:]|--?[a-z]+(?:[\s=]|\Z))"
        rf"{RUN}{{1,512}}+)",
        needs=(" ", "\t", "\u00a0"),
        check=named(is_typed),
    ),
    password(  # the same in a shell: ${PASSWORD:-…}
        rf"{PART_OF_NAME}:?[-=][\"']?(?P<value>(?:[^{SPACE}\"'`$]|\$(?!\{{)){{1,256}})[\"']?\}}",
        needs=("${",),
        check=named(is_default),
    ),
    password(  # #define API_KEY "…"
        rf"(?P<name>(?i:{PROBABLE_ALONE}|{PROBABLE_PART}){_SUFFIX}?+)[ \t]{{1,40}}"
        rf"{quoted(least=4)}",
        starts=PROBABLE_STARTS,
        needs=("#define",),
        check=is_named_strong,
    ),
    password(  # a line of Gradle
        rf"{ANY_NAME}[ \t]{{1,4}}{quoted(least=4)}[ \t]{{0,4}}(?=\n|\Z)",
        needs=("username ", "user ", "storepass"),
        check=named(is_line_of_password),
    ),
    password(  # a connection string
        r"(?i:user ?(?:id|name)?|uid)\s?=[^;\n\"']{1,80};[ \"'&+]{0,8}(?i:password|pwd)\s?=\s?"
        r"(?P<value>[^;\n\"']{1,128})(?=[;\"'\n]|\Z)",
        starts=("user", "uid"),
        check=is_filled_in,
    ),
    password(  # braces of ODBC
        rf"{ANY_NAME}\s{{0,2}}=\s{{0,2}}\{{(?P<value>[^{{}}\n]{{1,256}})\}}(?=[;\"'\s]|\Z)",
        needs=("={", "= {"),
        check=named(is_braced),
    ),
    password(  # a row of a table
        rf"{ANY_NAME}[\s*]{{0,8}}\|\s{{0,8}}{loose(1)}", needs=("|",), check=named(is_cell)
    ),
)
