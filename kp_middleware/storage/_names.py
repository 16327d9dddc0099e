"""The runs by what people call them: ids and their beginnings, ``@last`` and ``@best``."""

from typing import Final

from kp_middleware.database import Queries, beginning_with
from kp_middleware.errors import TraceNotFoundError

_ID_PREFIX: Final = "kp:trace:"
_CANDIDATES: Final = 5
_NAMES: Final = {
    "@last": "SELECT max(seq) FROM traces",
    "@best": "SELECT coalesce((SELECT seq FROM traces WHERE score IS NOT NULL"
    " ORDER BY score DESC, seq DESC LIMIT 1), max(seq)) FROM traces",
}
_BEGINNING: Final = """
    SELECT seq, min(id) AS id FROM (
      SELECT seq, id FROM traces WHERE id >= :start AND id < :end
      UNION ALL SELECT trace_seq, id FROM aliases WHERE id >= :start AND id < :end
    ) GROUP BY seq ORDER BY id LIMIT :most
"""


class Names(Queries):
    """The runs of one file by their names."""

    def find(self, name: str) -> int:
        """Return the ``seq`` of the run with this id prefix, with or without ``kp:trace:``.

        The ids of parts that were joined to a run also lead to it. ``@last`` is the newest run and
        ``@best`` the one with the highest score.
        """
        if query := _NAMES.get(name):
            seq = self._value(query)
            if seq is None:
                raise TraceNotFoundError(f"there is no run yet for {name}: record a run")
            return int(seq)
        if not name:
            raise TraceNotFoundError("type the beginning of an id, @last or @best")
        found = self._beginning(name) or self._beginning(name.lower())
        if not found:
            remedy = "; valid names: @last, @best" if name.startswith("@") else ""
            raise TraceNotFoundError(f"no run matches {name}{remedy}")
        if len(found) > 1 and whole_id(name) not in (id_ for _, id_ in found):
            ids = [id_.removeprefix(_ID_PREFIX) for _, id_ in found[:_CANDIDATES]]
            told = f"{', '.join(ids)}{' …' if len(found) > _CANDIDATES else ''}"
            raise TraceNotFoundError(f"{name} is ambiguous: give more of the id; there are {told}")
        return found[0][0]  # a complete id may be the prefix of another

    def _beginning(self, name: str) -> list[tuple[int, str]]:
        """Return up to six runs whose id or alias starts with a prefix, in order of that id."""
        values = beginning_with(whole_id(name), most=_CANDIDATES + 1)
        return self._run(_BEGINNING, values).fetchall()


def whole_id(name: str) -> str:
    """Return the beginning of an id with the ``kp:trace:`` that people omit."""
    return _ID_PREFIX + name.removeprefix(_ID_PREFIX)
