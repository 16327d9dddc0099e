"""Rules for contact data: e-mail, phone, IP, MAC, home paths."""

import re
import socket

from kp_middleware.privacy._rules import SPACE, Check, Rule, in_any_case, spelled, value_of, words

_S = f"[{SPACE}]"
_GAP = r"[ .\-/()\u00a0\u2010-\u2013]"
_NUMBER = rf"[+(]{{0,2}}\d(?:{_GAP}{{0,3}}\d){{6,14}}"
_CUES = spelled(
    words(
        "telephone|telefone|téléphone|telefon|telefono|teléfono|telefoon|tel|ph|phones|"
        "phone|mobile|mobiel|mobil|cellulare|celular|cell|handy|fax|móvil|movil|portable|"
        "komórka|komorka|whatsapp|sms|msisdn|rufnummer|contact|hotline|callback|caller|電話|"
        "电话|手机|手機|携帯|連絡先|전화번호|전화|휴대폰"
    )
)
_VERBS = words(
    "called|calling|call|ring|rang|dialled|dialed|dial|texted|text|reached|reachable|"
    "reach|phoned|phone|replied|reply|contacted|contact"
)
_AFTER_VERB = (
    "me|us|him|her|them|you|back|at|on|from|number|via|under|to|the|my|our|your|customer|client"
    "|office|support|by phone|out"
)
_VERSION_BEFORE = re.compile(
    r"(?i:\b(?:version|ver|v|release|firmware|build|driver|assembly|revision|rev|section|chapter"
    r"|clause|figure|table|oid))[\s:=\"'\\v]{0,6}\Z|(?:==|>=|<=|~=|\^)\s?v?\Z|\b[A-Z][A-Za-z]{2,20}/\Z"
)
_ROUTE_BEFORE = re.compile(r"\b(?:GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS|route|endpoint)\s[\"']?\Z")
_NO_PHONE = re.compile(
    r"(?:19|20)\d\d([-/. ])(?:0?[1-9]|1[0-2])\1(?:0?[1-9]|[12]\d|3[01])(?:[ -]\d{1,6})?"
    r"|[0-3]?\d([-/.])[0-3]?\d\2(?:19|20)?\d\d(?: \d{1,2})?"  # dates
    r"|\d{1,3}(?:\.\d{1,3}){3}|\+?\d{5,}\.\d+"
)
_MAPPED = bytes(10) + b"\xff\xff"
_FILE_AT_SCALE = re.compile(r"[^@]+@\dx?\.\w+", re.IGNORECASE)


def _is_address(match: re.Match[str]) -> bool:
    """Return whether it is an e-mail address, not ``git@host:path`` or ``icon@2x.png``."""
    following = match.string[match.end() : match.end() + 1]
    cloned = value_of(match).lower().startswith(("git@", "hg@", "svn@")) and following in {":", "/"}
    return not cloned and not _FILE_AT_SCALE.fullmatch(value_of(match))


def _is_host(match: re.Match[str]) -> bool:
    """Return whether it is a host's IPv4 address, not a netmask, loopback or version."""
    octets = [int(octet) for octet in match["octets"].split(".")]
    before = match.string[max(0, match.start() - 24) : match.start()]
    named = max(octets) < 256 and octets[0] not in {0, 127, 255}
    return named and not _VERSION_BEFORE.search(before)


def _is_host_v6(match: re.Match[str]) -> bool:
    """Return whether it is a global, local, link-local or mapped IPv6 address, unlike ``a::b``."""
    text = re.split("[/%]", value_of(match))[0]
    try:
        address = socket.inet_pton(socket.AF_INET6, text)  # ten times as fast as ipaddress
    except OSError:
        return False
    if address.startswith(_MAPPED):
        return address[len(_MAPPED)] != 127
    first = int.from_bytes(address[:2])
    return 0x2000 <= first < 0x4000 or first >= 0xFC00 or first == 0x64


def _is_hardware(match: re.Match[str]) -> bool:
    """Return whether it is a MAC address, not all one digit, nor hyphenated decimal pairs."""
    digits = re.sub(r"[^0-9a-f]", "", value_of(match).lower())
    return len(set(digits)) > 1 and not ("-" in match[0] and digits.isdecimal())


