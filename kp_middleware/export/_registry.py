"""The HTTP client for the registry: its deadline, trusted certificates, proxies, diagnosis."""

import hashlib
import os
import socket
import ssl
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import version
from typing import Any, Final, TypeVar
from urllib.parse import quote
from urllib.request import proxy_bypass

import httpx2
from pydantic import SecretStr

from kp_middleware.errors import Problem, ProblemKind, RegistryUnavailableError
from kp_middleware.export._responses import (
    RegistryResponse,
    check_search,
    expect_error,
    exported_ids,
    receipt_of,
)
from kp_middleware.outbox_items import OutboxItem, Receipt
from kp_middleware.setting_values import checked_api_key, checked_registry_url, is_loopback

E = TypeVar("E", bound=BaseException)

_UNTRUSTED: Final = frozenset({18, 19, 20, 21})
"""OpenSSL's codes for an untrusted chain; all others mean an invalid certificate."""

_CERTIFICATE_FILES: Final = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_PROXIES: Final = (
    *("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY"),
    *("all_proxy", "ALL_PROXY"),
)
_IDLE_S: Final = 5.0  # the registry closes idle connections after 8


class Registry:
    """A client for a registry with one API key, which connects on the first request.

    No request is retried: a connection that died while idle is replaced before it is used,
    everything else is up to the sender.

    Args:
        url: ``https``, or ``http`` on this machine.
        api_key: Never in a message, a log or a ``repr``.
        agent_id: The agent that the key belongs to, or None if unknown.
        timeout_s: The limit for a whole request, from connecting to the response's last byte.
    """

    def __init__(
        self, url: str, api_key: SecretStr, *, agent_id: str | None = None, timeout_s: float = 10.0
    ) -> None:
        self.agent_id = agent_id  # set before the checks below, so that repr works in a traceback
        self.timeout_s = timeout_s
        try:
            address = httpx2.URL(checked_registry_url(url))
        except httpx2.InvalidURL:
            raise ValueError("the registry URL is not valid") from None  # it may hold a password
        self._address = address.copy_with(query=None, fragment=None)
        self.url = str(self._address)
        self._api_key = api_key
        checked_api_key(api_key.get_secret_value())
        self._request = _Request()
        self._open_client: httpx2.Client | None = None

    @property
    def key_hash(self) -> str:
        """A hash that identifies the API key without revealing it."""
        key = self._api_key.get_secret_value()
        return hashlib.sha256(f"kp-middleware\n{key}".encode()).hexdigest()

    def __repr__(self) -> str:
        return f"Registry({self.url!r}, agent_id={self.agent_id!r})"

    def export(self, item: OutboxItem, /) -> Receipt:
        """Post one document, or raise the RegistryError that says what to do."""
        headers = {
            **self._signed(),
            "Content-Type": "application/json",
            "Idempotency-Key": item.idempotency_key,
        }
        return receipt_of(self._send("POST", headers=headers, content=item.body))

    def reach(self) -> None:
        """Check that the registry answers; sends no key, so that no quota is used."""
        check_search(self._send("GET", "v1/knowledge?limit=1"))

    def check_key(self) -> None:
        """Check that the registry knows the key, by deleting a random id; costs one read."""
        nothing = f"v1/knowledge/kp:trace:{uuid.UUID(bytes=os.urandom(16), version=4)}"
        expect_error(self._send("DELETE", nothing, headers=self._signed()), 404)

    def check_scope(self) -> None:
        """Check that the key may write, by posting an empty document; costs one write."""
        headers = {**self._signed(), "Content-Type": "application/json"}
        expect_error(self._send("POST", headers=headers, content=b"{}"), 400)

    def export_ids(self, agent_id: str) -> frozenset[str]:
        """Return the ids of all units that the registry stores for the agent; costs one read."""
        path = f"v1/export/{quote(agent_id, safe='')}"
        answer = self._send("GET", path, headers=self._signed(), most_bytes=2**30)
        return exported_ids(answer)

    def abort(self) -> bool:
        """Abort this and all further requests, from any thread; return True if a byte was sent."""
        return self._request.abort()

    def close(self) -> None:
        """Close the connections; a later request opens new ones."""
        client, self._open_client = self._open_client, None
        if client is not None:
            client.close()

    def _send(
        self,
        method: str,
        path: str = "v1/knowledge",
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes = b"",
        most_bytes: int = 8 * 2**20,
    ) -> RegistryResponse:
        most_bytes += 2 * len(content)  # a 201 response echoes the document
        try:
            with (
                self._request.deadline(self.timeout_s),
                self._client().stream(
                    method,
                    path,
                    headers=headers,
                    content=content,
                    extensions={"trace": self._request.trace},
                ) as response,
            ):
                body = self._read(response, most_bytes)
        except (httpx2.HTTPError, OSError, UnicodeError) as exc:
            error = TimeoutError() if self._request.has_timed_out else exc
            was_sent, timeout_s = self._request.was_sent, self.timeout_s
            problem = _diagnosis(error, self._address, connected=was_sent, timeout_s=timeout_s)
            safe = problem._replace(detail=self._without_key(problem.detail))
            raise self._unavailable(safe) from None
        headers = httpx2.Headers(
            [(name, self._without_key(text)) for name, text in response.headers.multi_items()],
            encoding="utf-8",
        )
        return RegistryResponse(response.status_code, headers, body)

    def _read(self, response: httpx2.Response, most_bytes: int) -> bytes:
        if response.status_code == 429:
            return b""  # the headers are enough, even if the body never ends
        body, status = bytearray(), response.status_code
        try:
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > most_bytes:
                    endless = f"{status}: the response does not end"
                    raise self._unavailable(Problem(ProblemKind.NO_REGISTRY, endless), status)
        except (httpx2.HTTPError, OSError) as exc:
            if not (self._request.has_timed_out or isinstance(exc, httpx2.TimeoutException)):
                raise
            self._request.has_timed_out = True
        if self._request.has_timed_out:
            slow = Problem(ProblemKind.SLOW, f"{self.timeout_s:g}")
            raise self._unavailable(slow, status)
        return self._without_key(body.decode(errors="replace")).encode()

    def _client(self) -> httpx2.Client:
        if self._open_client is not None:
            return self._open_client
        try:
            client = httpx2.Client(
                base_url=self._address,
                headers={
                    "Accept": "application/json",
                    "Accept-Encoding": "identity",
                    "User-Agent": f"kp-middleware/{version('kp-middleware')}",
                },
                timeout=self.timeout_s,
                limits=httpx2.Limits(keepalive_expiry=_IDLE_S),
                verify=_named_trust() or True,
                trust_env=not is_loopback(self._address.host),  # a proxy has its own loopback
            )
        except RegistryUnavailableError as exc:
            raise self._unavailable(exc.problem) from exc
        except (httpx2.InvalidURL, ImportError, ValueError) as exc:
            raise self._unavailable(_unusable_proxy(exc)) from None  # it may quote a password
        self._open_client = client
        return client

    def _signed(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._api_key.get_secret_value()}"}

    def _without_key(self, text: str) -> str:
        return text.replace(self._api_key.get_secret_value(), "***")

    def _unavailable(self, problem: Problem, status: int | None = None) -> RegistryUnavailableError:
        words = f"at {self.url}, {problem}"
        return RegistryUnavailableError(words, status=status, problem=problem)


