"""Extractors of a run's confidence or outcome: those given, and the result's own field."""

from collections.abc import Mapping
from inspect import iscoroutinefunction
from typing import Final

from kp_middleware.confidence import Confidence, Confidences, Field, log_probabilities, unit
from kp_middleware.outcomes import LIKELY, Judge, OfRun, probability
from kp_middleware.recording._context import shield
from kp_middleware.runs import RecordedRun

_OWN: Final = "confidence"


def own_field(result: object) -> float | None:
    stated = result.get(_OWN) if isinstance(result, Mapping) else getattr(result, _OWN, None)
    if isinstance(stated, bool) or not isinstance(stated, int | float):
        return None
    return float(stated) if 0 <= stated <= 1 else None


class Extractors:
    """The result's own ``confidence`` field, and the extractors given; an async one is a `Judge`.

    The field is left out if a given extractor reads it, because that one knows its scale.

    Attributes:
        listens: True if log-probabilities are extracted, so that each answer of a model counts.
        judge: The first judge that is asked about the run when it is in the file, or None.
        of_run: Those that read the whole run, when it is over.
        is_own_field_alone: True if none is given.

    Raises:
        TypeError: If an extractor is not callable.
    """

    def __init__(self, given: Confidences = None) -> None:
        if given is None or callable(given) or isinstance(given, OfRun):
            given = () if given is None else (given,)
        each_way = [Judge(one) if iscoroutinefunction(one) else one for one in given]
        self.judge = next((one for one in each_way if isinstance(one, Judge)), None)
        self.of_run = [one for one in each_way if isinstance(one, OfRun) and type(one) is not Judge]
        self._in_turn = [one for one in each_way if not isinstance(one, OfRun)]
        for one in self._in_turn:
            if not callable(one):
                raise TypeError(
                    "confidence is a function of the result, or several; see "
                    f"kp_middleware.confidence; this is {one!r}"
                )
        fields = (one.name for one in self._in_turn if isinstance(one, Field))
        if all(name.rpartition(".")[2] != _OWN for name in fields):
            self._in_turn.insert(0, own_field)
        self.listens = any(one is log_probabilities for one in self._in_turn)
        self.is_own_field_alone = not given

    def confidence(
        self, results: tuple[object, ...], heard: Mapping[bool, float | None]
    ) -> float | None:
        """Return the confidence that the first extractor finds in the run's result, or None.

        Before the result there may be parts of it, whose fields count like its own. What was
        ``heard`` of a model's answer counts before what is in the result; inside a tool, last.
        """
        for one in self._in_turn:
            if one is log_probabilities and heard:
                said = [heard.get(False, heard.get(True))]
            else:
                by_field = one is own_field or isinstance(one, Field)
                said = [confidence_by(one, result) for result in results[0 if by_field else -1 :]]
            if (sure := next((sure for sure in said if sure is not None), None)) is not None:
                return sure
        return None

    def told_by(self, run: RecordedRun) -> RecordedRun:
        """Return the run with the outcome that extractors of a whole run find, if none is said."""
        if run.success_source != "assumed" or not run.complete:
            return run
        for extractor in self.of_run:
            try:
                found = probability(extractor.read(run.trace))
            except Exception as error:  # noqa: BLE001 - the user's own may raise anything
                shield.swallow(
                    "outcome", error, "an extractor of the outcome failed, and is ignored"
                )
                continue
            if found is not None:
                is_said = run.confidence_source == "said"
                confidence = run.trace.outcome.confidence if is_said else found
                trace = run.trace.ended(success=found >= LIKELY, confidence=confidence)
                source = "said" if is_said else "extracted"
                changes = {"success_source": "extracted", "confidence_source": source}
                return run.model_copy(update={"trace": trace, **changes})
        return run


@shield
def confidence_by(extractor: Confidence, result: object) -> float | None:
    """Return the confidence an extractor finds, or None, also if it fails or is out of range."""
    stated = extractor(result)
    return None if stated is None else unit(stated)
