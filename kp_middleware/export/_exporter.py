"""Exported items, and custom exporters: callables that replace the registry."""

import re
from collections.abc import Callable
from typing import Any, Protocol

from pydantic_core import to_json

from kp_middleware.errors import RegistryError, RegistryUnavailableError
from kp_middleware.outbox_items import OutboxItem, Receipt
from kp_middleware.traces import ReasoningTrace

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")  # PostgreSQL fails on both: always a 500


class Exporter(Protocol):
    """A callable that exports redacted runs, one at a time.

    Any callable works: ``exported = []`` and ``KnowledgePulse(exporter=exported.append)``. It is
    called in a separate thread, never in the agent's, and at least once for each run.
    """

    def __call__(self, item: OutboxItem, /) -> Receipt | None:
        """Export one run; return None if the destination assigns no id.

        Args:
            item: ``item.body`` is the document as UTF-8 JSON; ``item.idempotency_key`` stays the
                same when the same run is sent again because its delivery is unknown.

        Raises:
            RegistryRejectedError: If this run will never be accepted.
            RegistryForbiddenError: If no run will be accepted in this process.
            RegistryUnavailableError: If a retry may succeed; any other exception means the same.
        """


class OwnExporter:
    """An adapter that lets a `Sender` call a custom exporter."""

    def __init__(self, exporter: Callable[[Any], Receipt | None], name: str | None = None) -> None:
        if not callable(exporter):
            raise TypeError("exporter must be a function of one item, such as list.append")
        self._exporter = exporter
        named = getattr(exporter, "__qualname__", None) or type(exporter).__qualname__
        self.url = f"exporter {name or named}"

    def export(self, item: OutboxItem, /) -> Receipt:
        """Call the exporter; raise any unknown exception as a `RegistryUnavailableError`."""
        try:
            return self._exporter(item) or Receipt()
        except RegistryError:
            raise
        except Exception as error:
            words = f"{self.url} raised {type(error).__name__}; it is called again later"
            raise RegistryUnavailableError(words) from error

    def hang_up(self) -> bool:
        """Return True: a running function cannot be aborted, so the item may have arrived."""
        return True

    def close(self) -> None:
        """Do nothing: the user owns the exporter."""


def payload(trace: ReasoningTrace, *, score: float, agent_id: str | None) -> bytes:
    """Return the exact bytes to post: the trace and its score as UTF-8 JSON without nulls.

    U+0000 and lone surrogates, which no registry can store, become U+FFFD. ``agent_id`` is the
    registered one, or the unit can never be deleted there; None keeps the trace's own.
    """
    if not 0 <= score <= 1:
        raise ValueError(f"a score is from 0 to 1, not {score}")
    named = {} if agent_id is None else {"agent_id": agent_id}
    metadata = trace.metadata.model_copy(update={"quality_score": float(score), **named})
    document = trace.model_copy(update={"metadata": metadata}).model_dump()
    return to_json(_storable(document), inf_nan_mode="null")


def _storable(value: object) -> object:
    match value:
        case str():
            return _UNSTORABLE.sub("\ufffd", value)
        case list() | tuple():
            return [_storable(item) for item in value]
        case dict():
            return {_storable(key): _storable(item) for key, item in value.items()}
        case _:
            return value
