"""Checks of what has a form of its own: issued tokens, credentials, identity numbers, contacts."""

import base64
import re
import socket
from importlib import import_module

from kp_middleware.privacy._checks import is_credential
from kp_middleware.privacy._rules import TABLE, Check, value_of, words
from kp_middleware.privacy._strength import case_changes, entropy, has_both_cases


def is_issued(match: re.Match[str]) -> bool:
    """Return whether an ambiguous prefix is followed by a long run of letters and digits."""
    runs = re.findall("[A-Za-z0-9]+", value_of(match))
    longest = max(runs, key=len)
    digits = sum(map(str.isdigit, longest))
    if has_both_cases(longest):
        return len(longest) >= (16 if len(runs) < 3 else 12) and digits >= 2
    return len(longest) >= 16 and digits >= 5 and entropy(longest) > 3


_KIND = re.compile(r"(?:^|\n)[ \t]{0,4}kind:[ \t]{0,4}[\"']?[Ss]ecret\b")


def is_of_a_secret(match: re.Match[str]) -> bool:
    """Return whether the same manifest is of a Kubernetes Secret."""
    before = match.string[max(0, match.start() - 2000) : match.start()].rpartition("\n---")[2]
    after = match.string[match.end() : match.end() + 2000].partition("---")[0]
    return _KIND.search(before + after) is not None and "{{" not in match["value"]


_TEMPLATE = re.compile(
    r"[$%{<*].*|x{3,}|[^:]*:(?:[$%{<*].*|x{3,}|\.{3}|pass(?:word)?|pwd|)", re.IGNORECASE
)


def is_no_template(match: re.Match[str]) -> bool:
    return not _TEMPLATE.fullmatch(value_of(match))


def is_basic_auth(match: re.Match[str]) -> bool:
    """Return whether the value is base64 of a text with a colon, or looks like a credential."""
    text = value_of(match)
    try:
        decoded = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        return len(text) >= 16 and is_credential(match)
    return b":" in decoded or is_credential(match)


_VENDORS = words(TABLE["words"]["VENDORS"])
_ALONE = frozenset(_VENDORS)
_VENDOR = re.compile("|".join(_VENDORS), re.IGNORECASE)
_HEX = re.compile(r"(?:[0-9a-fA-F]{20,}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})\Z")
_TELLS = re.compile(
    r"key|token|tkn|secret|pass|pw|pat\b|auth|cred|cert|api|access|login|license|sign|bearer|reporter_?id",
    re.IGNORECASE,
)
_OTHER = re.compile(
    r"(?:(?i:hash|digest|sha\d*|md5|version|ver|commit|rev|release|build|image|tag|url|uri|host|domain|name"
    r"|user|e?mail|path|file|dir|region|zone|type|model|cursor|checksum|fingerprint|public[_-]?key)"
    r"|(?i:(?<![A-Za-z])(?<!access_)(?<!access-)(?<!reporter_)ids?)|(?<=[a-z])(?<!ccess)I[dD]s?)\Z"
)


def is_issued_by_vendor(match: re.Match[str]) -> bool:
    """Return whether a vendor's name is followed by a key, not by a word or another value."""
    name = match["name"].strip()
    if not _names_a_vendor(match) or _OTHER.search(name):
        return False
    value = value_of(match)
    alone = name.lower() in _ALONE
    told = alone or _TELLS.search(name) is not None
    if _HEX.match(value):
        return told and len(set(value)) > 6
    digits = sum(map(str.isdigit, value))
    if digits == len(value) or entropy(value) < 3 or _is_made_of_words(value):
        return False
    if has_both_cases(value):
        return len(value) >= (14 if told else 20) and (digits > 1 or _changes_case(value))
    return told and digits >= 4 and (len(value) >= 24 or not alone) and _is_one_run(value)


def _names_a_vendor(match: re.Match[str]) -> bool:
    """Return whether a vendor's name begins a word or a part of one: ``MY_PLAID``, ``myPlaid``."""
    name = match["name"]
    known = _VENDOR.match(name)
    vendor = known[0] if known else ""
    before = match.string[match.start() - 1 : match.start()]
    begins = not before.isalpha() or (before.islower() and vendor[:1].isupper())
    return vendor != "" and begins and not (vendor[0].islower() and vendor[-1].isupper())


