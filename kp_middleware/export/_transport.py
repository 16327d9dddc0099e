"""The network side of a request: deadline, trusted certificates, proxies, diagnosis."""

import math
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, TypeVar
from urllib.request import proxy_bypass

import httpcore2
import httpx2

from kp_middleware.errors import RegistryUnavailableError
from kp_middleware.problems import Problem, ProblemKind

E = TypeVar("E", bound=BaseException)

_UNTRUSTED: Final = frozenset({18, 19, 20, 21})
"""OpenSSL's codes for an untrusted chain; all others mean an invalid certificate."""

_WHY: Final = {
    ProblemKind.REFUSED: "connection refused",
    ProblemKind.UNKNOWN_HOST: "no such host",
    ProblemKind.NO_CONNECTION: "no answer",
}
_PIECE_BYTES: Final = 4096  # small enough for one send, so that each has its own timeout
_FILES: Final = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


class Deadline:
    """The deadline of the current request, and a way to abort it: `break_off`, from any thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until = math.inf
        self._lock = threading.Lock()
        self.asked = False  # whether a byte of the current request was sent
        self.socket: socket.socket | None = None  # in use
        self._broken_off = False

    def begin(self, seconds: float) -> None:
        self._until = self._clock() + seconds
        self.asked = False

    def left_s(self) -> float:
        """Return the remaining seconds, or raise an OSError if it is over or was aborted."""
        if self._broken_off:
            raise ConnectionAbortedError("broken off")
        left_s = self._until - self._clock()
        if left_s <= 0:
            raise TimeoutError("the whole request timed out")
        return left_s

    def ask(self) -> None:
        """Note that bytes are about to be sent, unless the request was aborted."""
        with self._lock:
            if self._broken_off:
                raise ConnectionAbortedError("broken off")
            self.asked = True

    def break_off(self) -> bool:
        """Abort the current request and all later ones; return True if a byte was sent."""
        with self._lock:
            self._broken_off = True
        if self.socket is not None:
            with suppress(OSError):  # already closed; bypasses TLS, which may be in use
                socket.socket.shutdown(self.socket, socket.SHUT_RDWR)
        return self.asked


def keep_deadline(client: httpx2.Client, deadline: Deadline) -> None:
    """Make every new connection of a client observe the deadline.

    httpx2 applies the whole timeout to every read, so that a server that sends a byte now and then
    never times out. It accepts no network backend, its trace hook does not see single reads, and a
    timer thread cannot be started while a process exits: so the backend of its pool is replaced.
    """
    for transport in (client._transport, *client._mounts.values()):  # noqa: SLF001
        if isinstance(transport, httpx2.HTTPTransport):
            pool = transport._pool  # noqa: SLF001
            pool._network_backend = _Backend(pool._network_backend, deadline)  # noqa: SLF001


class _Backend(httpcore2.NetworkBackend):
    def __init__(self, backend: httpcore2.NetworkBackend, deadline: Deadline) -> None:
        self._backend = backend
        self._deadline = deadline

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ARG002
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:
        left_s = self._deadline.left_s()
        stream = self._backend.connect_tcp(host, port, left_s, local_address, socket_options)
        return _Stream(stream, self._deadline)


class _Stream(httpcore2.NetworkStream):
    def __init__(self, stream: httpcore2.NetworkStream, deadline: Deadline) -> None:
        self._stream = stream
        self._deadline = deadline
        deadline.socket = stream.get_extra_info("socket")

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002
        return self._stream.read(max_bytes, self._deadline.left_s())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002
        self._deadline.ask()
        for start in range(0, len(buffer), _PIECE_BYTES):
            piece = buffer[start : start + _PIECE_BYTES]
            self._stream.write(piece, self._deadline.left_s())

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ARG002
    ) -> httpcore2.NetworkStream:
        left_s = self._deadline.left_s()
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, left_s), self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def named_trust() -> ssl.SSLContext | None:
    """Return an SSL context that trusts only the certificates named in the environment, or None."""
    files = [name for name in _FILES if os.environ.get(name)][:1]
    named = [name for name in (*files, "SSL_CERT_DIR") if os.environ.get(name)]
    if not named:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for variable in named:
        path = os.environ[variable]
        is_folder = any(map(os.path.isdir, path.split(os.pathsep)))
        try:
            context.load_verify_locations(**{"capath" if is_folder else "cafile": path})
        except OSError as error:  # an SSLError is one
            problem = Problem(ProblemKind.CERTIFICATE_FILE, f"{variable} {path}")
            raise RegistryUnavailableError(str(problem), problem=problem) from error
    return context


def diagnosis(
    error: BaseException, url: httpx2.URL, *, connected: bool, timeout_s: float
) -> Problem:
    """Return why a request got no answer; ``connected`` if a byte was sent, even to a proxy."""
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
    """Return the environment variable that names the proxy for this URL, or None."""
    if proxy_bypass(url.host):
        return None
    names = (f"{url.scheme}_proxy", "all_proxy")
    spelt = (spelling for name in names for spelling in (name, name.upper()))
    return next((name for name in spelt if os.environ.get(name)), None)


def unusable_proxy() -> Problem:
    """Return the proxy variable that httpx2 rejects, and why, without its value."""
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
    if _first(causes, socket.gaierror) or _first(causes, UnicodeError):  # not a valid host name
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
