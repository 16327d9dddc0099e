"""Secrets whose place gives them away: URLs, headers, command lines."""

import base64
import re

from kp_middleware.privacy._rules import SPACE, Rule, value_of
from kp_middleware.privacy._values import is_credential, is_random

_S = f"[{SPACE}]"
_DATABASES = (
    *(
        "postgres",
        "postgresql",
        "postgis",
        "mysql",
        "mariadb",
        "mongodb",
        "redis",
        "rediss",
        "valkey",
    ),
    *("amqp", "amqps", "mssql", "sqlserver", "oracle", "clickhouse", "cockroachdb", "snowflake"),
    *("redshift", "vertica", "db2", "cassandra", "couchbase", "neo4j", "bolt", "memcached", "nats"),
    *("stomp", "mqtt", "mqtts"),
)
_SCHEMES = "token|apikey|api-key|key|bot|jwt|oauth|digest|negotiate|hawk|[A-Za-z][A-Za-z0-9-]{2,20}"
_TEMPLATE = re.compile(
    r"[$%{<*].*|x{3,}|[^:]*:(?:[$%{<*].*|x{3,}|\.{3}|pass(?:word)?|pwd|)", re.IGNORECASE
)


def _is_filled_in(match: re.Match[str]) -> bool:
    return not _TEMPLATE.fullmatch(value_of(match))


def _is_user_and_password(match: re.Match[str]) -> bool:
    """Base64 of text with a colon, or at least nothing that a person would write."""
    text = value_of(match)
    try:
        decoded = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        return len(text) >= 16 and is_credential(match)
    return b":" in decoded or is_credential(match)


CREDENTIAL_RULES: tuple[Rule, ...] = (
    Rule(  # whole, as the reference does: the host of a database is nobody's business either
        "connection_string",
        "secret",
        rf"(?i:(?:{'|'.join(_DATABASES)})(?:\+[a-z0-9]{{1,20}})?)://"
        rf"(?:[^{SPACE}/\"'`<>@]{{0,256}}+@)?[^{SPACE}\"'`<>,}}\])]{{1,512}}+",
        _DATABASES,
        ("://",),
    ),
    Rule(
        "basic_auth",
        "secret",
        rf"://(?P<value>[^{SPACE}:/@\"'`<>?#]{{0,128}}+:[^{SPACE}/\"'`<>]{{1,256}})@(?=[\w\[.$-])",
        ("://",),
        check=_is_filled_in,
    ),
    Rule(
        "basic_auth",
        "secret",
        rf"://(?P<value>[^{SPACE}:/@\"'`<>?#]{{16,256}}+):?@(?=[\w\[.$-])",
        ("://",),
        check=is_random,
    ),
    Rule(
        "bearer_token",
        "secret",
        rf"(?<![A-Za-z0-9])(?i:bearer)(?:{_S}{{1,4}}|[:=]{_S}{{0,4}})\\{{0,3}}[\"']?"
        r"(?P<value>[\w.~+/=-]{12,8192}+)",
        ("bearer",),
        check=is_credential,
    ),
    Rule(
        "basic_auth",
        "secret",
        rf"(?<![A-Za-z])(?i:basic){_S}{{1,4}}(?P<value>[A-Za-z0-9+/_-]{{8,1024}}+={{0,2}})(?![\w.])",
        ("basic",),
        check=_is_user_and_password,
    ),
    Rule(
        "bearer_token",
        "secret",
        rf"(?i:authorization)\W{{0,8}}[:=,]\W{{0,8}}(?i:{_SCHEMES}){_S}{{1,3}}"
        rf"(?P<value>[^{SPACE}\"'`<>|=][^\n\r\"'`<>]{{5,2048}})",
        ("authorization",),
        check=is_credential,
    ),
    Rule(  # what proves that the password is known
        "bearer_token",
        "secret",
        r"(?<!\w)response=\\{0,7}[\"']?(?P<value>[0-9a-f]{32,128})(?!\w)",
        ("response=",),
        ("digest",),
    ),
    Rule(
        "bearer_token",
        "secret",
        r"(?<![A-Za-z])Signature=(?P<value>[0-9a-f]{40,128})(?!\w)",
        ("signature=",),
    ),
    Rule(
        "connection_string",
        "secret",
        rf"(?i:jdbc:oracle:(?:thin|oci8?)):[^{SPACE}/@\"'`<>]{{1,64}}/(?P<value>[^{SPACE}@\"'`<>]{{1,128}}+)@",
        ("jdbc:oracle:",),
        check=_is_filled_in,
    ),
    Rule(  # curl -u user:x
        "password",
        "secret",
        rf"(?<![\w-])(?:-u|--(?:proxy-)?user(?:name)?)(?:[{SPACE}=:]{{1,3}}|[\"'],{_S}{{0,2}}|(?=\w))[\"']?"
        rf"[^{SPACE}:\"'`<>]{{0,64}}:(?P<value>(?![\d/]{{1,6}}(?!\w))[^{SPACE}\"'`<>]{{2,256}}+)",
        ("-u", "--user", "--proxy-user"),
        check=_is_filled_in,
    ),
    Rule(  # netrc
        "password",
        "secret",
        rf"(?<!\w)login{_S}{{1,4}}[^{SPACE}]{{1,128}}+{_S}{{1,8}}password{_S}{{1,4}}"
        rf"(?P<value>[^{SPACE}]{{1,256}}+)",
        ("login",),
    ),
    Rule(  # .pgpass
        "password",
        "secret",
        r"(?<![\w.*-])[\w.*-]{1,64}:\d{4,5}:[\w*-]{1,64}:[\w*-]{1,64}:"
        r"(?P<value>[^\s:\"'<>]{4,128}+)(?!:)",
        needs=(":5432:", ":6432:", ":*:"),
    ),
)
