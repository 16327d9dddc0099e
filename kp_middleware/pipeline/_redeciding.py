"""What the gate says of a run's new score, and what follows of it: in earnest, or in thought."""

import time

from kp_middleware.core.formula import Score
from kp_middleware.core.gates import gate_of
from kp_middleware.database import Connection
from kp_middleware.instants import instant
from kp_middleware.pipeline._dispatch import Dispatch
from kp_middleware.pipeline._replay import is_as_before
from kp_middleware.pipeline._second_decision import SecondDecision, trace_store
from kp_middleware.pipeline._verdicts import Verdicts
from kp_middleware.privacy import Policy
from kp_middleware.settings import Settings
from kp_middleware.storage import GateHistory, PastRun, PastRuns, Rehearsal, Verdict


class Court:
    """Says what today's gate makes of a run, from what was decided before that run.

    Args:
        connection: To the file.
        settings: Whose gate is asked.
    """

    def __init__(self, connection: Connection, settings: Settings) -> None:
        self._connection = connection
        self._gate = gate_of(settings)
        self._is_limited = settings.max_per_day is not None
        self._verdicts = Verdicts(self._gate)

    def lets_stand(self, run: PastRun, score: Score) -> bool:
        """Whether neither score nor decision would change.

        What a day had no room for does not go another day because it was scored anew.
        """
        if not is_as_before(run, score):
            return False
        if self._is_limited and run.gate == self._gate.name:
            return True
        gate, threshold, decision, _ = self.verdict(run, score)
        return (gate, threshold, decision) == (run.gate, run.threshold, run.decision)

    def verdict(self, run: PastRun, score: Score) -> Verdict:
        """What the gate says."""
        history = GateHistory(
            self._connection,
            run.domain,
            run.seq,
            run.started_at,
            let_through_at=run.let_through_at,
        )
        return self._verdicts.of(score, history)


class Redeciding:
    """Stores the score and the decision, and lets the outbox follow."""

    def __init__(self, connection: Connection, settings: Settings, runs: PastRuns) -> None:
        store = trace_store(connection)
        self._runs = runs
        self._dispatch = Dispatch(connection, store, settings, Policy.of(settings))
        self._second = SecondDecision(
            connection,
            store,
            self._dispatch,
            Verdicts(gate_of(settings)),
            agent_id=settings.agent_id,
        )
        self._cleared: list[int] = []

    def save(self, run: PastRun, score: Score) -> str:
        """In the caller's transaction; returns the decision."""
        self._runs.mend(run.seq)
        if self._second.save(run.seq, score):
            self._cleared.append(run.seq)
        return self._runs.decision(run.seq)

    def queue(self) -> None:
        """After the transaction: what has cleared in it goes into the outbox."""
        while self._cleared:
            self._second.queue(self._cleared.pop(0))

    def queue_left(self) -> None:
        """Do the same for what a process that died has left."""
        while self._dispatch.queue_left():
            pass


class Rehearsing:
    """Does the same beside the file, which stays as it is."""

    def __init__(self, connection: Connection, court: Court) -> None:
        self._court = court
        self._rehearsal = Rehearsal(connection)

    def save(self, run: PastRun, score: Score) -> str:
        """Returns the decision."""
        decision = self._court.verdict(run, score).decision
        is_new = decision != run.decision
        decided_at = instant(time.time()) if is_new else None
        self._rehearsal.save(run.seq, score.value, decision, decided_at=decided_at)
        return decision

    def queue(self) -> None:
        """Nothing goes anywhere."""

    def queue_left(self) -> None:
        """Nor does this."""
