"""A local registry for tests: its answers, its rate limit, and the faults it can simulate."""

import math
import random
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from enum import Enum
from http import HTTPStatus
from itertools import starmap
from typing import Final, NamedTuple, Self, TypeAlias
from urllib.parse import unquote

from pydantic import ValidationError
from pydantic_core import from_json

from kp_middleware.instants import instant
from kp_middleware.testing._wire import Answer, Manner, Received, WireServer
from kp_middleware.traces import ReasoningTrace


def _error(status: int, message: str) -> Answer:
    return Answer.of(status, {"error": message})


def _page(status: int) -> Answer:
    """Return an HTML error page, as a proxy would send it."""
    heading = f"<html><h1>{status} {HTTPStatus(status).phrase}</h1></html>"
    return Answer(status, heading.encode(), {"Content-Type": "text/html"})


def _invalid(*issues: dict[str, str]) -> Answer:
    return Answer.of(400, {"error": "Invalid KnowledgeUnit", "issues": issues})


def _over_limit(wait_s: int, **headers: str) -> Answer:
    document = {"error": "Rate limit exceeded", "retry_after": wait_s}
    return Answer.of(429, document, Retry_After=str(wait_s), **headers)


def _limits(*, limit: int, remaining: int) -> dict[str, str]:
    return {"X-RateLimit-Limit": str(limit), "X-RateLimit-Remaining": str(remaining)}


_NO_KEY: Final = _error(401, "Authentication required")
_DEAD_KEY: Final = _over_limit(60, **_limits(limit=0, remaining=0))
_STANDARD_ANSWERS: Final = {
    400: _invalid({"path": "steps.0.type", "message": "Invalid enum value"}),
    403: _error(403, "Write scope required"),
    413: Answer(413),
    500: Answer(500, b"Internal Server Error", {"Content-Type": "text/plain"}),
}


class _WriteLimit:
    """A token bucket that revokes the key at the third refusal within an hour."""

    def __init__(self, burst: int, refill_s: float, clock: Callable[[], float]) -> None:
        self._burst = burst
        self._refill_s = refill_s
        self._clock = clock
        self._tokens = float(burst)
        self._counted_at = clock()
        self.refused_at: list[float] = []
        self.revoked = False

    def allows(self) -> bool:
        """Return whether one more request is allowed, and take a token for it."""
        now = self._clock()
        refilled = self._tokens + (now - self._counted_at) / self._refill_s
        self._tokens, self._counted_at = min(float(self._burst), refilled), now
        is_allowed = self._tokens >= 1
        self._tokens -= is_allowed
        return is_allowed

    def refusal(self) -> Answer:
        """Return a 429 and count it; the third within an hour revokes the key."""
        self.refused_at.append(self._clock())
        within_an_hour = [at for at in self.refused_at[-3:] if self.refused_at[-1] - at < 3600.0]
        self.revoked = self.revoked or len(within_an_hour) == 3
        wait_s = max(1, math.ceil((1 - self._tokens) * self._refill_s))
        return _over_limit(wait_s, **self.headers())

    def headers(self) -> dict[str, str]:
        """Return the rate limit headers of each answer."""
        return _limits(limit=round(60 / self._refill_s), remaining=int(self._tokens))


class _Treatment(NamedTuple):
    """The handling of a request: its delivery, whether it is stored, and another answer."""

    manner: Manner = "whole"
    stores: bool = False
    answers: Answer | None = None


class Fault(Enum):
    """A failure of the registry, or of a proxy in front of it, on one request.

    Faults named ``STORE…`` store the document without confirming it; the others, up to
    ``DEAD_KEY``, ignore it.

    Attributes:
        HANG: Sends nothing until the client disconnects.
        RESET: Resets the connection.
        HANG_UP: Closes the connection without an answer.
        CUT: Begins a 201 and closes the connection halfway through.
        NONSENSE: Answers 201 with a proxy's page.
        NO_REPUTATION: Answers 403: the agent is not in good standing.
        DEAD_KEY: Answers 429 with a limit of 0.
        DRIP: Stores the document, and answers byte by byte.
        CRAWL: Stores the document, and takes half a minute for an answer, byte by byte.
        CLOSE_IDLE: Stores the document, then closes the kept-alive connection.
        STORE_AND_HANG: Stores the document, and sends nothing.
        STORE_AND_RESET: Stores the document, and resets the connection.
        STORE_AND_CUT: Stores the document, and sends half of the answer.
        STORE_AND_FAIL: Stores the document, and answers 500.
        STORE_AND_BABBLE: Stores the document, and answers 201 with a proxy's page.
    """

    HANG = _Treatment("silent")
    RESET = _Treatment("reset")
    HANG_UP = _Treatment("closed")
    CUT = _Treatment("cut", answers=_page(201))
    NONSENSE = _Treatment(answers=_page(201))
    NO_REPUTATION = _Treatment(answers=_error(403, "Minimum KP-REP score of 0.1 required"))
    DEAD_KEY = _Treatment(answers=_DEAD_KEY)
    DRIP = _Treatment("dripping", stores=True)
    CRAWL = _Treatment("crawling", stores=True)
    CLOSE_IDLE = _Treatment("last", stores=True)
    STORE_AND_HANG = _Treatment("silent", stores=True)
    STORE_AND_RESET = _Treatment("reset", stores=True)
    STORE_AND_CUT = _Treatment("cut", stores=True)
    STORE_AND_FAIL = _Treatment(stores=True, answers=_STANDARD_ANSWERS[500])
    STORE_AND_BABBLE = _Treatment(stores=True, answers=_page(201))

    @classmethod
    def mixed(
        cls, weights: Mapping[int | Self | None, float], *, seed: int
    ) -> Callable[[Received], int | Self | None]:
        """Return a script for a `LocalRegistry` that picks a fault at random for each request.

        Args:
            weights: The relative frequency of each; None means no fault.
            seed: The random seed.

        >>> script = Fault.mixed({None: 8, 503: 1, Fault.HANG: 1}, seed=7)
        """
        luck, choices = random.Random(seed), tuple(weights)  # noqa: S311 - guards nothing
        return lambda _: luck.choices(choices, tuple(weights.values()))[0]


