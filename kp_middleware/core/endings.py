"""The ending of a run, and its source."""

from typing import Final, NamedTuple

TOLD: Final = frozenset({"extracted", "feedback", "verdict"})  # not the agent's own word


def known_success(success: bool, source: str | None) -> bool | None:  # noqa: FBT001 - an outcome
    """Return whether a run did its task; None where that is only assumed.

    >>> known_success(True, "assumed"), known_success(True, "said"), known_success(False, None)
    (None, True, False)
    """
    return None if success and source in {"assumed", None} else success


def default_confidence(*, success: bool) -> float:
    """Return the confidence assumed if the agent gives none: 0.8, or 0.2 after a failure."""
    return 0.8 if success else 0.2


class Ending(NamedTuple):
    """The ending of a run, as far as it is known, and its source."""

    success: bool
    confidence: float
    success_source: str = "assumed"
    confidence_source: str = "assumed"

    @property
    def is_confirmed(self) -> bool:
        """True if somebody or something else than the agent told that it succeeded."""
        return self.success and self.success_source in TOLD

    def extracted(self, success: bool, confidence: float) -> "Ending":  # noqa: FBT001 - an outcome
        """Return it as it was extracted, unless somebody has said how the run ended."""
        if self.success_source != "assumed":
            return self
        ending = self._replace(success=success, success_source="extracted")
        if self.confidence_source == "said":
            return ending
        return ending._replace(confidence=confidence, confidence_source="extracted")

    def estimated(self, p: float | None) -> "Ending":
        """Return it with an estimate as its confidence, unless somebody has said one.

        Without an estimate, one of before is as if it had not been.
        """
        if not self.success or self.is_stated:
            return self
        if p is not None:
            return self._replace(confidence=p, confidence_source="estimated")
        if self.confidence_source == "assumed":
            return self
        assumed = default_confidence(success=self.success)
        return self._replace(confidence=assumed, confidence_source="assumed")

    @property
    def is_stated(self) -> bool:
        """True if the confidence is neither assumed nor estimated."""
        return self.confidence_source not in {"assumed", "estimated"}

    def p_success(self, estimate: float | None) -> float | None:
        """Return 1 or 0 where it is told, or where a failure is said; else the estimate."""
        if self.success_source in TOLD or (self.success_source == "said" and not self.success):
            return float(self.success)
        return estimate
