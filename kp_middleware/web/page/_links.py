"""Where things on a page lead."""

from typing import Protocol


class Links(Protocol):
    """Where each thing leads; None means that it leads nowhere."""

    def trace(self, trace_id: str, /) -> str | None:
        """To one trace."""

    def scores(self, low: float, high: float, /) -> str | None:
        """To the traces whose scores lie from ``low`` up to ``high``, without ``high``."""

    def domain(self, name: str, /) -> str | None:
        """To the traces of a domain."""

    def tool(self, name: str, /) -> str | None:
        """To the traces that used a tool."""

    def state(self, name: str, /) -> str | None:
        """To the traces that came so far: ``recorded``, ``cleared``, ``queued``, and so on."""