def _is_home(match: re.Match[str]) -> bool:
    """Return whether it is a home path, not a route of a web application."""
    return not _ROUTE_BEFORE.search(match.string[max(0, match.start() - 16) : match.start()])


def _has_digits(least: int, most: int) -> Check:
    def checked(match: re.Match[str]) -> bool:
        value = value_of(match)
        return least <= sum(map(str.isdigit, value)) <= most and not _NO_PHONE.fullmatch(value)

    return checked


def _phone(pattern: str, *starts: str, check: Check | None = None) -> Rule:
    return Rule("phone", "contact", pattern, starts, check=check)


_LEFT = r"(?<![\w.,:/+-])"

_PHONES = (
    _phone(
        rf"(?<![\w+.])\+\(?[1-9](?:{_GAP}{{0,3}}\d){{6,14}}(?!\d)", "+", check=_has_digits(7, 15)
    ),
    _phone(
        rf"(?<![\w+.-])00(?:[1-9]\d{{9,12}}|[1-9]\d{{0,2}}{_GAP}{{1,3}}\d(?:{_GAP}{{0,3}}\d){{5,11}})"
        r"(?![\w.])",
        "0",
        check=_has_digits(7, 15),
    ),
    _phone(  # North America
        rf"(?<![\d.-])(?<!\d[{SPACE}/])(?:\+?1{_GAP}{{0,2}})?\(?\d{{3}}\)?[{SPACE}.-]{{0,2}}"
        rf"\d{{3}}[{SPACE}.-]\d{{4}}(?!\d|[.-]\d)",
        *("0", "(", "+"),
    ),
    _phone(  # 030 123456, 01 23 45 67 89, 090-1234-5678, (0)8-123 456 78
        rf"{_LEFT}(?:\(0\d{{1,4}}\)|0\d{{1,5}})(?:(?<=\d\d\d)[./]|[ -])\d{{2,8}}"
        r"(?:[ -]\d{2,8}){0,4}(?![\w]|[.,:/-]\d)",
        *("0", "("),
        check=_has_digits(9, 12),
    ),
    _phone(rf"{_LEFT}0\d(?:\.\d\d){{4}}(?![\w.])", "0"),
    _phone(
        rf"{_LEFT}\(\d{{2,5}}\)[ -]?\d{{2,5}}(?:[ -]\d{{2,5}}){{1,3}}(?![\w.])",
        "(",
        check=_has_digits(9, 12),
    ),
    _phone(  # groups that no other number has: China, India, Spain, Sweden
        rf"{_LEFT}(?:1[3-9]\d([ -])\d{{4}}\1\d{{4}}|[6-9]\d{{4}} \d{{5}}|[6-9]\d\d(?: \d\d){{3}}"
        r"|0\d{1,2}-\d{2,3} \d\d \d\d)(?![\w.]| \d)",
        "0",
    ),
    _phone(
        rf"(?<![A-Za-z])(?i:{in_any_case('|'.join(_CUES))})"
        rf"(?i:[ _-]?(?:numbers?|nummer|no|nr|num|id|\#))?\.?"
        rf"[\"'`\\\]*]{{0,4}}{_S}{{0,3}}(?:[:=#|]{_S}{{0,3}}|(?i:is|at|on|under|via|from|to|was) )?"
        rf"[\"'`\\\[]{{0,4}}(?P<value>{_NUMBER})(?![\w])",
        *_CUES,
        check=_has_digits(7, 15),
    ),
    _phone(
        rf"(?<![A-Za-z])(?i:{'|'.join(_VERBS)})(?i:{_S}(?:{_AFTER_VERB})){{1,4}}{_S}"
        rf"(?P<value>{_NUMBER})(?![\w])",
        *_VERBS,
        check=_has_digits(7, 15),
    ),
)

_REMOTE = ("sftp", "ssh", "scp", "ftp", "smb", "nfs", "rsync", "fish", "vscode-remote")
_PATH = rf"{SPACE}\"'`<>|,;?*:)}}\]"

_DOMAIN = (
    r"(?:[A-Za-z0-9\u00a1-\udfff](?:[A-Za-z0-9\u00a1-\udfff-]{0,62}+)\.){1,8}"
    r"(?:[A-Za-z]{2,24}|xn--[a-z0-9-]{2,59})(?![A-Za-z0-9_(])"
)

