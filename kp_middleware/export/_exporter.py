"""Where runs that cleared go: the registry, or what the user puts in its place."""

from typing import Protocol

from kp_middleware.errors import RegistryError, RegistryUnavailableError
from kp_middleware.outbox_items import OutboxItem, Receipt


class Exporter(Protocol):
    """Takes redacted runs to where they are shared, one at a time.

    Any callable will do: ``exported = []`` and ``KnowledgePulse(exporter=exported.append)``. It is
    called in a thread of its own, never in the agent's, and at least once for each run.
    """

    def __call__(self, item: OutboxItem, /) -> Receipt | None:
        """Take one run; None means that it arrived, and has no id there.

        Args:
            item: ``item.body`` is the document as UTF-8 JSON; ``item.idempotency_key`` is the same
                where the same run comes again, because nobody knows whether it arrived.

        Raises:
            RegistryRejectedError: If this run will never be taken.
            RegistryForbiddenError: If no run will, in this process.
            RegistryUnavailableError: If it is worth trying again later; so is any other exception.
        """


class OwnExporter:
    """An exporter of the user's, as a `Sender` calls it.

    Attributes:
        url: Names it in the outbox, such as ``exporter list.append``.

    Raises:
        TypeError: If it cannot be called.
    """

    def __init__(self, exporter: Exporter) -> None:
        if not callable(exporter):
            raise TypeError("exporter is a function that takes one item, such as a list's append")
        self._exporter = exporter
        named = getattr(exporter, "__qualname__", None) or type(exporter).__qualname__
        self.url = f"exporter {named}"

    def export(self, item: OutboxItem, /) -> Receipt:
        """Call it, and turn what it raises into what the sender knows."""
        try:
            return self._exporter(item) or Receipt()
        except RegistryError:
            raise
        except Exception as error:
            words = f"{self.url} raised {type(error).__name__}; it is called again later"
            raise RegistryUnavailableError(words) from error

    def hang_up(self) -> bool:
        """Return that the item in hand may have arrived: nothing can break off a function."""
        return True

    def close(self) -> None:
        """Leave it open: it is the user's."""
