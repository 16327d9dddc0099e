"""The confidence of a run's agent: stated by itself, or found by extractors."""

from collections.abc import Mapping
from functools import partial
from inspect import iscoroutinefunction
from typing import Final, TypeAlias

from kp_middleware.confidence import Confidence, Confidences, Field, log_probabilities, unit
from kp_middleware.outcomes import LIKELY, Judge, OfRun, probability
from kp_middleware.recording._shield import shield
from kp_middleware.runs import RecordedRun
from kp_middleware.traces import ReasoningTrace

_OWN: Final = "confidence"

Extractor: TypeAlias = Confidence | OfRun


def extractors_of(given: Confidences) -> tuple[Extractor, ...]:
    """Return the result's own ``confidence`` field, and those given: an async one is a `Judge`.

    The field is left out if a given extractor reads it, because that one knows its scale.

    Raises:
        TypeError: If an extractor is not callable.
    """
    if given is None:
        return (_own_field,)
    several = (given,) if callable(given) or isinstance(given, OfRun) else tuple(given)
    extractors = tuple(Judge(each) if iscoroutinefunction(each) else each for each in several)
    for extractor in extractors:
        if not callable(extractor) and not isinstance(extractor, OfRun):
            raise TypeError(
                "confidence is a function of the result, or several; see "
                f"kp_middleware.confidence; this is {extractor!r}"
            )
    fields = [extractor.name for extractor in extractors if isinstance(extractor, Field)]
    is_read = any(name.rpartition(".")[2] == _OWN for name in fields)
    return extractors if is_read else (_own_field, *extractors)


class ConfidenceEstimate:
    """The confidence of one run's agent; without extractors, the result's own field.

    Attributes:
        listens: True if log-probabilities are extracted, so that each answer of a model counts.
        judge: The first judge that is asked about the run when it is in the file, or None.
    """

    def __init__(self, extractors: tuple[Extractor, ...] | None = None) -> None:
        given = extractors or (_own_field,)
        self._in_turn = tuple(each for each in given if not isinstance(each, OfRun))
        self._of_run = tuple(each for each in given if isinstance(each, OfRun))
        self.judge = next((each for each in self._of_run if isinstance(each, Judge)), None)
        self.listens = any(extractor is log_probabilities for extractor in self._in_turn)
        self.is_own_field_alone = given == (_own_field,)
        self._heard: dict[bool, float | None] = {}

    def hear(self, answer: object, *, inside: bool) -> None:
        """Store the confidence of an answer; that ``inside`` a tool counts if no other does."""
        self._heard[inside] = confidence_by(log_probabilities, answer)

    def of(self, *results: object) -> float | None:
        """Return the confidence that the first extractor finds in the run's result, or None.

        Before the result there may be parts of it, whose fields count like its own.
        """
        said = (self._say(extractor, results) for extractor in self._in_turn)
        return next((sure for sure in said if sure is not None), None)

    def told_by(self, run: RecordedRun) -> RecordedRun:
        """Return the run with the outcome that extractors of a whole run find, if none is said."""
        if run.success_source != "assumed" or not run.complete:
            return run
        found = None
        for extractor in self._of_run:
            if found is None and not isinstance(extractor, Judge):
                found = probability_by(extractor, run.trace)
        if found is None:
            return run
        is_said = run.confidence_source == "said"
        confidence = run.trace.outcome.confidence if is_said else found
        return run.model_copy(
            update={
                "trace": run.trace.ended(success=found >= LIKELY, confidence=confidence),
                "success_source": "extracted",
                "confidence_source": "said" if is_said else "extracted",
            }
        )

    def _say(self, extractor: Confidence, results: tuple[object, ...]) -> float | None:
        if extractor is log_probabilities and self._heard:
            return self._heard.get(False, self._heard.get(True))
        by_field = extractor is _own_field or isinstance(extractor, Field)
        said = map(partial(confidence_by, extractor), results if by_field else results[-1:])
        return next((sure for sure in said if sure is not None), None)


@shield
def confidence_by(extractor: Confidence, result: object) -> float | None:
    """Return the confidence an extractor finds, or None, also if it fails or is out of range."""
    stated = extractor(result)
    return None if stated is None else unit(stated)


def probability_by(extractor: OfRun, trace: ReasoningTrace) -> float | None:
    """Return what an extractor of the whole run finds, or None, also if it fails."""
    try:
        return probability(extractor.read(trace))
    except Exception as error:  # noqa: BLE001 - the user's own may raise anything
        shield.swallow("outcome", error, "an extractor of the outcome failed, and is ignored")
        return None


def _own_field(result: object) -> float | None:
    """Return the ``confidence`` field of a result if it is a number from 0 to 1, else None."""
    stated = result.get(_OWN) if isinstance(result, Mapping) else getattr(result, _OWN, None)
    if isinstance(stated, bool) or not isinstance(stated, int | float):
        return None
    return float(stated) if 0 <= stated <= 1 else None
