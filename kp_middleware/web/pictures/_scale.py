"""From values to places, and the round numbers between."""

import math
from typing import NamedTuple


class Scale(NamedTuple):
    """Maps ``low`` to ``start`` and ``high`` to ``end``, in px.

    >>> Scale(0, 10, 300, 100)(5)
    200.0
    """

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Where a value is."""
        if self.high == self.low:
            return self.start
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def ticks(top: float, *, most: int = 4) -> list[float]:
    """Round numbers from 0 to the first that is not below ``top``, at most ``most`` steps.

    >>> ticks(83), ticks(3), ticks(0)
    ([0, 25, 50, 75, 100], [0, 1, 2, 3], [0, 1])
    """
    step = next(step for step in _steps(top / most) if step * most >= top)
    return [step * number for number in range(max(1, math.ceil(top / step)) + 1)]


def _steps(least: float) -> list[int]:
    power = 10 ** max(0, math.floor(math.log10(least)) if least > 0 else 0)
    return [power * tenths // 10 for tenths in (10, 20, 25, 50, 100) if power * tenths % 10 == 0]
