"""A name that names a secret, and the value beside it, in the notations that agents meet."""

import re
from functools import cache

from kp_middleware.privacy._rules import SPACE, Check, Rule, in_any_case, spelled
from kp_middleware.privacy._signs import PLACEHOLDER, seen
from kp_middleware.privacy._values import (
    is_flag,
    is_given,
    is_no_code,
    is_opaque,
    is_token,
    is_told,
)

_OWNERS = (
    *(
        "api",
        "app",
        "application",
        "access",
        "secret",
        "private",
        "signing",
        "signature",
        "encryption",
    ),
    *(
        "decryption",
        "master",
        "account",
        "auth",
        "service",
        "ssh",
        "deploy",
        "shared",
        "storage",
        "license",
    ),
    *("subscription", "hmac", "aes", "host", "root", "admin", "client"),
)
_WORDS = (
    *("pwd", "secrets?", "credentials?", "token", "jwt", "connection[_-]?string"),
    r"pass(?:[_-]?word|wd|phrase|code)s?",
    r"(?<=[A-Za-z0-9][_-])pass|(?-i:(?<=[a-z])Pass)|requirepass|(?<![A-Za-z])(?:bind_?)?pw|psk",
    r"x-(?:amz|goog)-signature|mnemonic|(?:seed|recovery)[_ -]?phrase",
    r"(?:access|api|auth|refresh|bearer|session)[_-]?tokens?",
    rf"(?:{'|'.join(_OWNERS)})(?:[_-]?access)?[_ -]?keys?",
    r"(?:proxy-?)?authorization",
    r"(?:set-?)?cookies?",
    r"(?<![A-Za-z0-9])_auth",
    *("passwort", "kennwort", "contrase(?:ñ|n)a", "senha", "mot[_ -]de[_ -]passe", "wachtwoord"),
    *(
        "has(?:ł|l)o",
        "l(?:ö|o)senord",
        "parola",
        "пароль",
        "パスワード",
        "密碼",
        "密码",
        "口令",
        "비밀번호",
    ),
)
_NAME = (
    rf"(?P<name>(?i:(?:{in_any_case('|'.join(spelled(_WORDS)))})(?:[_-]?(?:access[_-]?key|key|value|val"
    r"|hash|digest|salt|plain|plaintext|text|confirm(?:ation)?|repeat|again|new|old|b64|base64|encrypted"
    r"|data|string|base))?\d{0,3}(?:[_-](?:prod(?:uction)?|dev(?:elopment)?|staging|live|sandbox|pem"
    r"|primary|secondary))?))"
)
_NAME_STARTS = spelled(
    (
        *("pass", "pwd", "secret", "credential", "token", "jwt", "connection", "refresh", "bearer"),
        *("requirepass", "bind", "pw", "psk", "x-amz-", "x-goog-", "mnemonic", "seed", "recovery"),
        *("session", "proxy", "authorization", "set-", "setcookie", "cookie", "_auth", *_OWNERS),
        *(
            "kennwort",
            "contrase",
            "senha",
            "mot",
            "wachtwoord",
            "has",
            "lösenord",
            "losenord",
            "parola",
        ),
        *("пароль", "パスワード", "密碼", "密码", "口令", "비밀번호"),
    )
)
_DOUBTFUL = (
    *(
        "key",
        "auth",
        "sig",
        "sign",
        "signature",
        "sid",
        "session",
        "session_id",
        "sessionid",
        "sess",
    ),
    *("code", "otp", "pin", "csrf", "nonce", "cred", "creds"),
)

