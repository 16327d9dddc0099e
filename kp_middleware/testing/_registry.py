"""A registry on this machine, for tests."""

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from http import HTTPStatus
from types import TracebackType
from typing import Final, Self, TypeAlias
from urllib.parse import urlsplit

from pydantic import ValidationError
from pydantic_core import ErrorDetails, from_json

from kp_middleware.testing._shelf import Shelf
from kp_middleware.testing._wire import Answer, Received, WireServer
from kp_middleware.testing._write_limit import WriteLimit, dead_key
from kp_middleware.traces import ReasoningTrace

Script: TypeAlias = Iterable[int | Answer] | Callable[[Received], int | Answer | None]
"""What POSTs are answered; a function's None, 201 and the end of a list mean: as the real one."""

_LARGEST_BYTES: Final = 128 * 2**20
_TROUBLE: Final = Answer(500, b"Internal Server Error", {"Content-Type": "text/plain"})
_NO_SCOPE: Final = Answer.of(403, {"error": "Write scope required"})
_TOO_LARGE: Final = Answer(413)


class LocalRegistry:
    """A real HTTP server on loopback that answers ``/v1/knowledge`` as the reference registry does.

    It checks in the same order: rate limit, idempotency key, scope, JSON, schema. The third 429
    within an hour revokes the key. Reading is not limited.

    Args:
        answers: Statuses or answers for the first POSTs, in order, or a function of the request.
        burst: How many POSTs may follow one another at once.
        refill_s: One more is allowed per so many seconds.
        may_write: Whether the key has the scope; without it all is 403.
        replays: Whether a known idempotency key gets its old answer again, as where there is Redis.
        clock: Seconds, for the rate limit.

    >>> from pydantic import SecretStr
    >>> from kp_middleware.forwarding import Registry, payload
    >>> from kp_middleware.parcels import Parcel
    >>> from kp_middleware.traces import Step
    >>> trace = ReasoningTrace.of("add 1 and 2", [Step(step_id=0, type="thought", content="3")])
    >>> with LocalRegistry() as local:
    ...     registry = Registry(local.url, SecretStr(local.api_key))
    ...     receipt = registry.submit(Parcel(1, payload(trace, score=0.9, agent_id=None), "key"))
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
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.api_key = f"kp_{secrets.token_hex(32)}"
        self._next_answer = answers if callable(answers) else _one_by_one(answers)
        self._limit = WriteLimit(burst, refill_s, clock)
        self._may_write = may_write
        self._replays = replays
        self._answered: dict[str, Answer] = {}
        self._shelf = Shelf()
        self._requests: list[Received] = []
        self._lock = threading.Lock()
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
        """What is stored, by id."""
        return self._shelf.traces()

    @property
    def requests(self) -> tuple[Received, ...]:
        """What was received, in order, whatever the answer."""
        return tuple(self._requests)

    @property
    def revoked(self) -> bool:
        """Whether the key is dead."""
        return self._limit.revoked

    def __enter__(self) -> Self:
        self._server = WireServer(self._answer)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def _answer(self, received: Received) -> Answer:
        with self._lock:
            self._requests.append(received)
            if urlsplit(received.path).path != "/v1/knowledge":
                return Answer.of(404, {"error": "Not found"})
            if received.method == "GET":
                return Answer.of(200, self._shelf.search(urlsplit(received.path).query))
            return self._scripted(received) or self._contribution(received)

    def _scripted(self, received: Received) -> Answer | None:
        match self._next_answer(received):
            case None | 201:
                return None
            case 429:
                return self._limit.refusal()
            case int(status):
                return _canned(status)
            case answer:
                return answer

    def _contribution(self, received: Received) -> Answer:
        authorized = received.headers.get("authorization") == f"Bearer {self.api_key}"
        if self.revoked or not authorized:
            return dead_key()
        if not self._limit.allows():
            return self._limit.refusal()
        name = received.headers.get("idempotency-key", "")
        answer = self._answered.get(name) or self._judged(received.body)
        if self._replays and name and answer.status < 500:
            self._answered[name] = answer
        limits = {name.replace("_", "-"): text for name, text in self._limit.headers().items()}
        return replace(answer, headers={**answer.headers, **limits})

    def _judged(self, body: bytes) -> Answer:
        if len(body) > _LARGEST_BYTES:
            return _TOO_LARGE
        if not self._may_write:
            return _NO_SCOPE
        try:
            trace = ReasoningTrace.model_validate(from_json(body, allow_inf_nan=False))
        except ValidationError as exc:
            return _invalid(exc.errors())
        except ValueError:
            return _TROUBLE
        return Answer.of(201, self._shelf.put(trace))


def _one_by_one(answers: Iterable[int | Answer]) -> Callable[[Received], int | Answer | None]:
    left = iter(answers)
    return lambda _: next(left, None)


def _canned(status: int) -> Answer:
    match status:
        case 400:
            issue = {"path": "steps.0.type", "message": "Invalid enum value"}
            return Answer.of(400, {"error": "Invalid KnowledgeUnit", "issues": [issue]})
        case 403:
            return _NO_SCOPE
        case 413:
            return _TOO_LARGE
        case 500:
            return _TROUBLE
        case _:
            return Answer.of(status, {"error": HTTPStatus(status).phrase})


def _invalid(errors: list[ErrorDetails]) -> Answer:
    issues = [
        {"path": ".".join(str(part) for part in error["loc"]), "message": error["msg"]}
        for error in errors
    ]
    return Answer.of(400, {"error": "Invalid KnowledgeUnit", "issues": issues})