CONTACT_RULES: tuple[Rule, ...] = (
    Rule(
        "email",
        "contact",
        r"(?<![A-Za-z0-9À-ɏ_.%+-])[A-Za-z0-9À-ɏ_%+.'-]{1,64}(?:@|%40)" + _DOMAIN,
        needs=("@", "%40"),
        check=_is_address,
    ),
    Rule(
        "email", "contact", rf"\"[A-Za-z0-9][\w .+'-]{{0,62}}\\{{0,7}}\"@{_DOMAIN}", needs=('"@',)
    ),
    *_PHONES,
    Rule(
        "ip",
        "contact",
        r"(?<![A-Za-z0-9.])(?P<octets>\d{1,3}(?:\.\d{1,3}){3})(?:/\d{1,2})?(?![A-Za-z0-9]|\.\d)",
        ("0.",),
        check=_is_host,
    ),
    Rule(
        "ip",
        "contact",
        r"[0-9A-Fa-f:](?<![\w:.].)(?:(?<=:):|[0-9A-Fa-f]{0,3}:)(?:[0-9A-Fa-f]{0,4}:){0,7}+"
        r"(?:(?:\d{1,3}\.){3}\d{1,3}|[0-9A-Fa-f]{1,4})?(?:%[\w.-]{1,16})?(?:/\d{1,3})?(?![\w:])",
        needs=(":",),
        check=_is_host_v6,
    ),
    Rule(
        "mac",
        "contact",
        r"[0-9A-Fa-f](?<![\w:-].)[0-9A-Fa-f]([:-])(?:[0-9A-Fa-f]{2}\1){4}[0-9A-Fa-f]{2}"
        r"(?:(?:\1[0-9A-Fa-f]{2}){2})?(?![\w:-])",
        needs=("-", ":"),
        check=_is_hardware,
    ),
    Rule(
        "mac",
        "contact",
        r"[0-9A-Fa-f](?<![\w.].)(?=[0-9.]{0,13}[A-Fa-f])[0-9A-Fa-f]{3}(?:\.[0-9A-Fa-f]{4}){2}(?![\w.])",
        needs=(".",),
        check=_is_hardware,
    ),
    Rule(
        "filepath",
        "contact",
        r"(?:(?<![A-Za-z0-9.-])|(?<=/var)|(?<=/usr)|(?<=/export)|(?<=/mnt/[a-z])|(?<=(?<![\w/.:-])/[a-z])|(?<=/Volumes/Data)"
        r"|(?<=/data)|(?<=/nfs)|(?<=/mnt)|(?<=/srv)|(?<=/net)|(?<=/opt)|(?<=/host)|(?<=/rootfs))"
        rf"/(?:home|Users)/[^{_PATH}/][^{_PATH}]{{0,512}}+",
        ("/home/", "/users/"),
        check=_is_home,
    ),
    Rule(
        "filepath",
        "contact",
        r"[A-Za-z]:[\\/]{1,8}(?i:users|documents and settings)[\\/]{1,8}"
        rf"(?:[^{_PATH}/\\]{{1,32}}(?: [^{_PATH}/\\]{{1,32}}){{1,2}}(?=\\)|[^{_PATH}/\\])"
        rf"(?:[^{_PATH}\\]|\\(?!\\{{0,7}}[\"'])){{0,512}}+",
        needs=("users", "documents and settings"),
    ),
    Rule("filepath", "contact", rf"(?<=\\)Users\\{{1,8}}[^{_PATH}/\\]{{1,64}}", ("users",)),
    Rule(
        "filepath",
        "contact",
        rf"\\{{2,8}}wsl(?:\$|\.localhost)\\{{1,8}}[^{_PATH}/\\]{{1,40}}\\{{1,8}}home\\{{1,8}}"
        rf"[^{_PATH}/\\]{{1,64}}",
        (r"\\wsl",),
    ),
    Rule(
        "filepath",
        "contact",
        rf"(?i:{'|'.join(_REMOTE)})://[^{SPACE}/\"'`<>]{{0,128}}+(?P<value>/(?:home|Users)/[^{_PATH}]{{1,512}}+)",
        tuple(f"{scheme}://" for scheme in _REMOTE),
    ),
)
