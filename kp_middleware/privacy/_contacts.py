"""Checks of a vendor's key, a contact or an address in its context."""

import re

from kp_middleware.privacy._checks import text_before
from kp_middleware.privacy._values import TABLE, is_vendor_token, pattern, value_of, words

_ROUTE_BEFORE = re.compile(r"\b(?:GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS|route|endpoint)\s[\"']?\Z")
_VERSION_BEFORE = pattern("VERSION_BEFORE")
_FILE_AT_SCALE = re.compile(r"[^@]+@\dx?\.\w+", re.IGNORECASE)
_KEY_WORD, _NOT_A_KEY = pattern("KEY_WORD"), pattern("NOT_A_KEY")
_VENDORS = dict.fromkeys(words(TABLE["words"]["VENDORS"]))
_VENDOR = re.compile("|".join(_VENDORS), re.IGNORECASE)


def is_vendor_key(match: re.Match[str]) -> bool:
    name, value = match["name"].strip(), value_of(match)
    vendor_at = _VENDOR.match(match["name"])
    if vendor_at is None or _NOT_A_KEY.search(name):
        return False
    vendor, before = vendor_at[0], text_before(match, 1)  # MY_PLAID, myPlaid
    if before.isalpha() and not (before.islower() and vendor[0].isupper()):
        return False
    if vendor[0].islower() and vendor[-1].isupper():
        return False
    alone = name.lower() in _VENDORS
    names_key = alone or _KEY_WORD.search(name) is not None
    return is_vendor_token(value, alone=alone, names_key=names_key)


def is_email_address(match: re.Match[str]) -> bool:
    """Return whether the match is an e-mail address, not ``git@host:path`` or ``icon@2x.png``."""
    following = match.string[match.end() : match.end() + 1]
    cloned = value_of(match).lower().startswith(("git@", "hg@", "svn@")) and following in {":", "/"}
    return not cloned and not _FILE_AT_SCALE.fullmatch(value_of(match))


def is_ipv4_host(match: re.Match[str]) -> bool:
    """Return whether the match is a host's IPv4 address, not a netmask, loopback or version."""
    octets = [int(octet) for octet in match["octets"].split(".")]
    is_address = max(octets) < 256 and octets[0] not in {0, 127, 255}
    return is_address and not _VERSION_BEFORE.search(text_before(match, 24))


def is_mac_address(match: re.Match[str]) -> bool:
    digits = re.sub(r"[^0-9a-f]", "", value_of(match).lower())
    return len(set(digits)) > 1 and not ("-" in match[0] and digits.isdecimal())


def is_home_path(match: re.Match[str]) -> bool:
    return not _ROUTE_BEFORE.search(text_before(match, 16))
