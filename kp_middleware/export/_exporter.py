"""Exporters: what a user passes to `KnowledgePulse`, and its adapter for a `Sender`."""

import asyncio
from collections.abc import Callable
from inspect import isawaitable
from typing import Any, Protocol

from kp_middleware.errors import RegistryError, RegistryUnavailableError
from kp_middleware.outbox_items import OutboxItem, Receipt


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
            given: object = self._exporter(item)
            if isawaitable(given):
                given = asyncio.run(asyncio.wait_for(given, None))
            return given if isinstance(given, Receipt) else Receipt()
        except RegistryError:
            raise
        except BaseException as error:  # also SystemExit, which would end the thread silently
            words = f"{self.url} raised {type(error).__name__}; it is called again later"
            raise RegistryUnavailableError(words) from error

    def abort(self) -> bool:
        """Return True: a running function cannot be aborted, so the item may have arrived."""
        return True

    def close(self) -> None:
        """Do nothing: the user owns the exporter."""
