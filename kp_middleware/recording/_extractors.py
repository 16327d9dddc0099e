"""Extractors of a run's confidence or outcome, and the result's own field."""

from collections.abc import Mapping, Sequence
from inspect import iscoroutinefunction
from typing import Final

from kp_middleware.confidence import Confidence, Confidences, Field, log_probabilities, unit
from kp_middleware.outcomes import LIKELY, Judge, OfRun, probability
from kp_middleware.recording._context import shield
from kp_middleware.runs import RecordedRun

_FIELD: Final = "confidence"


def own_field(result: object) -> float | None:
    stated = result.get(_FIELD) if isinstance(result, Mapping) else getattr(result, _FIELD, None)
    if isinstance(stated, bool) or not isinstance(stated, int | float):
        return None
    return float(stated) if 0 <= stated <= 1 else None


class Extractors:
    """The given extractors, and the result's own ``confidence`` field unless one of them reads it.

    An async function is a `Judge`.

    Raises:
        TypeError: If an extractor is not callable.
    """

    def __init__(self, given: Confidences = None) -> None:
        several = given if isinstance(given, Sequence) else () if given is None else (given,)
        each = [Judge(item) if iscoroutinefunction(item) else item for item in several]
        # the worker asks it about the stored run; the extractors ``of_run`` read the finished one
        self.judge = next((item for item in each if isinstance(item, Judge)), None)
        self.of_run = [item for item in each if isinstance(item, OfRun) and type(item) is not Judge]
        self._of_result = [item for item in each if not isinstance(item, OfRun)]
        for extractor in self._of_result:
            if not callable(extractor):
                raise TypeError(
                    "confidence must be a function of the result, or several (see "
                    f"kp_middleware.confidence), got {given!r}"
                )
        fields = (item.name for item in self._of_result if isinstance(item, Field))
        if all(name.rpartition(".")[2] != _FIELD for name in fields):
            self._of_result.insert(0, own_field)
        self.uses_logprobs = any(item is log_probabilities for item in self._of_result)
        self.is_own_field_alone = not several

    def confidence(
        self, results: tuple[object, ...], from_logprobs: list[float | None]
    ) -> float | None:
        """Return the confidence from the first extractor that finds one in the result, or None.

        The last of ``results`` is the run's result; the parts before it may have the field, too.
        ``from_logprobs`` has the confidence of the last answer, if it was recorded.
        """
        for extractor in self._of_result:
            if extractor is log_probabilities and from_logprobs:
                values = from_logprobs
            else:
                by_field = extractor is own_field or isinstance(extractor, Field)
                read = results[0 if by_field else -1 :]
                values = [confidence_by(extractor, result) for result in read]
            if (value := next((value for value in values if value is not None), None)) is not None:
                return value
        return None

    def with_extracted_outcome(self, run: RecordedRun) -> RecordedRun:
        """Return the run with the outcome from extractors of whole runs, unless it is stated."""
        if run.success_source != "assumed" or not run.complete:
            return run
        for extractor in self.of_run:
            try:
                outcome = probability(extractor.read(run.trace))
            except Exception as error:  # noqa: BLE001 - user code may raise anything
                shield.swallow("outcome", error, "an outcome extractor failed and was skipped")
                continue
            if outcome is not None:
                return run.ended(run.ending.with_extracted(outcome >= LIKELY, outcome))
        return run


@shield
def confidence_by(extractor: Confidence, result: object) -> float | None:
    """Return an extractor's confidence, or None, also if it fails or is out of range."""
    stated = extractor(result)
    return None if stated is None else unit(stated)
