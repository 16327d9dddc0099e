"""What a request that got no answer, or one that no registry gives, has met."""

import os
import socket
import ssl
from collections.abc import Iterator
from typing import Final, TypeVar
from urllib.request import proxy_bypass

import httpx2

from kp_middleware.problems import Problem, ProblemKind

E = TypeVar("E", bound=BaseException)

_UNTRUSTED: Final = frozenset({18, 19, 20, 21})
"""OpenSSL's codes for a chain that ends nowhere known: all else is the certificate's own fault."""

_WHY: Final = {
    ProblemKind.REFUSED: "connection refused",
    ProblemKind.UNKNOWN_HOST: "no such host",
    ProblemKind.NO_CONNECTION: "no answer",
}


def diagnosis(
    error: BaseException, url: httpx2.URL, *, connected: bool, timeout_s: float
) -> Problem:
    """What kept a request from being answered at all.

    Args:
        error: What httpx2 or the network raised.
        url: The registry's.
        connected: Whether a byte was sent, to it or to a proxy.
        timeout_s: How long the request could take.
    """
    causes = [*_causes(error)]
    if certificate := _first(causes, ssl.SSLCertVerificationError):
        untrusted = certificate.verify_code in _UNTRUSTED
        kind = ProblemKind.UNTRUSTED if untrusted else ProblemKind.BAD_CERTIFICATE
        return Problem(kind, certificate.verify_message)
    variable = proxy_variable(url)
    if variable and isinstance(error, httpx2.ProxyError):
        return Problem(ProblemKind.PROXY_REFUSES, f"{variable} {error}")
    problem = _of_the_way(error, causes, url)
    if problem.kind is ProblemKind.SILENCE:
        kind = ProblemKind.SILENCE if connected else ProblemKind.NO_CONNECTION
        problem = Problem(kind, f"{timeout_s:g}")
    if variable and not connected:
        return Problem(ProblemKind.PROXY, f"{variable} {_WHY.get(problem.kind) or error}")
    return problem


def proxy_variable(url: httpx2.URL) -> str | None:
    """The variable whose proxy a request for this URL goes through, or None."""
    if proxy_bypass(url.host):
        return None
    names = (f"{url.scheme}_proxy", "all_proxy")
    spelt = (spelling for name in names for spelling in (name, name.upper()))
    return next((name for name in spelt if os.environ.get(name)), None)


def unusable_proxy() -> Problem:
    """The variable that no client can be made with, and why; without its value."""
    named = {
        spelling: os.environ[spelling]
        for name in ("https_proxy", "http_proxy", "all_proxy")
        for spelling in (name, name.upper())
        if os.environ.get(spelling)
    }
    wrong = next((name for name, value in named.items() if not _is_proxy(value)), None)
    if wrong:
        detail = f"{wrong} its address is no URL such as http://proxy.example:3128"
    else:
        socks = next((name for name in named if named[name].startswith("socks")), "HTTPS_PROXY")
        detail = f"{socks} SOCKS needs the package httpx2[socks]"
    return Problem(ProblemKind.PROXY_UNUSABLE, detail)


def _is_proxy(value: str) -> bool:
    try:
        httpx2.Proxy(value if "://" in value else f"http://{value}")
    except (httpx2.InvalidURL, ValueError):
        return False
    return True


def _of_the_way(error: BaseException, causes: list[BaseException], url: httpx2.URL) -> Problem:
    if _first(causes, ConnectionRefusedError):
        return Problem(ProblemKind.REFUSED)
    if _first(causes, socket.gaierror) or _first(causes, UnicodeError):  # no name can be so
        return Problem(ProblemKind.UNKNOWN_HOST, url.host)
    if isinstance(error, httpx2.TimeoutException | TimeoutError):
        return Problem(ProblemKind.SILENCE)
    if tls := _first(causes, ssl.SSLError):
        return Problem(ProblemKind.NO_TLS, tls.reason or str(tls))
    if isinstance(error, httpx2.ConnectError):
        return Problem(ProblemKind.UNREACHABLE, str(error))
    return Problem(ProblemKind.BROKEN, f"{type(error).__name__}: {error}")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _first(causes: list[BaseException], kind: type[E]) -> E | None:
    return next((cause for cause in causes if isinstance(cause, kind)), None)
