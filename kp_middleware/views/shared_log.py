"""The log that hosts share, as seen from one file."""

from typing import Any, NamedTuple, Self

from kp_middleware.errors import KnowledgePulseError
from kp_middleware.sharing import Link, read_status
from kp_middleware.storage import Unshared


class SharedLogView(NamedTuple):
    """The state of the shared log, and what waits here for it.

    The URL has no password. ``since`` is when the first of the waiting runs began.
    """

    url: str | None
    state: str | None
    problem: str | None
    to_ship: int
    asking: int
    since: str | None

    @classmethod
    def of(cls, url: str | None, unshared: Unshared) -> Self | None:
        """Ask the log; None where there is none and nothing waits for it."""
        if url is None:
            return cls(None, None, None, *unshared) if unshared.since else None
        link = Link(url, "status", writes=False)
        try:
            return cls(link.shown, read_status(link).in_words(), None, *unshared)
        except KnowledgePulseError as error:
            return cls(link.shown, None, str(error), *unshared)
        finally:
            link.close()

    def in_words(self) -> str:
        """Describe the log in one line."""
        if self.url is None:
            return "not set here: KP_SHARED names it"
        return self.problem or f"{self.url}: {self.state}"

    def waiting(self) -> str | None:
        """Describe what waits for it; None if nothing does."""
        if self.since is None:
            return None
        told = [f"{self.to_ship:,} wait to be shipped"] if self.to_ship else []
        told += [f"{self.asking:,} would clear, and wait for it"] if self.asking else []
        return "; ".join([*told, f"the first began {self.since[:19].replace('T', ' ')}"])

    def as_row(self) -> dict[str, Any]:
        """Return it as a row for JSON."""
        return {**self._asdict(), "in_words": self.in_words()}
