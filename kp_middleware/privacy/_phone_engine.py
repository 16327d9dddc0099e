"""Phone numbers as they are written at home, by Google's library."""

import re
import sys
from collections.abc import Iterator

from kp_middleware.errors import MissingExtraError
from kp_middleware.privacy._engine import Finder

try:
    from phonenumbers import PhoneNumberMatcher
except ModuleNotFoundError as error:
    raise MissingExtraError("phones") from error

_TOO_LONG = re.compile(r"\d{25,}")  # 17 digits, 3 of a country, 4 to dial abroad
_BETWEEN = r"(?:/|\s-\s?|-\s|[\u2012-\u2015\uff0d])"  # tried again and again with all that follows
_LIST = re.compile(rf"\d{{1,24}}(?:{_BETWEEN}\d{{1,24}}){{8,}}")


def phone_finder(regions: tuple[str, ...]) -> Finder:
    """Finds valid numbers of these regions, and those that begin with ``+``."""

    def find(text: str) -> Iterator[tuple[int, int, str]]:
        text = _LIST.sub(_its_digits, _TOO_LONG.sub(_nothing, text))
        for region in regions or (None,):
            for match in PhoneNumberMatcher(text, region, max_tries=sys.maxsize):
                yield match.start, match.end, "phone"

    return find


def _nothing(digits: re.Match[str]) -> str:
    return "\0" * len(digits[0])


def _its_digits(joined: re.Match[str]) -> str:
    return re.sub(r"\D", "\0", joined[0])
