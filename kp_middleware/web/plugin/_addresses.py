"""Where things on our pages lead: to other pages of ours, and to Datasette's tables."""

from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from datasette.utils import tilde_encode

if TYPE_CHECKING:
    from datasette.app import Datasette

_STATES: Final = {
    "recorded": {},
    "queued": {"state__in": "pending,sending,sent,rejected,blocked,cancelled"},
    "sent": {"state": "sent"},
    "blocked": {"state": "blocked"},
    "rejected": {"state": "rejected"},
}
_READABLE: Final = ("id", "started_at", "domain", "objective", "score", "margin", "success")
"""Of the 43 columns of a trace."""


class Addresses:
    """The links of one database: `kp_middleware.web.page.Links`.

    Traces are listed by the view ``history``, whose few columns say what has become of them.
    """

    def __init__(self, datasette: "Datasette", database: str) -> None:
        self._urls = datasette.urls
        self._database = database
        self._pages = str(self._urls.path(f"/-/kp/{tilde_encode(database)}"))

    def overview(self) -> str:
        """To the overview."""
        return self._page("")

    def what_if(self) -> str:
        """To the gate's curve."""
        return self._page("/what-if")

    def search(self) -> str:
        """To what has certain words in it, which are to follow as ``q``."""
        return self._page("/search")

    def found(self, words: str, *, page: int) -> str:
        """To what has these words in it, from a certain page on; 1 is the first."""
        pages = {"page": page} if page > 1 else {}
        return f"{self.search()}?{urlencode({'q': words, **pages})}"

    def trace(self, trace_id: str, /) -> str:
        """To the page of one trace; ``@last`` and ``@best`` are such names, too."""
        name = trace_id.removeprefix("kp:trace:")
        plain = name.isascii() and name.replace("-", "").isalnum()  # and a map has 2,000 of them
        return self._page(f"/traces/{name if plain else tilde_encode(name)}")

    def traces(self, **filters: str) -> str:
        """To such traces, the newest first unless they are sorted otherwise."""
        return self.table("history", **{"_sort_desc": "seq", **filters})

    def scores(self, low: float, high: float, /) -> str:
        """To the traces with such scores, the best first."""
        upper = {"score__lt": f"{high:g}"} if high < 1 else {}
        return self.traces(score__gte=f"{low:g}", **upper, _sort_desc="score")

    def domain(self, name: str, /) -> str:
        """To the traces of a domain, the best first."""
        return self.traces(domain__exact=name, _sort_desc="score")

    def tool(self, name: str, /) -> str:
        """To its calls."""
        return self.table("steps", tool__exact=name, type__exact="tool_call")

    def state(self, name: str, /) -> str | None:
        """To the traces that came so far."""
        if name == "cleared":
            columns = [("_col", column) for column in _READABLE]
            return (
                f"{self.table('traces', decision='forward', _sort_desc='seq')}&{urlencode(columns)}"
            )
        return self.traces(**_STATES[name]) if name in _STATES else None

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
        return f"{self._pages}{rest}"
