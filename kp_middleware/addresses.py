"""Where an API key may be sent to: nobody on the way can read it."""

import ipaddress
import re
from typing import Final
from urllib.parse import SplitResult, urlsplit

_PLAIN: Final = re.compile(r"[!-~]{1,2000}")
_ALLOWED: Final = "it must begin with https:// (http:// is for this machine only)"
_HOST: Final = re.compile(r"[\w.-]+", re.ASCII)


def registry_address(text: str) -> str:
    """The URL of a registry, as it was given.

    Raises:
        ValueError: If it is none, holds a password, or is neither https nor on this machine.
    """
    url, host = _split(text)
    if "@" in url.netloc:
        raise ValueError("the registry's URL must hold no name and no password")
    if not host or url.scheme not in _schemes(host):
        raise ValueError(
            f"the registry's URL begins with {url.scheme}://{host}: {_ALLOWED}, or others could"
            " read the API key"
        )
    return text


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    return host == "localhost" or (_is_ip(host) and ipaddress.ip_address(host).is_loopback)


def _split(text: str) -> tuple[SplitResult, str]:
    """The URL in parts, and its host."""
    try:
        url = urlsplit(text if _PLAIN.fullmatch(text) and "\\" not in text else "//[")
        host, _ = url.hostname or "", url.port
    except ValueError:
        raise ValueError(
            f"the registry's URL is not one: {_ALLOWED}"
        ) from None  # it may hold a password
    if host and not (_HOST.fullmatch(host) or _is_ip(host)):
        raise ValueError(f"the registry's URL names no host: {_ALLOWED}")
    return url, host


def _schemes(host: str) -> tuple[str, ...]:
    return ("https", "http") if is_loopback(host) else ("https",)


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
