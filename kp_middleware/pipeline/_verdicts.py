"""What the gate says of a score, also where the gate fails."""

import json
from numbers import Real

from kp_middleware.core.formula import Score
from kp_middleware.core.gates import Decision, Gate, Reason, ReasonCode
from kp_middleware.pipeline._said import Said
from kp_middleware.storage import GateHistory, Verdict


class Verdicts:
    """Asks one gate. What it fails to decide stays here, with one warning."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._name = _told(gate.name)
        self._said = Said()

    def of(self, score: Score, history: GateHistory) -> Verdict:
        """What the gate says; inside the transaction that stores it."""
        decided = self._decision(score, history)
        return Verdict(self._name, decided.threshold, decided.decision, decided.told)

    def _decision(self, score: Score, history: GateHistory) -> Decision:
        try:
            return _checked(self._gate.decide(score, history))
        except (Exception, SystemExit) as error:  # a user's gate may raise anything
            if history.trouble is not None:
                raise history.trouble from error  # the file's, which may pass
            self._said.warn_once("a run stays here, the gate failed", error)
            return Decision(
                "withhold", Reason(ReasonCode.GATE_FAILED, {"error": type(error).__name__}), 1.0
            )


def _checked(decided: Decision) -> Decision:
    """A decision as it can be stored.

    Raises:
        ValueError, TypeError, AttributeError: If it is none.
    """
    if decided.decision not in {"forward", "withhold"}:
        raise ValueError(f"{decided.decision!r} is no decision")
    if not isinstance(decided.threshold, Real) or not 0 <= decided.threshold <= 1:
        raise ValueError(f"a threshold is from 0 to 1, this is {decided.threshold!r}")
    return Decision(decided.decision, _checked_reason(decided.reason), float(decided.threshold))


def _checked_reason(reason: object) -> str | Reason:
    if not isinstance(reason, Reason):
        return _told(reason)
    json.dumps(dict(reason.args), allow_nan=False)
    return Reason(ReasonCode(reason.code), reason.args)


def _told(text: object) -> str:
    """A text that SQLite takes: it refuses lone surrogates."""
    return str(text).encode(errors="replace").decode()