class _Request:
    """The current request, which ends when its time is up, or from any thread by `abort`.

    httpx2's timeout begins anew with every byte received: a timer shuts the socket down.
    """

    def __init__(self) -> None:
        self.was_sent = False  # whether a byte of it was sent
        self.has_timed_out = False
        self._is_aborted = False
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None

    @contextmanager
    def deadline(self, seconds: float) -> Iterator[None]:
        self.was_sent = self.has_timed_out = False
        timer = threading.Timer(seconds, self._abort_at_deadline)
        timer.daemon = True
        with suppress(RuntimeError):  # no thread starts while a process exits: it hangs up itself
            timer.start()
        try:
            yield
        finally:
            timer.cancel()
            if timer.ident is not None:
                timer.join()  # or it could end the next request

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Follow httpx2's events, and raise OSError if the request has ended."""
        match event.partition(".")[2]:
            case "connect_tcp.complete" | "start_tls.complete":
                self._socket = info["return_value"].get_extra_info("socket")
            case "connect_tcp.started" | "start_tls.started" | "send_request_headers.started":
                with self._lock:
                    if self._is_aborted:
                        raise ConnectionAbortedError("broken off")
                    if self.has_timed_out:
                        raise TimeoutError("the whole request timed out")
                    self.was_sent = self.was_sent or event.endswith("send_request_headers.started")

    def abort(self) -> bool:
        """Abort the current request and all later ones; return True if a byte was sent."""
        with self._lock:
            self._is_aborted = True
        self._shut_down()
        return self.was_sent

    def _abort_at_deadline(self) -> None:
        self.has_timed_out = True
        self._shut_down()

    def _shut_down(self) -> None:
        if self._socket is not None:
            with suppress(OSError):  # already closed; bypasses TLS, which may be in use
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


