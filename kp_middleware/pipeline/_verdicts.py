"""What the gate says of a score, also where the gate fails."""

from kp_middleware.database import PASSING_TROUBLE, is_damage
from kp_middleware.pipeline._said import Said
from kp_middleware.scores import Score
from kp_middleware.scoring import Decision, Gate
from kp_middleware.storage import GateHistory, Verdict


class Verdicts:
    """Asks one gate. What it fails to decide stays here, with one warning."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._said = Said()

    def of(self, score: Score, history: GateHistory) -> Verdict:
        """What the gate says; inside the transaction that stores it."""
        decided = self._decision(score, history)
        return Verdict(self._gate.name, decided.threshold, decided.decision, decided.reason)

    def _decision(self, score: Score, history: GateHistory) -> Decision:
        try:
            decided = self._gate.decide(score, history)
            if decided.decision not in {"forward", "withhold"}:
                raise ValueError(f"{decided.decision!r} is no decision")
            return decided
        except PASSING_TROUBLE:
            raise
        except Exception as error:  # a user's gate may raise anything
            if is_damage(error):
                raise
            self._said.warn_once("a run stays here, the gate failed", error)
            return Decision("withhold", f"the gate failed: {type(error).__name__}", 1.0)
