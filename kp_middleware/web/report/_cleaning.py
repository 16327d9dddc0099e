"""Take out of what a page shows what must not be shared; what cannot be cleaned is left out."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kp_middleware.errors import RedactionError
from kp_middleware.storage import Overview, Row
from kp_middleware.web.page import Alike

if TYPE_CHECKING:
    from kp_middleware.settings import Settings

_TRACE_TEXTS: Final = (
    *("id", "objective", "result_summary", "domain", "framework", "agent_name", "model"),
    *("error_type", "reason", "gate", "nearest_id", "nearest_objective"),
)
_STEP_TEXTS: Final = ("agent", "tool", "content", "input", "output_summary")
_OUTBOX_TEXTS: Final = ("reason", "last_error", "registry", "remote_id")


class Cleaning:
    """How texts of traces are shown.

    Attributes:
        left_out: How many could not be cleaned, and stand as a word.
    """

    def __init__(self, redact: Callable[[object], Any]) -> None:
        """``redact`` gives the same shape without what has to go, or raises RedactionError."""
        self.left_out = 0
        self._redact = redact
        self._texts: dict[str, str] = {}

    def text(self, text: str) -> str:
        """One text; the same text is asked about once."""
        if text not in self._texts:
            self._texts[text] = str(self._value(text))
        return self._texts[text]

    def rows(self, rows: list[Row]) -> list[Row]:
        """The rows of a list."""
        return [self._fields(row, _TRACE_TEXTS) for row in rows]

    def trace(self, trace: Row) -> Row:
        """One trace with its steps and where it went."""
        outbox = trace["outbox"]
        return self._fields(trace, _TRACE_TEXTS) | {
            "steps": [self._fields(step, _STEP_TEXTS) for step in trace["steps"]],
            "outbox": outbox and self._fields(outbox, _OUTBOX_TEXTS),
        }

    def body(self, body: str | None) -> str | None:
        """Exactly what was sent, if nothing has to go from it today; else None."""
        if body is None:
            return None
        document = json.loads(body)
        return body if self._value(document) == document else None

    def alike(self, alike: Alike) -> Alike:
        """A list of like traces."""
        points = tuple(
            point._replace(
                id=self.text(point.id),
                domain=self.text(point.domain),
                objective=self.text(point.objective),
            )
            for point in alike.points
        )
        return alike._replace(points=points)

    def overview(self, overview: Overview, *, named: set[int]) -> Overview:
        """What the pictures draw; on the map only the traces ``named`` say what they were."""
        return overview._replace(
            scores=overview.scores.renamed(self.text),
            last=overview.last._replace(
                gate=self.text(overview.last.gate),
                domains={self.text(name): score for name, score in overview.last.domains.items()},
            ),
            tools=tuple(use._replace(tool=self.text(use.tool)) for use in overview.tools),
            missed=tuple(self.rows([*overview.missed])),
            points=tuple(
                point._replace(
                    id=self.text(point.id),
                    domain=self.text(point.domain),
                    objective=self.text(point.objective) if point.seq in named else "",
                )
                for point in overview.points
            ),
        )

    def _fields(self, row: Row, names: tuple[str, ...]) -> Row:
        cleaned = {name: self._field(name, row[name]) for name in names if row.get(name)}
        return row | cleaned

    def _field(self, name: str, value: object) -> object:
        return self.text(value) if isinstance(value, str) else self._value({name: value})[name]

    def _value(self, value: object) -> Any:
        try:
            return self._redact(value)
        except RedactionError as error:
            self.left_out += 1
            word = f"[left out: {error.reason}]"
            return dict.fromkeys(value, word) if isinstance(value, dict) else word


def cleaning_by(settings: "Settings") -> Cleaning:
    """By the rules and at the level of the user's settings."""
    from kp_middleware.privacy import Policy, redact_jsonable

    policy, level = Policy.of(settings), settings.privacy_level
    return Cleaning(lambda value: redact_jsonable(value, level=level, policy=policy).value)


def no_cleaning() -> Cleaning:
    """As they are kept in the file."""
    return Cleaning(lambda value: value)
