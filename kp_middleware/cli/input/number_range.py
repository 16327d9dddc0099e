"""Numbers that are typed: within bounds, and numbers indeed."""

import math
from typing import Any, Final

import click


class NumberRange(click.FloatRange):
    """Fractions within bounds; what is not finite is refused, as it is within no bounds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, or an error of usage."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is no number to count with", param, ctx)
        return number


UNIT: Final = NumberRange(0, 1)
"""From 0 to 1."""
