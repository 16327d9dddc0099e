"""Phone numbers as they are written at home, by Google's library."""

from collections.abc import Iterator

from kp_middleware.errors import MissingExtraError
from kp_middleware.privacy._engines import Finder

try:
    from phonenumbers import PhoneNumberMatcher
except ModuleNotFoundError as error:
    raise MissingExtraError("phones") from error


def phone_finder(regions: tuple[str, ...]) -> Finder:
    """Finds valid numbers of these regions, and those that begin with ``+``."""

    def find(text: str) -> Iterator[tuple[int, int, str]]:
        for region in regions or (None,):
            for match in PhoneNumberMatcher(text, region):
                yield match.start, match.end, "phone"

    return find
