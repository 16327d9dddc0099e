"""Datasette's databases that are our files: permissions and links."""

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlencode

from datasette.utils import tilde_encode

from kp_middleware.storage import SCHEMA, TROUBLE, schema_of

if TYPE_CHECKING:
    from datasette.app import Datasette

Actor: TypeAlias = dict[str, Any] | None


def our_files(datasette: "Datasette") -> dict[str, Path]:
    """Return our files, those of older versions, too, by the names of their databases."""
    named = {name: database.path for name, database in datasette.databases.items()}
    paths = {name: Path(path) for name, path in named.items() if path}
    return {name: path for name, path in paths.items() if _is_ours(path)}


def _is_ours(path: Path) -> bool:
    """Open a file again only where it or its WAL has changed: each page and each cell asks."""
    look, wal = _look(path), _look(path.with_name(f"{path.name}-wal"))
    return look is not None and _opens(path, look, wal)


def _look(path: Path) -> tuple[int, ...] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


@lru_cache
def _opens(path: Path, *_: tuple[int, ...] | None) -> bool:
    try:
        return 0 < schema_of(path) <= SCHEMA
    except TROUBLE:
        return False


async def may_see(datasette: "Datasette", actor: Actor, database: str) -> bool:
    """Return whether Datasette lets this actor read all of a database, as our pages show it."""
    try:
        from datasette.resources import DatabaseResource
    except ImportError:
        # 0.65, where the permission to use SQL does not imply that to see the database
        wanted = [("execute-sql", database)], [("view-database", database), "view-instance"]
        seen = [await datasette.check_visibility(actor, permissions=each) for each in wanted]
        return all(visible for visible, _ in seen)
    resource = DatabaseResource(database)
    return bool(await datasette.allowed(action="execute-sql", resource=resource, actor=actor))


class Addresses:
    """The links of one database, as `Links` names them."""

    def __init__(self, datasette: "Datasette", database: str, *, since: str = "") -> None:
        self._datasette = datasette
        self._urls = datasette.urls
        self._database = database
        self._since = since
        self._pages = str(self._urls.path(f"/-/kp/{tilde_encode(database)}"))

    def since(self, day: str) -> "Addresses":
        """Return the same with all links to runs limited to those since a day, if one is given."""
        return Addresses(self._datasette, self._database, since=day)

    def overview(self, **options: str) -> str:
        """Return the address of the overview."""
        return self._page(f"?{urlencode(options)}" if options else "")

    def what_if(self) -> str:
        """Return the address of the gate's curve."""
        return self._page("/what-if")

    def runs(self, **filters: str) -> str:
        """Return the address of the runs that match, the newest first."""
        if self._since:
            filters = {"since": self._since, **filters}
        return self._page(f"/runs?{urlencode(filters)}" if filters else "/runs")

    def review(self) -> str:
        """Return the address of the runs to judge."""
        return self._page("/review")

    def compare(self, left: str, right: str = "") -> str:
        """Return the address of two runs side by side."""
        return self._page(f"/compare?{urlencode({'left': left, 'right': right})}")

    def conversation(self, thread: str) -> str:
        """Return the address of the runs of one conversation."""
        return self._page(f"/conversations/{tilde_encode(thread)}")

    def theme(self, name: str) -> str:
        """Return the address that keeps a theme for this browser."""
        return self._page(f"/theme/{name}")

    def trace(self, trace_id: str, /) -> str:
        """Return the address of one run; ``@last`` and ``@best`` are such names, too."""
        name = trace_id.removeprefix("kp:trace:")
        plain = name.isascii() and name.replace("-", "").isalnum()  # and a map has 2,000 of them
        return self._page(f"/traces/{name if plain else tilde_encode(name)}")

    def database(self) -> str:
        """Return the address of all tables and views, and a place to type SQL."""
        return str(self._urls.database(self._database))

    def row(self, table: str, key: int) -> str:
        """Return the address of one row."""
        return str(self._urls.row(self._database, table, str(key)))

    def _page(self, rest: str) -> str:
        return f"{self._pages}{rest}"
