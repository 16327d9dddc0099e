"""The shared log in PostgreSQL, on one connection."""

from collections.abc import Callable, Mapping, Sequence

from kp_middleware.core.gates import GateHistory
from kp_middleware.sharing import _deciding, _pulling, _revising, _shipping
from kp_middleware.sharing._link import Link
from kp_middleware.sharing._outbox import SharedOutbox
from kp_middleware.sharing._pacing import PaceOfAll
from kp_middleware.sharing._records import Decided, Known, Place, Pulled, SharedRun


class PostgresLog:
    """A `SharedLog` in PostgreSQL; without ``items`` nothing is sent from here."""

    def __init__(
        self, link: Link, pod: str, *, newest: int, items: SharedOutbox | None = None
    ) -> None:
        self.link = link
        self.pod = pod
        self._newest = newest
        self._items = items

    def ship(self, runs: Sequence[SharedRun]) -> Mapping[str, int]:
        """Append runs that stay local; return the place of each, also if it was there before."""
        return _shipping.ship(self.link, runs)

    def places(self, ids: Sequence[str]) -> Mapping[str, int]:
        """Return the places of those of these runs that are in the log."""
        return _shipping.places(self.link, ids)

    def revise(self, run: SharedRun, has_room: Callable[[GateHistory], bool]) -> bool:
        """Write what is known of a run now; return False if it clears now, and may not go today."""
        return _revising.revise(self.link, run, has_room)

    def pull(self, place: Place | None) -> Pulled:
        """Return what other pods have appended since a place."""
        return _pulling.pull(self.link, self.pod, place, newest=self._newest)

    def check(self, place: Place) -> int:
        """Return the first place that is left; raise if another row stands at this one."""
        return _pulling.check(self.link, place)

    def decide(
        self, ids: Sequence[str], place: Place, judge: Callable[[Known], Sequence[Decided]]
    ) -> Mapping[str, int]:
        """Lock the log, let a function decide on runs, and append what it decided."""
        return _deciding.decide(
            self.link, self.pod, ids, place, judge, newest=self._newest, outbox=self._items
        )

    def pace(self, registry: str, agent_id: str | None, key_hash: str) -> PaceOfAll:
        """Return the rate limit that all hosts keep for one agent."""
        return PaceOfAll(self.link, registry=registry, agent_id=agent_id, key_hash=key_hash)

    def outbox(self, registry: str, agent_id: str | None, key_hash: str) -> SharedOutbox:
        """Return the items that all hosts have for one agent."""
        return SharedOutbox.of(self.link, registry, agent_id, key_hash)
