"""What was scored before, scored anew with today's settings."""

import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from importlib.metadata import version
from itertools import islice
from typing import Final, Literal, TypeAlias

from kp_middleware.core.gates import gate_of
from kp_middleware.database import Connection, transaction
from kp_middleware.embedding import Embedder
from kp_middleware.errors import DatabaseError
from kp_middleware.pipeline._redeciding import Court, Redeciding, Rehearsing
from kp_middleware.pipeline._replay import Replay, Replayed, settled
from kp_middleware.settings import Settings
from kp_middleware.storage import (
    PastRun,
    PastRuns,
    RescoringProgress,
    Selection,
    forget_progress,
    read_progress,
    save_progress,
)

Became: TypeAlias = Literal[
    "changed",  # its score, or what the gate said
    "cleared",  # of these: may leave, and might not before
    "queued",  # of these: goes into the outbox
    "withdrawn",  # of the changed: might leave, and may no longer
    "cancelled",  # of these: waited in the outbox
    "unchanged",
    "left",  # was sent, is on its way, or was rejected
    "overtaken",  # was removed or recorded anew, after it was read
    "unscored",  # cannot be scored
    "embedded",  # had no vector of today's embedder
]

_BATCH: Final = 64  # documents in memory at once: 20 KB each, 1 MiB at most
_AT_ONCE: Final = 8  # runs in one transaction: 4 ms
_GIVE_WAY_S: Final = 0.001  # others want to write, too


