"""The records of the shared log, and the protocol of its five operations."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from kp_middleware.core.evaluation import Evaluation, Verdict
from kp_middleware.core.formula import Adjustment, Nearest, Score, Signals, Weights
from kp_middleware.core.gates import GateHistory, Reason, ReasonCode

if TYPE_CHECKING:
    from kp_middleware.outbox_items import Outbox
    from kp_middleware.sharing._pacing import PaceOfAll


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRun:
    """A scored run as a row of ``kp.log``, with its document if that is shared."""

    id: str
    pod: str
    domain: str
    started_at: str
    success: bool
    success_source: str | None
    confidence: float
    signals: tuple[float, ...]
    weights: tuple[float, ...]
    rules: str
    score: float
    threshold: float | None
    gate: str
    decision: str
    reason_code: str
    reason_args: str | None
    rank_key: float | None
    bar: float | None
    credit: float | None
    chosen: bool | None
    scorer: str | None
    embedder: str | None
    nearest: str | None
    nearest_similarity: float | None
    vector: bytes | None = None
    facts: str = "{}"
    decided_at: str | None = None
    body: str | None = None
    redactor: str | None = None

    @property
    def evaluation(self) -> Evaluation:
        """The score and the verdict."""
        nearest = self.nearest_similarity
        score = Score(
            self.score,
            Signals(*self.signals),
            Weights(*self.weights),
            tuple(Adjustment(**one) for one in json.loads(self.rules)),
            None if nearest is None else Nearest(self.nearest or "", nearest),
            self.embedder,
        )
        reason = Reason(ReasonCode(self.reason_code), json.loads(self.reason_args or "{}"))
        verdict = Verdict(
            self.gate,
            self.threshold,
            self.decision,
            reason,
            self.rank_key,
            self.bar,
            self.credit,
            self.chosen,
        )
        return Evaluation(score, verdict)


class SharedItem(NamedTuple):
    """A body for the shared outbox, exactly as it is posted; ``redactions`` are JSON."""

    id: str
    body: bytes
    redactor: str
    redactions: str
    idempotency_key: str


class ItemState(NamedTuple):
    """The state of an item in the shared outbox; times are instants.

    The state is ``gone`` where its run was deleted in the log.
    """

    id: str
    state: str
    reason: str | None
    attempts: int
    http_status: int | None
    last_error: str | None
    sent_at: str | None
    remote_id: str | None


class LoggedVector(NamedTuple):
    """The vector of a run of another pod: float32, little-endian, of unit length."""

    seq: int
    id: str
    embedder: str
    added_at_ms: int
    vector: bytes


class LoggedRun(NamedTuple):
    """A row of the log with its place, and what is known of that run now.

    The kind is ``revision`` where more was told of an earlier one, else ``run``.
    """

    seq: int
    kind: str
    run: SharedRun


class Place(NamedTuple):
    """A place in the log: its last row that is known, with the id that stands there.

    The id tells whether the log is the same as before: after a restore, another stands there.
    Without one, that is not asked.
    """

    seq: int = 0
    anchor: str | None = None

    @classmethod
    def read(cls, text: str | None) -> Self | None:
        """Return a place from JSON, or None."""
        return None if text is None else cls(*json.loads(text))


class Pulled(NamedTuple):
    """Rows appended by other pods, ids that were deleted, and the place reached."""

    vectors: Sequence[LoggedVector]
    gone: Sequence[str]
    place: Place


class LogChangedError(Exception):
    """The log is not the one that a place was in: it was restored, or is another's."""


class Known(Protocol):
    """What is known while the log is locked, so that nobody else decides."""

    answered: Mapping[str, SharedRun]
    """Runs that were decided on before, when the answer was lost."""
    newer: Sequence[LoggedVector]
    """The vectors of other pods since the place, the oldest first."""

    def history(self, domain: str) -> GateHistory:
        """Return what a gate may know of the runs before the next one of a domain."""

    def add(self, run: SharedRun) -> None:
        """Count a run that was decided on just now among those before the next."""


class Decided(NamedTuple):
    """A decision, to be appended to the log with the body that may go."""

    run: SharedRun
    item: SharedItem | None


class SharedLog(Protocol):
    """The log that hosts share; every operation may raise `SharedLogError`."""

    def ship(self, runs: Sequence[SharedRun]) -> Mapping[str, int]:
        """Append runs that stay local; return the place of each, also if it was there before."""

    def pull(self, place: Place | None) -> Pulled:
        """Return what other pods have appended since a place; None begins with the newest rows.

        Raises:
            LogChangedError: If the log has changed before the place.
        """

    def decide(
        self, ids: Sequence[str], place: Place, judge: Callable[[Known], Sequence[Decided]]
    ) -> Mapping[str, int]:
        """Lock the log, let a function decide, and append that; return the place of each run."""

    def pace(self, registry: str, agent_id: str | None, key_hash: str) -> "PaceOfAll":
        """Return the rate limit that all hosts keep for one agent."""

    def outbox(self, registry: str, agent_id: str | None, key_hash: str) -> "Outbox":
        """Return the items that all hosts have for one agent."""