def _changes_case(value: str) -> bool:
    """Return whether more than a third of the letters change case, as in no name."""
    return case_changes(value) * 3 > sum(map(str.isalpha, value))


def _is_one_run(value: str) -> bool:
    return any(len(run) >= 14 for run in re.findall("[A-Za-z0-9]+", value))


def _is_made_of_words(value: str) -> bool:
    """Return whether the value is like ``MyService-2024-Production`` or ``releases/V2/linux64``."""
    parts = re.split(r"[-_./+=~]|(?<=[a-z])(?=[A-Z][a-z])", value)
    return all(re.fullmatch(r"v?\d+|(?:[A-Z]?[a-z]+|[A-Z]*)\d{0,4}", part) for part in parts)


def _bare(match: re.Match[str]) -> str:
    return re.sub(r"[^0-9A-Za-z]", "", value_of(match))


def valid(module: str) -> Check:
    """Return a check by python-stdnum, each module of which is imported on first use."""
    return lambda match: bool(import_module(module).is_valid(_bare(match)))


def is_card(match: re.Match[str]) -> bool:
    """Return whether the number has a known issuer's prefix and length, and passes Luhn."""
    digits = _bare(match)
    issued = any(
        first <= digits[: len(first)] <= last and len(digits) in lengths
        for first, last, lengths in TABLE["cards"]["issued"]
    )
    return issued and valid("stdnum.luhn")(match)


def is_iban(match: re.Match[str]) -> bool:
    """Return whether the ISO 13616 checksum is valid; national formats are not checked."""
    text = _bare(match)
    return bool(import_module("stdnum.iso7064.mod_97_10").is_valid(text[4:] + text[:4]))


def _dated(month: int, day: int) -> Check:
    """Return a check that the digits at these positions are a month and a day."""

    def checked(match: re.Match[str]) -> bool:
        text = _bare(match)
        return 1 <= int(text[month : month + 2]) <= 12 and 1 <= int(text[day : day + 2]) <= 31

    return checked


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


def is_address(match: re.Match[str]) -> bool:
    """Return whether it is an e-mail address, not ``git@host:path`` or ``icon@2x.png``."""
    following = match.string[match.end() : match.end() + 1]
    cloned = value_of(match).lower().startswith(("git@", "hg@", "svn@")) and following in {":", "/"}
    return not cloned and not _FILE_AT_SCALE.fullmatch(value_of(match))


def is_host(match: re.Match[str]) -> bool:
    """Return whether it is a host's IPv4 address, not a netmask, loopback or version."""
    octets = [int(octet) for octet in match["octets"].split(".")]
    before = match.string[max(0, match.start() - 24) : match.start()]
    named = max(octets) < 256 and octets[0] not in {0, 127, 255}
    return named and not _VERSION_BEFORE.search(before)


def is_host_v6(match: re.Match[str]) -> bool:
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


def is_hardware(match: re.Match[str]) -> bool:
    """Return whether it is a MAC address, not all one digit, nor hyphenated decimal pairs."""
    digits = re.sub(r"[^0-9a-f]", "", value_of(match).lower())
    return len(set(digits)) > 1 and not ("-" in match[0] and digits.isdecimal())


def is_home(match: re.Match[str]) -> bool:
    """Return whether it is a home path, not a route of a web application."""
    return not _ROUTE_BEFORE.search(match.string[max(0, match.start() - 16) : match.start()])


def _has_digits(least: int, most: int) -> Check:
    def checked(match: re.Match[str]) -> bool:
        value = value_of(match)
        return least <= sum(map(str.isdigit, value)) <= most and not _NO_PHONE.fullmatch(value)

    return checked


is_month_day = _dated(2, 4)
is_day_month = _dated(2, 0)
is_phone = _has_digits(7, 15)
is_short_phone = _has_digits(9, 12)
