"""Which of Datasette's databases are files of ours."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakKeyDictionary

from kp_middleware.database import MIGRATIONS, TROUBLE, connect, schema_of

if TYPE_CHECKING:
    from datasette.app import Datasette


class _Look(NamedTuple):
    """A file as it was when it was opened: another in its place, or a changed one, differs."""

    device: int
    inode: int
    size: int
    changed_ns: int


_known: Final[dict[Path, tuple[_Look, bool]]] = {}
_first: "Final[WeakKeyDictionary[Datasette, dict[Path, _Look]]]" = WeakKeyDictionary()


def our_files(datasette: "Datasette") -> dict[str, Path]:
    """By the names of their databases."""
    named = {name: database.path for name, database in datasette.databases.items()}
    paths = {name: Path(path) for name, path in named.items() if path}
    ours = {name: path for name, path in paths.items() if _is_ours(path)}
    first = _first.setdefault(datasette, {})
    for path in ours.values():
        first.setdefault(path, _known[path][0])
    return ours


def older_file(datasette: "Datasette", name: str) -> Path | None:
    """Where the file of this name is, if it is ours, and was of an older version when looked at."""
    database = datasette.databases.get(name)
    if database is None or database.path is None:
        return None
    path = Path(database.path)
    with suppress(*TROUBLE):
        if 0 < schema_of(path) <= len(MIGRATIONS):
            look, _ = _known[path]
            _known[path] = look._replace(changed_ns=0), False  # brought up to date in its WAL first
            return path
    return None


def was_replaced(datasette: "Datasette", path: Path) -> bool:
    """Whether this is another file than the one that was there at its first look."""
    first, now = _first[datasette].get(path), _known[path][0]
    return first is not None and (first.device, first.inode) != (now.device, now.inode)


def _is_ours(path: Path) -> bool:
    """Asked for each page and each cell, so a file is opened again only where it has changed."""
    try:
        status = path.stat()
    except OSError:
        return False
    look = _Look(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    if path not in _known or _known[path][0] != look:
        _known[path] = look, _opens(path)
    return _known[path][1]


def _opens(path: Path) -> bool:
    try:
        connect(path, read_only=True).close()
    except TROUBLE:
        return False
    return True
