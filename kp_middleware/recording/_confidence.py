"""How sure an agent is: what it says itself, else what extractors find."""

from collections.abc import Mapping
from typing import Final

from kp_middleware.confidence import Confidence, Confidences, Field, log_probabilities, unit
from kp_middleware.recording._shield import shield

_OWN: Final = "confidence"


def extractors_of(given: Confidences) -> tuple[Confidence, ...]:
    """What is asked of a run, in order: its own ``confidence`` field, then what was given.

    Not the field where an extractor reads it: that one knows what its numbers mean.

    Raises:
        TypeError: If one of them cannot be called.
    """
    if given is None:
        return (_own_field,)
    extractors = (given,) if callable(given) else tuple(given)
    for extractor in extractors:
        if not callable(extractor):
            raise TypeError(
                "confidence is a function of the result, or several; see "
                f"kp_middleware.confidence; this is {extractor!r}"
            )
    fields = [extractor.name for extractor in extractors if isinstance(extractor, Field)]
    is_read = any(name.rpartition(".")[2] == _OWN for name in fields)
    return extractors if is_read else (_own_field, *extractors)


class Sureness:
    """How sure one run's agent is.

    Args:
        extractors: See `extractors_of`; None means only the result's own field.

    Attributes:
        listens: Whether log-probabilities were asked for, and so each answer of a model counts.
    """

    def __init__(self, extractors: tuple[Confidence, ...] | None = None) -> None:
        self._in_turn = extractors or (_own_field,)
        self.listens = any(extractor is log_probabilities for extractor in self._in_turn)
        self._heard: dict[bool, float | None] = {}

    def hear(self, answer: object, *, inside: bool) -> None:
        """A model answered; of its log-probabilities only their mean is kept.

        Args:
            answer: As `log_probabilities` takes it.
            inside: Whether inside a tool: then it counts only where no other model answered.
        """
        self._heard[inside] = confidence_by(log_probabilities, answer)

    def of(self, *results: object) -> float | None:
        """From 0 to 1, by the first extractor that knows; None where none does.

        Args:
            results: What the run returned, as the last; before it, parts of it whose fields count
                like its own.
        """
        said = (self._say(extractor, results) for extractor in self._in_turn)
        return next((sure for sure in said if sure is not None), None)

    def _say(self, extractor: Confidence, results: tuple[object, ...]) -> float | None:
        if extractor is log_probabilities and self._heard:
            return self._heard.get(False, self._heard.get(True))
        by_field = extractor is _own_field or isinstance(extractor, Field)
        said = (
            confidence_by(extractor, result) for result in (results if by_field else results[-1:])
        )
        return next((sure for sure in said if sure is not None), None)


@shield
def confidence_by(extractor: Confidence, result: object) -> float | None:
    """What an extractor says of a result; None also where it fails, or says what none can be."""
    stated = extractor(result)
    return None if stated is None else unit(stated)


def _own_field(result: object) -> float | None:
    """The ``confidence`` field of a result, where it holds a number from 0 to 1.

    Nobody asked for it, so anything else there is no failure.
    """
    stated = result.get(_OWN) if isinstance(result, Mapping) else getattr(result, _OWN, None)
    if isinstance(stated, bool) or not isinstance(stated, int | float):
        return None
    return float(stated) if 0 <= stated <= 1 else None
