"""A name that names a secret, and the value beside it, in the notations that agents meet."""

from kp_middleware.privacy._given import is_flag, is_given
from kp_middleware.privacy._names import (
    ANY_NAME,
    DOUBTFUL,
    NAME,
    NAME_STARTS,
    PROBABLE_ALONE,
    PROBABLE_PART,
    PROBABLE_STARTS,
    VENDORS,
)
from kp_middleware.privacy._notation import BARE, CLOSE, IS, QUOTED, RUN, S, loose, quoted
from kp_middleware.privacy._rules import SPACE, Check, Rule
from kp_middleware.privacy._values import (
    is_argument,
    is_braced,
    is_called,
    is_cell,
    is_default,
    is_filled_in,
    is_line_of_password,
    is_named_strong,
    is_of_vendor,
    is_opaque,
    is_second,
    is_token,
    is_told,
    is_typed,
    is_whole_line,
    named,
)


def password(
    pattern: str,
    *,
    starts: tuple[str, ...] = NAME_STARTS,
    needs: tuple[str, ...] = (),
    check: Check | None = None,
) -> Rule:
    """A rule for what stands beside the name of a secret."""
    return Rule("password", "secret", pattern, starts, needs, check)


_SUFFIX = r"(?:[_-]\w[\w-]{0,40}+|(?-i:(?<=[a-z])[A-Z])\w{0,40}+|\d{1,3}+)"
_VERBS = (
    *("is", "was", "are", "to", "will be", "must be", "should be", "changed to", "set to"),
    *("reset to", "ist", "lautet", "est", "es", "é", "è", "jest", "je", "er", "är", "on", "là"),
    "adalah",
)
_IS_PROSE = (*dict.fromkeys(f" {verb.split()[0]}" for verb in _VERBS), "->", "=>")

ASSIGNMENT_RULES: tuple[Rule, ...] = (
    password(rf"{NAME}{IS}(?:{QUOTED}|{BARE})", check=is_given),
    password(  # a line of YAML whose value has spaces
        rf"{ANY_NAME}[ \t]{{0,2}}[:=][ \t]{{1,8}}(?P<value>[^\s\"'`]\S{{0,40}}+"
        r"(?: [^\s=:#\"'`]{1,24}){1,5})[ \t]{0,4}(?=\n|\Z)",
        check=named(is_whole_line),
    ),
    password(  # a cookie header goes whole
        rf"""(?i:cookie){IS}\\{{0,7}}["']?(?P<value>[\w.-]{{1,64}}=[^\n"'\\]{{1,4096}})""",
        starts=("cookie",),
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
    password(  # the name of a vendor
        rf"(?P<name>(?i:{'|'.join(VENDORS)}))[\w.-]{{0,30}}+{IS}(?:{QUOTED}|{BARE})",
        starts=VENDORS,
        check=is_of_vendor,
    ),
    password(rf"(?<![A-Za-z])(?P<name>pass){IS}{loose(4)}", starts=("pass",), check=is_told),
    password(  # any name: only what looks random
        rf"""[=:]>?{S}{{0,4}}\\{{0,7}}["'`]?(?P<value>[\w+/-]{{24,4096}}+={{0,2}})(?![\w.:@])""",
        starts=("=", ":"),
        check=is_opaque,
    ),
    password(  # prose: the password is …
        rf"{ANY_NAME}{CLOSE}{S}{{1,3}}(?:(?:for|of|to|on) (?:[\w-]{{1,16}} ){{0,3}}\S{{1,40}} )?"
        rf"(?:(?i:{'|'.join(_VERBS)}):?|[-=]>)"
        rf"{S}{{1,3}}(?:now |still |set to |simply |just )?{loose(1)}",
        needs=_IS_PROSE,
        check=named(is_told),
    ),
    password(  # prose without a space before the value
        rf"{ANY_NAME}(?:は|是|为|為|는|은){S}{{0,2}}(?P<value>{RUN}{{1,512}}+)",
        needs=("は", "是", "为", "為", "는", "은"),
        check=named(is_told),
    ),
    password(  # prose: with password …
        rf"{ANY_NAME}[ \t\u00a0]{{1,3}}[\"'`(]?(?P<value>(?=\S{{6}})"
        rf"(?![\"'`=:]|--?[a-z]+(?:[\s=]|\Z))"
        rf"{RUN}{{1,512}}+)",
        check=named(is_typed),
    ),
    password(  # prose: … as the password
        rf"""(?<!\w)(?P<value>[^{SPACE}"'`,;()<>]{{6,64}}+)["'`]?"""
        r" (?:as|is) (?:(?:the|your|a|its|my) )?(?i:password|passphrase|token|secret|api key)\b",
        starts=(),
        needs=(
            *(" as pass", " as the ", " as your ", " as a ", " as my ", " as its "),
            *(" is the pass", " is your pass", " is my pass"),
        ),
        check=is_told,
    ),
    password(  # two arguments
        rf"""{ANY_NAME}["']\)?\s{{0,4}},\s{{0,4}}{quoted(least=4)}""",
        needs=(",",),
        check=named(is_second),
    ),
    password(  # what is taken where nothing is set
        rf"""{ANY_NAME}["']?[)\]]{{0,2}}\s{{0,4}}(?:or|\|\||\?\?|\?:|//)\s{{0,4}}{quoted()}""",
        needs=(" or ", "||", "??", "?:", "//"),
        check=named(is_argument),
    ),
    password(  # the same in a shell: ${PASSWORD:-…}
        rf"{ANY_NAME}:?[-=][\"']?(?P<value>(?:[^{SPACE}\"'`$]|\$(?!\{{)){{1,256}})[\"']?\}}",
        needs=("${",),
        check=named(is_default),
    ),
    password(  # setPassword("…"), password("…")
        rf"{ANY_NAME}[({{]\s{{0,4}}{quoted(least=4)}",
        needs=('("', "('", '{"', "{'", "( ", "{ ", "(\n", "{\n"),
        check=named(is_called),
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
