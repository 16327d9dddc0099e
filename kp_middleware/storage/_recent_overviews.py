"""The last reading of what the overview shows, which on a large file takes a while."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from kp_middleware.database import Connection
from kp_middleware.storage._overview import Overview, read_overview

_LASTS: Final = 10
"""How many times as long as it took a reading is good: it never keeps a core busy."""


class _Reading(NamedTuple):
    file: tuple[int, int]
    good_until_s: float
    overview: Overview


class RecentOverviews:
    """The overviews of files: read anew, or as they were some moments ago.

    Of an ordinary file that is less than a blink, of 100,000 traces about two seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._readings: dict[Path, _Reading] = {}

    def read(self, connection: Connection, path: Path) -> Overview:
        """Of the file that is at this place now."""
        status, started_s = path.stat(), self._clock()
        file = status.st_dev, status.st_ino
        last = self._readings.get(path)
        if last and last.file == file and started_s < last.good_until_s:
            return last.overview
        overview = read_overview(connection)
        now_s = self._clock()
        good_until_s = now_s + _LASTS * (now_s - started_s)
        self._readings[path] = _Reading(file, good_until_s, overview)
        return overview