class Rescoring:
    """Scores runs anew, the oldest first, each as if it had just ended, with today's settings.

    What was sent, is on its way or was rejected keeps its score; it only gets a vector, so that
    others are compared with it. What has begun and was cut off goes on where it stopped, if it is
    asked for with the same settings. Of two at once, the first that writes goes on.

    Args:
        connection: Of the file; for a dry run, to read from it is enough.
        settings: Today's.
        embedder: Today's; None means novelty is 0.5.
        selection: Which runs.
        dry_run: Count what would become of them, and write nothing.

    Attributes:
        counts: What became of the runs so far.
        went_before: How many an earlier call has scored already.

    Raises:
        EmbedderUnavailableError: If there is no model: nothing is changed then.
        EmbedderNotReadyError: If it is on its way.
    """

    def __init__(
        self,
        connection: Connection,
        settings: Settings,
        embedder: Embedder | None,
        selection: Selection | None = None,
        *,
        dry_run: bool = False,
    ) -> None:
        name = None if embedder is None else embedder.name  # before all else: it loads the model
        self.counts: Counter[Became] = Counter()
        self._connection = connection
        self._settings = settings
        self._selection = selection or Selection()
        self._runs = PastRuns(connection, self._selection, name)
        self._replay = Replay(settings, embedder, self._runs.document)
        self._dry_run = dry_run
        self._court = Court(connection, settings)
        self._decisions: Redeciding | Rehearsing
        if dry_run:
            self._decisions = Rehearsing(connection, self._court)
        else:
            self._decisions = Redeciding(connection, settings, self._runs)
        self._digest = _digest(settings, name)
        self._kept = None if dry_run else read_progress(connection)
        begun = self._begun()
        self.went_before = self._scored = 0 if begun is None else begun.scored
        self._done = ((self._runs.first() or 1) - 1) if begun is None else begun.done
        self._last_vector = 0 if begun is None else begun.last_vector

    def remaining(self) -> int:
        """How many of the selected are to be scored yet."""
        return self._runs.count(after=self._done)

    @property
    def unread(self) -> Sequence[str]:
        """The ids of those so far whose document cannot be read: they keep what they had."""
        return self._replay.unread

    def steps(self) -> Iterator[int]:
        """Do it; after each short step, how many of the selected are done by it.

        Raises:
            DatabaseError, sqlite3.Error: If the file cannot be used, or another rescoring is at
                work on it: what is done is done.
        """
        if self.went_before:
            self._decisions.queue_left()
        self._replay.remember(self._runs.before(self._done + 1, self._settings.cache_size))
        while runs := self._runs.after(self._done, _BATCH):
            replayed = self._replay.of(runs)
            while some := [*islice(replayed, _AT_ONCE)]:
                yield self._write(some)
                time.sleep(_GIVE_WAY_S)
        if not self._dry_run:
            with transaction(self._connection):
                self._insist_on_being_alone()
                forget_progress(self._connection)

    def _begun(self) -> RescoringProgress | None:
        """What an earlier call has begun, where it covers what is asked for now."""
        begun = self._kept
        if begun is None or begun.settings != self._digest:
            return None
        return begun if begun.selection.holds(self._selection) else None

    def _write(self, some: list[Replayed]) -> int:
        with nullcontext() if self._dry_run else transaction(self._connection):
            if not self._dry_run:
                self._insist_on_being_alone()
            count = sum(map(self._take, some))
            self._done = some[-1].run.seq
            self._scored += count
            if not self._dry_run:
                self._save_progress()
        self._decisions.queue()
        return count

    def _insist_on_being_alone(self) -> None:
        """In the transaction that writes: whoever else scores anew writes how far it has come."""
        if read_progress(self._connection) != self._kept:
            raise DatabaseError(
                self._settings.db,
                "another kp-middleware rescore is at work on it, so this one has stopped",
                "run it again when that has ended, if it had other settings",
            )

    def _save_progress(self) -> None:
        self._kept = RescoringProgress(
            self._digest, self._selection, self._done, self._scored, self._last_vector
        )
        save_progress(self._connection, self._kept)

    def _take(self, replayed: Replayed) -> bool:
        """Write down what became of a run; whether it is one of the selected."""
        now = self._runs.run(replayed.run.seq)
        if now is None or now.recorded != replayed.run.recorded:
            self.counts["overtaken"] += replayed.run.is_selected
        else:
            self._place_vector(now, replayed.vector)
            if now.is_selected:
                self.counts.update(self._became(now, replayed))
        return replayed.run.is_selected

    def _place_vector(self, now: PastRun, new: bytes | None) -> None:
        """Give a run the vector that it lacks, and keep the vectors in the order of the runs.

        That is the order in which caches forget them: what is written for an older run must not
        stand behind a newer one's.
        """
        if now.vector_seq is None and new is not None:
            self.counts["embedded"] += 1
            if not self._dry_run:
                self._last_vector = self._runs.add_vector(now, new)
        elif now.vector_seq is not None and now.vector_seq < self._last_vector:
            self._last_vector = self._runs.move_vector(now)

    def _became(self, now: PastRun, replayed: Replayed) -> Iterator[Became]:
        """What becomes of a selected run; it is decided on here."""
        score = replayed.score_of(now)
        if now.has_left or replayed.run.has_left:
            yield "left"
        elif score is None:
            yield "unscored"
        elif self._court.lets_stand(now, score := settled(now, score)):
            yield "unchanged"
        else:
            decision = self._decisions.save(now, score)
            yield "changed"
            yield from self._followed(now, decision)

    def _followed(self, run: PastRun, decision: str) -> Iterator[Became]:
        """What follows of a decision for a run as it was before."""
        if decision == run.decision:
            return
        if decision == "forward":
            yield "cleared"
            if run.may_leave and self._settings.api_key is not None:
                yield "queued"
        elif run.decision == "forward":
            yield "withdrawn"
            if run.outbox == "pending":
                yield "cancelled"


def _digest(settings: Settings, embedder: str | None) -> str:
    """Of all that a score and a decision depend on."""
    weights = {domain: [*weights] for domain, weights in settings.profiles.items()}
    gate = gate_of(settings).name
    size = (settings.cache_size, settings.cache_ttl_ms)
    said = json.dumps([version("kp-middleware"), embedder, weights, gate, size], sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()
