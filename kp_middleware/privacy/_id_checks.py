"""Checks for rules, made from what is known of a number's digits."""

import re
from collections.abc import Callable

from kp_middleware.privacy import _check_digits as check_digits
from kp_middleware.privacy._rules import Check, value_of


def bare(check: Callable[[str], bool]) -> Check:
    """Check the letters and digits, without what separates them."""
    return lambda match: check(re.sub(r"[^0-9A-Za-z]", "", value_of(match)))


def weighted(modulus: int, *weights: int) -> Check:
    """The weighted sum of all digits is divisible."""
    return bare(lambda digits: check_digits.weighted(digits, weights, modulus))


def dated(month: int, day: int) -> Check:
    """The digits at these places can be a month and a day."""
    return bare(lambda text: check_digits.dated(text, month, day))