_S = f"[{SPACE}]"
_CLOSE = r"""(?:\\{0,7}["'`]|\*{1,2})?\]?"""
_TYPE = (
    r"""(?::\s?(?:str|string|String|bytes|SecretStr|Optional\[\w{1,20}\]|str \| None)\s?(?==))?"""
)
_AGAIN = r"(?: \((?i:again|confirm(?:ation)?|repeat|re-?type|verify|new|old|current)\))?"
_IS = (
    rf"{_CLOSE}{_AGAIN}{_S}{{0,8}}{_TYPE}(?:=>|:=|={{1,3}}|[:：＝])(?:\*\*)?{_S}{{0,8}}"
    r"(?:[|>][-+]?\s{1,12})?"  # a YAML block
)
_QUOTED = (
    r"(?:(?:SecretStr|SecretBytes|Secret|str|String|quote|quote_plus|bytes)\(|\[\s{0,4})?"
    r"""[bBfFrRuU]{0,2}(?:"(?P<value_double>(?:[^"\\]|\\.){1,16384}+)\""""
    r"""|'(?P<value_single>(?:[^'\\]|\\.){1,16384}+)'"""
    r"""|`(?P<value_back>[^`\n]{1,16384}+)`"""
    r"""|(?P<quote>\\{1,7}["'])(?P<value_escaped>[^\n"']{1,1024}?)(?P=quote))"""
)
_BARE = (
    r"""["'`]?(?P<value_bare>(?![\[{]|[bBfFrRuU]{1,2}["'])"""
    rf"""(?:[^{SPACE}"'`,;}}\])<>\\&]|&(?![\w.-]{{1,40}}=)|\\(?!n|\\{{0,7}}["'])){{1,16384}}+)"""
)


def _loose(least: int) -> str:
    return rf"""\\{{0,7}}["'`(]?(?P<value>[^{SPACE}"'`,;|<>\\]{{{least},4096}}+)"""


def _password(
    pattern: str,
    *,
    starts: tuple[str, ...] = _NAME_STARTS,
    needs: tuple[str, ...] = (),
    check: Check | None = None,
) -> Rule:
    return Rule("password", "secret", pattern, starts, needs, check)


