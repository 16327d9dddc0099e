"""How values are written beside names: signs between them, quotes, and where a bare value ends."""

from kp_middleware.privacy._rules import SPACE

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
"""What closes a name: a quote, a bracket, what makes it bold."""

IS = (
    rf"{_CLOSE}{_AGAIN}{S}{{0,8}}+{_TYPE}(?:=>|<-|[:?|+!]{{0,3}}={{1,3}}|:(?!:)|[：＝])"
    rf"(?:\*\*)?{S}{{0,24}}"
    r"(?:!{1,2}[A-Za-z][\w/.:-]{0,40}\s{1,4})?(?:[|>][-+]?\s{1,12})?"  # a tag, a block of YAML
)
"""From a name to its value, in assignments, comparisons, and documents."""

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
"""A part of a value that no quote holds: it ends at white space, or where something else begins."""

BARE = (
    r"""["'`]?(?P<value_bare>(?![bBfFrRuU]{1,2}["']|["'`]|[\[{(](?:[bru]?["']|[`\[{(]"""
    r"""|\\{1,7}["']))"""
    rf"{RUN}{{1,16384}}+)"
)
"""A value without quotes."""


def loose(least: int) -> str:
    """A value in prose, perhaps in quotes, of so many characters or more."""
    return (
        r"""\\{0,7}(?:"(?P<value_double>[^"\n]{4,256}+)"|'(?P<value_single>[^'\n]{4,256}+)'"""
        rf"""|`(?P<value_back>[^`\n]{{4,256}}+)`|["'`(]?(?P<value>"""
        rf"""(?=[^{SPACE}]{{{least}}}){RUN}{{1,4096}}+))"""
    )


def quoted(name: str = "value", least: int = 1, most: int = 512) -> str:
    """A value in one of two kinds of quotes, that may hold the other kind."""
    size = f"{{{least},{most}}}+"
    return rf"""(?:"(?P<{name}_d>[^"\n]{size})"|'(?P<{name}_s>[^'\n]{size})')"""