def _named_trust() -> ssl.SSLContext | None:
    """Return an SSL context that trusts only the certificates named in the environment, or None."""
    files = [name for name in _CERTIFICATE_FILES if os.environ.get(name)][:1]
    named = [*files, *(["SSL_CERT_DIR"] if os.environ.get("SSL_CERT_DIR") else [])]
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


def _diagnosis(
    error: BaseException, url: httpx2.URL, *, connected: bool, timeout_s: float
) -> Problem:
    """Return why a request got no answer; ``connected`` if a byte was sent, even to a proxy."""
    if certificate := _cause(error, ssl.SSLCertVerificationError):
        untrusted = certificate.verify_code in _UNTRUSTED
        kind = ProblemKind.UNTRUSTED if untrusted else ProblemKind.BAD_CERTIFICATE
        return Problem(kind, certificate.verify_message)
    names = (name for name in _PROXIES if name.lower() in {f"{url.scheme}_proxy", "all_proxy"})
    proxy = next((name for name in names if os.environ.get(name)), None)
    if proxy and proxy_bypass(url.host):
        proxy = None
    if proxy and isinstance(error, httpx2.ProxyError):
        return Problem(ProblemKind.PROXY_REFUSES, f"{proxy} {error}")
    why = str(error)
    if _cause(error, ConnectionRefusedError):
        problem, why = Problem(ProblemKind.REFUSED), "connection refused"
    elif _cause(error, socket.gaierror, UnicodeError):  # not a valid host name
        problem, why = Problem(ProblemKind.UNKNOWN_HOST, url.host), "no such host"
    elif isinstance(error, httpx2.TimeoutException | TimeoutError):
        kind = ProblemKind.SILENCE if connected else ProblemKind.NO_CONNECTION
        problem, why = Problem(kind, f"{timeout_s:g}"), "no answer"
    elif tls := _cause(error, ssl.SSLError):
        problem = Problem(ProblemKind.NO_TLS, tls.reason or str(tls))
    elif isinstance(error, httpx2.ConnectError):
        problem = Problem(ProblemKind.UNREACHABLE, why)
    else:
        problem = Problem(ProblemKind.BROKEN, f"{type(error).__name__}: {error}")
    return Problem(ProblemKind.PROXY, f"{proxy} {why}") if proxy and not connected else problem


def _unusable_proxy(error: Exception) -> Problem:
    why = "its address is not a URL such as http://proxy.example:3128"
    if isinstance(error, ImportError):
        why = "SOCKS needs the package httpx2[socks]"
    named = ",".join(name for name in _PROXIES if os.environ.get(name))
    return Problem(ProblemKind.PROXY_UNUSABLE, f"{named} {why}")


def _cause(error: BaseException | None, *kinds: type[E]) -> E | None:
    while error is not None and not isinstance(error, kinds):
        error = error.__cause__ or error.__context__
    return error
