"""The long tail of vendors' tokens, by Kingfisher. It scans here; nothing is validated online."""

from collections.abc import Iterator

from kp_middleware.errors import MissingExtraError
from kp_middleware.locations import cache_folder
from kp_middleware.privacy._engine import Finder

try:
    from kingfisher_sdk import Rules, Scanner
except ModuleNotFoundError as error:
    raise MissingExtraError("secrets") from error

_TIMEOUT_S = 10.0


def kingfisher_finder() -> Finder:
    """Finds with all its rules; they take seconds to compile at first, and are kept compiled."""
    scanner = Scanner(Rules(cache_dir=cache_folder() / "kingfisher"))

    def find(text: str) -> Iterator[tuple[int, int, str]]:
        encoded = text.encode(errors="replace")
        for finding in scanner.scan(encoded, timeout=_TIMEOUT_S):
            place = finding.location
            start, end = (len(encoded[: place[name]].decode()) for name in _OFFSETS)
            yield start, end, "api_key"

    return find


_OFFSETS = ("start_offset", "end_offset")
