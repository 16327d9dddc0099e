"""Checks for rules, made from what is known of a number's digits."""

import re
from collections.abc import Callable
from functools import cache

from kp_middleware.privacy import _check_digits as check_digits
from kp_middleware.privacy._rules import Check, value_of

_BEFORE, _BEHIND = 100, 40


def bare(check: Callable[[str], bool]) -> Check:
    """Check the letters and digits, without what separates them."""
    return lambda match: check(re.sub(r"[^0-9A-Za-z]", "", value_of(match)))


def weighted(modulus: int, *weights: int) -> Check:
    """The weighted sum of all digits is divisible."""
    return bare(lambda digits: check_digits.weighted(digits, weights, modulus))


def dated(month: int, day: int) -> Check:
    """The digits at these places can be a month and a day."""
    return bare(lambda text: check_digits.dated(text, month, day))


def near(words: str, check: Check | None) -> Check:
    """One of the words stands before or behind, in the same sentence or row."""

    def announced(match: re.Match[str]) -> bool:
        around = match.string[max(0, match.start() - _BEFORE) : match.end() + _BEHIND]
        return _any_of(words).search(around) is not None and (check is None or check(match))

    return announced


@cache
def _any_of(words: str) -> re.Pattern[str]:
    return re.compile(rf"(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))(?i:{words})(?![a-z])")
