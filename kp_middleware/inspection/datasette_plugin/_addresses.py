"""Where things on our pages lead: to other pages of ours, and to Datasette's tables."""

from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from datasette.utils import tilde_encode

if TYPE_CHECKING:
    from datasette.app import Datasette

_STATES: Final = {
    "recorded": ("traces", {}),
    "cleared": ("traces", {"decision": "forward"}),
    "queued": ("outbox", {}),
    "sent": ("outbox", {"state": "sent"}),
    "blocked": ("outbox", {"state": "blocked"}),
    "rejected": ("outbox", {"state": "rejected"}),
}


class Addresses:
    """The links of one database: `kp_middleware.inspection.page.Links`."""

    def __init__(self, datasette: "Datasette", database: str) -> None:
        self._urls = datasette.urls
        self._database = database

    def overview(self) -> str:
        """To the overview."""
        return self._page("")

    def what_if(self) -> str:
        """To the gate's curve."""
        return self._page("/what-if")

    def trace(self, trace_id: str, /) -> str:
        """To the page of one trace; ``@last`` and ``@best`` are such names, too."""
        return self._page(f"/traces/{tilde_encode(trace_id.removeprefix('kp:trace:'))}")

    def scores(self, low: float, high: float, /) -> str:
        """To the traces with such scores, the best first."""
        upper = {"score__lt": f"{high:g}"} if high < 1 else {}
        return self.table("traces", score__gte=f"{low:g}", **upper, _sort_desc="score")

    def domain(self, name: str, /) -> str:
        """To the traces of a domain, the best first."""
        return self.table("traces", domain__exact=name, _sort_desc="score")

    def tool(self, name: str, /) -> str:
        """To the steps that used it."""
        return self.table("steps", tool__exact=name)

    def state(self, name: str, /) -> str | None:
        """To the traces that came so far."""
        if name not in _STATES:
            return None
        table, filters = _STATES[name]
        return self.table(table, **filters)

    def database(self) -> str:
        """To all tables and views, and a place to type SQL."""
        return str(self._urls.database(self._database))

    def table(self, name: str, **filters: str) -> str:
        """To a table or view, or to some of its rows."""
        address = self._urls.table(self._database, name)
        return f"{address}?{urlencode(filters)}" if filters else str(address)

    def row(self, table: str, key: int) -> str:
        """To one row."""
        return str(self._urls.row(self._database, table, str(key)))

    def _page(self, rest: str) -> str:
        return str(self._urls.path(f"/-/kp/{tilde_encode(self._database)}{rest}"))