ASSIGNMENT_RULES: tuple[Rule, ...] = (
    _password(rf"{_NAME}{_IS}(?:{_QUOTED}|{_BARE})", check=is_given),
    _password(  # a cookie header goes whole
        rf"""(?i:cookie){_IS}\\{{0,7}}["']?(?P<value>[\w.-]{{1,64}}=[^\n"'\\]{{1,4096}})""",
        starts=("cookie",),
    ),
    _password(  # a passphrase of words
        rf"(?i:passphrase|mnemonic|phrase){_IS}[\"'`]?"
        r"(?P<value>[a-z]{2,12}(?: [a-z]{2,12}){2,23})",
        starts=("passphrase", "mnemonic", "phrase"),
    ),
    _password(  # on a command line
        rf"{_NAME}{_S}{{1,4}}(?!-)(?:{_QUOTED}|{_BARE})", needs=("-",), check=is_flag
    ),
    _password(  # a name that may mean something else: only what looks like a token
        rf"(?<![A-Za-z/])(?P<name>(?i:{'|'.join(_DOUBTFUL)})){_IS}{_loose(16)}",  # not …/key=a/…
        starts=_DOUBTFUL,
        check=is_token,
    ),
    _password(rf"(?<![A-Za-z])(?P<name>pass){_IS}{_loose(4)}", starts=("pass",), check=is_told),
    _password(  # any name: only what looks random
        rf"""[=:]{_S}{{0,4}}\\{{0,7}}["']?(?P<value>[\w+/-]{{24,4096}}+={{0,2}})(?![\w.:@])""",
        starts=("=", ":"),
        check=is_opaque,
    ),
    _password(  # prose: the password is …
        rf"{_NAME}{_CLOSE}{_S}{{1,3}}"
        r"(?:(?i:is|was|are|to|will be|(?:changed|set|reset) to|ist|est|es):?|[-=]>)"
        rf"{_S}{{1,3}}(?:now |still |set to |simply |just )?{_loose(1)}",
        needs=(" is", " was", " are", " to", " will", " ist", " est", " es", "->", "=>"),
        check=is_told,
    ),
    _password(  # prose: with password …
        r"(?<![A-Za-z])(?i:password|passwd|passphrase|pwd|passcode|token|secret|api key)"
        rf"""{_S}{{1,3}}["'`(]?(?P<value>(?=\S{{0,64}}\d)(?=\S{{0,64}}[A-Za-z])"""
        r"[\w!#$%&*+./?@^~-]{8,512}+)",
        starts=("pass", "pwd", "token", "secret", "api key"),
        check=is_told,
    ),
    _password(  # prose: … as the password
        rf"""(?<!\w)(?P<value>[^{SPACE}"'`,;()<>]{{6,64}}+)["'`]?"""
        r" as (?:(?:the|your|a|its|my) )?(?i:password|passphrase|token|secret|api key)\b",
        starts=(),
        needs=(" as pass", " as the ", " as your ", " as a ", " as my ", " as its "),
        check=is_told,
    ),
    _password(  # two arguments
        rf"""{_NAME}["']\s{{0,4}},\s{{0,4}}["'](?P<value>[^"'\n]{{4,512}}+)["']""",
        needs=(",",),
        check=is_told,
    ),
    _password(  # setPassword("…")
        rf"""(?<![A-Za-z])(?i:set|with)\w{{0,24}}?{_NAME}\(\s{{0,4}}["'](?P<value>[^"'\n]{{4,512}}+)["']""",
        starts=("set", "with"),
        needs=("(",),
        check=is_told,
    ),
    _password(  # a pair of user and password
        r"""(?<!\w)auth\s{0,2}=\s{0,2}(?:\w{1,40}\.?){0,2}\(\s{0,4}["'][^"'\n]{0,64}["'],"""
        r"""\s{0,4}["'](?P<value>[^"'\n]{1,256})["']""",
        starts=("auth",),
    ),
    _password(  # SQL
        rf"(?i:identified{_S}{{1,4}}by|(?:with|encrypted){_S}{{1,4}}password){_S}{{1,4}}"
        r"""["'](?P<value>[^"'\n]{1,256})["']""",
        starts=("identified", "with", "encrypted"),
    ),
    _password(  # Redis
        rf"(?i:requirepass|masterauth){_S}{{1,4}}{_loose(1)}", starts=("requirepass", "masterauth")
    ),
    _password(  # an element of XML
        rf"{_NAME}(?: [^<>]{{0,80}})?>"
        r"(?:(?P<value>[^<>\n]{1,512}+)|<!\[CDATA\[(?P<value_data>[^<>\]\n]{1,512}+)\]\]>)</",
        needs=("</",),
        check=is_told,
    ),
    _password(  # attributes of XML
        rf"""{_NAME}["']\s{{1,4}}(?:[a-z-]{{1,16}}=["'][^"'\n<>]{{0,40}}["']\s{{1,4}}){{0,3}}"""
        r"""value=["'](?P<value>[^"'\n]{1,512}+)["']""",
        needs=("value=",),
    ),
    _password(  # a list of names and values
        rf"""{_NAME}["']?,?\s{{0,16}}["']?(?i:value){_CLOSE}\s{{0,2}}[:=]\s{{0,2}}["']?"""
        rf"""(?P<value>[^{SPACE}"',}}]{{1,512}}+)""",
        needs=("value",),
        check=is_no_code,
    ),
    _password(  # a row of a table
        rf"{_NAME}[\s*]{{0,8}}\|\s{{0,8}}{_loose(1)}", needs=("|",), check=is_told
    ),
)


@cache
def _secret_name() -> re.Pattern[str]:
    short = r"\A(?i:auth|pass|cvv\d?|cvc\d?)"
    where = "test|testing|qa|uat|local|default|main|current|previous|prod|dev|staging|live|pem|der"
    return re.compile(
        rf"(?:{_NAME}|{short})(?i:[ _-](?:field|input|(?:text)?box)|[ _-]?(?:{where}))?\Z", re.ASCII
    )


def names_a_secret(name: str) -> bool:
    """Whether what is kept under this name has to go, whatever it is."""
    name = seen(PLACEHOLDER.sub("|", name))[-120:].rstrip(" :=_-*[]\"'")
    return _secret_name().search(name) is not None
