"""How sure the agent says it is."""

from collections.abc import Mapping


def stated_confidence(result: object) -> float | None:
    """The ``confidence`` field of a result, from 0 to 1, or None where it states none.

    >>> stated_confidence({"answer": "yes", "confidence": 0.9})
    0.9
    >>> stated_confidence("yes") is None
    True
    """
    if isinstance(result, Mapping):
        stated = result.get("confidence")
    else:
        stated = getattr(result, "confidence", None)
    if isinstance(stated, bool) or not isinstance(stated, int | float):
        return None
    return float(stated) if 0 <= stated <= 1 else None