Behaviour: TypeAlias = int | Answer | Fault
"""The response to one POST: a status, answered as by the real registry, an answer or a fault."""

Script: TypeAlias = Iterable[Behaviour] | Callable[[Received], Behaviour | None]
"""The responses to POSTs; None, 201 and the end of a list mean the real registry's own."""


class LocalRegistry:
    """A real HTTP server on loopback that answers as the reference registry does.

    It has ``/v1/knowledge``, to contribute, list and delete, and ``/v1/export``. It checks in the
    same order: rate limit, idempotency key, scope, JSON, schema. The third 429 within an hour
    revokes the key. Reading is not limited.

    Args:
        answers: Statuses, answers or faults for the first POSTs, in order, or a function of the
            request, such as `Fault.mixed` returns.
        burst: The number of POSTs allowed at once.
        refill_s: The seconds until one more is allowed.
        may_write: Whether the key has the write scope; without it, POSTs get 403.
        replays: Whether a known idempotency key gets its old answer again, as with Redis.
        agent_id: The agent of the key, which may delete and export this agent's documents; None
            means any agent's.
        clock: Returns seconds, for the rate limit.

    Attributes:
        most_at_once: The highest number of concurrent requests.
        times_stored: How often each document was stored, by id; above 1, it was overwritten.

    >>> from pydantic import SecretStr
    >>> from kp_middleware.export import Registry, payload
    >>> from kp_middleware.outbox_items import OutboxItem
    >>> from kp_middleware.traces import Step
    >>> trace = ReasoningTrace.of("add 1 and 2", [Step(step_id=0, type="thought", content="3")])
    >>> with LocalRegistry() as local:
    ...     registry = Registry(local.url, SecretStr(local.api_key))
    ...     body = payload(trace, score=0.9, agent_id=None)
    ...     receipt = registry.export(OutboxItem(1, body, "key"))
    ...     registry.close()
    >>> receipt.status, local.documents[receipt.remote_id].metadata.quality_score
    (201, 0.9)
    """

    def __init__(
        self,
        *,
        answers: Script = (),
        burst: int = 30,
        refill_s: float = 2.0,
        may_write: bool = True,
        replays: bool = False,
        agent_id: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.api_key = f"kp_{secrets.token_hex(32)}"
        script = iter(() if callable(answers) else answers)
        self._next_answer = answers if callable(answers) else lambda _: next(script, None)
        self._limit = _WriteLimit(burst, refill_s, clock)
        self._may_write = may_write
        self._replays = replays
        self._agent_id = agent_id
        self._replayable: dict[str, Answer] = {}
        self._stored: dict[str, tuple[ReasoningTrace, str]] = {}
        self._concurrent = 0
        self._requests: list[Received] = []
        self.times_stored: Counter[str] = Counter()
        self.most_at_once = 0
        self._lock, self._count_lock = threading.Lock(), threading.Lock()
        self._server: WireServer | None = None

    @property
    def url(self) -> str:
        """The base URL.

        Raises:
            RuntimeError: Outside of the ``with`` statement.
        """
        if self._server is None:
            raise RuntimeError("a LocalRegistry has a URL only inside its with statement")
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def documents(self) -> Mapping[str, ReasoningTrace]:
        """The stored documents, by id."""
        return {trace_id: trace for trace_id, (trace, _) in self._stored.items()}

    @property
    def times_received(self) -> Mapping[str, int]:
        """The number of times each document was received, by id, whatever the answer."""
        sent = (from_json(request.body) for request in self._requests if request.body)
        return Counter(document["id"] for document in sent if "id" in document)

    @property
    def requests(self) -> tuple[Received, ...]:
        """The requests received, in order, whatever the answer."""
        return tuple(self._requests)

    @property
    def refused_at(self) -> tuple[float, ...]:
        """The times of the 429 answers with a positive limit, by the registry's clock."""
        return tuple(self._limit.refused_at)

    @property
    def revoked(self) -> bool:
        """True if the key is revoked."""
        return self._limit.revoked

    def forget(self) -> None:
        """Delete all stored documents, as a restart without a disk does."""
        with self._lock:
            self._stored.clear()

    def revoke(self) -> None:
        """Revoke the key."""
        self._limit.revoked = True

    def __enter__(self) -> Self:
        self._server = WireServer(self._answer)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def _answer(self, received: Received) -> Answer:
        with self._count_lock:
            self._concurrent += 1
            self.most_at_once = max(self.most_at_once, self._concurrent)
        try:
            with self._lock:
                self._requests.append(received)
                return self._route(received)
        finally:
            with self._count_lock:
                self._concurrent -= 1

    def _route(self, received: Received) -> Answer:
        path = received.path.partition("?")[0]
        match received.method, path.removeprefix("/v1/").partition("/"):
            case "GET", ("knowledge", _, ""):
                listed = [*starmap(_entry, self._stored.values())]
                return Answer.of(200, {"data": listed, "total": len(listed)})
            case "POST", ("knowledge", _, ""):
                return self._post(received)
            case "DELETE", ("knowledge", _, name):
                return self._delete(unquote(name)) if self._is_authorized(received) else _NO_KEY
            case "GET", ("export", _, name):
                return self._export(unquote(name)) if self._is_authorized(received) else _NO_KEY
        return _error(404, "Not found")

    def _post(self, received: Received) -> Answer:
        match self._next_answer(received):
            case None | 201:
                return self._contribute(received)
            case 429:
                return self._limit.refusal()
            case int(status) if status > 500:
                return _page(status)
            case int(status):
                return _STANDARD_ANSWERS.get(status) or _error(status, HTTPStatus(status).phrase)
            case Fault() as fault:
                manner, stores, answers = fault.value
                answer = self._contribute(received) if stores else Answer(201)
                return replace(answers or answer, manner=manner)
            case answer:
                return answer

    def _contribute(self, received: Received) -> Answer:
        if not self._is_authorized(received):
            return _DEAD_KEY
        if not self._limit.allows():
            return self._limit.refusal()
        name = received.headers.get("idempotency-key", "")
        answer = self._replayable.get(name) or self._validate(received.body)
        if self._replays and name and answer.status < 500:
            self._replayable[name] = answer
        return replace(answer, headers={**answer.headers, **self._limit.headers()})

    def _validate(self, body: bytes) -> Answer:
        if not self._may_write:
            return _STANDARD_ANSWERS[403]
        try:
            trace = ReasoningTrace.model_validate(from_json(body, allow_inf_nan=False))
        except ValidationError as exc:
            issues = ((".".join(map(str, one["loc"])), one["msg"]) for one in exc.errors())
            return _invalid(*({"path": path, "message": message} for path, message in issues))
        except ValueError:
            return _STANDARD_ANSWERS[500]
        self.times_stored[trace.id] += 1
        self._stored[trace.id] = trace, instant(time.time())
        entry = _entry(*self._stored[trace.id])
        return Answer.of(201, {"data": entry, "quality_score": trace.metadata.quality_score})

    def _is_authorized(self, received: Received) -> bool:
        authorized = received.headers.get("authorization") == f"Bearer {self.api_key}"
        return authorized and not self.revoked

    def _delete(self, name: str) -> Answer:
        """Delete a document; a read-only key may delete its own agent's."""
        trace = self.documents.get(name)
        if trace is None:
            return _error(404, "Knowledge unit not found")
        if self._agent_id not in {None, trace.metadata.agent_id}:
            return _error(403, "Forbidden: can only delete your own contributions")
        del self._stored[name]
        return Answer.of(200, {"deleted": True, "unit_id": name})

    def _export(self, agent_id: str) -> Answer:
        if self._agent_id not in {None, agent_id}:
            return _error(403, "Forbidden: can only export your own data")
        traces = self.documents.values()
        theirs = [trace for trace in traces if trace.metadata.agent_id == agent_id]
        units = [trace.model_dump(mode="json") for trace in theirs]
        export = {"agent_id": agent_id, "total_contributions": len(units), "knowledge_units": units}
        return Answer.of(200, {"data": export})


def _entry(trace: ReasoningTrace, stored_at: str) -> dict[str, object]:
    return {
        "id": trace.id,
        "unit": trace.model_dump(mode="json"),
        "visibility": trace.metadata.visibility,
        "created_at": stored_at,
        "updated_at": stored_at,
    }
