"""The HTTP client for the registry."""

import hashlib
import os
import time
import uuid
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Final
from urllib.parse import quote

import httpx2
from pydantic import SecretStr

from kp_middleware.errors import RegistryUnavailableError
from kp_middleware.export._responses import (
    Answer,
    check_complaint,
    check_search,
    exported_ids,
    receipt_of,
)
from kp_middleware.export._transport import (
    Deadline,
    diagnosis,
    keep_deadline,
    named_trust,
    unusable_proxy,
)
from kp_middleware.outbox_items import OutboxItem, Receipt
from kp_middleware.problems import Problem, ProblemKind
from kp_middleware.setting_values import api_key_text, is_loopback, registry_address

_LONGEST_ANSWER_BYTES: Final = 8 * 2**20
_LONGEST_EXPORT_BYTES: Final = 2**30
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
        clock: A monotonic clock, in seconds.
    """

    def __init__(
        self,
        url: str,
        api_key: SecretStr,
        *,
        agent_id: str | None = None,
        timeout_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.agent_id = agent_id  # set before the checks below, so that repr works in a traceback
        self.timeout_s = timeout_s
        self._url = _safe_url(url)
        self._api_key = api_key
        api_key_text(api_key.get_secret_value())
        self._deadline = Deadline(clock)
        self._open_client: httpx2.Client | None = None

    @property
    def url(self) -> str:
        return str(self._url)

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
        return receipt_of(self._ask("POST", headers=headers, content=item.body))

    def reach(self) -> None:
        """Check that the registry answers; sends no key, so that no quota is used."""
        check_search(self._ask("GET", params={"limit": "1"}))

    def check_key(self) -> None:
        """Check that the registry knows the key, by deleting a random id; costs one read."""
        nothing = f"v1/knowledge/kp:trace:{uuid.UUID(bytes=os.urandom(16), version=4)}"
        check_complaint(self._ask("DELETE", nothing, headers=self._signed()), 404)

    def check_scope(self) -> None:
        """Check that the key may write, by posting an empty document; costs one write."""
        headers = {**self._signed(), "Content-Type": "application/json"}
        check_complaint(self._ask("POST", headers=headers, content=b"{}"), 400)

    def export_ids(self, agent_id: str) -> frozenset[str]:
        """Return the ids of all units that the registry stores for the agent; costs one read."""
        path = f"v1/export/{quote(agent_id, safe='')}"
        answer = self._ask("GET", path, headers=self._signed(), most_bytes=_LONGEST_EXPORT_BYTES)
        return exported_ids(answer)

    def hang_up(self) -> bool:
        """Abort this and all further requests, from any thread; return True if a byte was sent."""
        return self._deadline.break_off()

    def close(self) -> None:
        """Close the connections; a later request opens new ones."""
        client, self._open_client = self._open_client, None
        if client is not None:
            client.close()

    def _ask(
        self,
        method: str,
        path: str = "v1/knowledge",
        *,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        content: bytes = b"",
        most_bytes: int = _LONGEST_ANSWER_BYTES,
    ) -> Answer:
        most_bytes += 2 * len(content)  # a 201 response echoes the document
        self._deadline.begin(self.timeout_s)
        try:
            with self._client().stream(
                method, path, headers=headers, params=params, content=content
            ) as response:
                body = self._read(response, most_bytes)
        except (httpx2.HTTPError, OSError, UnicodeError) as exc:
            raise self._unavailable(self._diagnosed(exc)) from None  # it may quote the key
        return Answer(response.status_code, response.headers, body)

    def _read(self, response: httpx2.Response, most_bytes: int) -> bytes:
        if response.status_code == 429:
            return b""  # the headers are enough, even if the body never ends
        body, status = bytearray(), response.status_code
        try:
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > most_bytes:
                    endless = f"{status}: the answer does not end"
                    raise self._unavailable(Problem(ProblemKind.NO_REGISTRY, endless), status)
        except (httpx2.TimeoutException, TimeoutError) as exc:
            slow = Problem(ProblemKind.SLOW, f"{self.timeout_s:g}")
            raise self._unavailable(slow, status) from exc
        return self._without_key(body.decode(errors="replace")).encode()

    def _client(self) -> httpx2.Client:
        if self._open_client is None:
            try:
                self._open_client = self._new_client()
            except RegistryUnavailableError as exc:
                raise self._unavailable(exc.problem) from exc
            except (httpx2.InvalidURL, ImportError, ValueError):
                raise self._unavailable(unusable_proxy()) from None  # it may quote a password
        return self._open_client

    def _new_client(self) -> httpx2.Client:
        client = httpx2.Client(
            base_url=self._url,
            headers={
                "Accept": "application/json",
                "Accept-Encoding": "identity",
                "User-Agent": f"kp-middleware/{version('kp-middleware')}",
            },
            timeout=self.timeout_s,
            limits=httpx2.Limits(keepalive_expiry=_IDLE_S),
            verify=named_trust() or True,
            trust_env=not is_loopback(self._url.host),  # a proxy's loopback is another machine
        )
        keep_deadline(client, self._deadline)
        return client

    def _signed(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._api_key.get_secret_value()}"}

    def _without_key(self, text: str) -> str:
        return text.replace(self._api_key.get_secret_value(), "***")

    def _diagnosed(self, error: Exception) -> Problem:
        problem = diagnosis(
            error, self._url, connected=self._deadline.asked, timeout_s=self.timeout_s
        )
        return problem._replace(detail=self._without_key(problem.detail))

    def _unavailable(self, problem: Problem, status: int | None = None) -> RegistryUnavailableError:
        words = f"at {self.url}, {problem}"
        return RegistryUnavailableError(words, status=status, problem=problem)


def _safe_url(text: str) -> httpx2.URL:
    try:
        url = httpx2.URL(registry_address(text))
    except httpx2.InvalidURL:
        raise ValueError("the registry URL is not valid") from None  # it may hold a password
    return url.copy_with(query=None, fragment=None)
