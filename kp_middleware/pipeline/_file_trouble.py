"""Handle a file that cannot be used: warn once, wait, and repair it if it is damaged."""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kp_middleware.database import PASSING_TROUBLE, TROUBLE, in_words, is_damage
from kp_middleware.errors import DatabaseError
from kp_middleware.pipeline._run_queue import RunQueue
from kp_middleware.storage import Rescue

logger = logging.getLogger("kp_middleware")

_SLOW_S: Final = 0.5
_REST_S: Final = 30.0  # after a try on an agent's thread that failed so slowly
_RESCUE_AGAIN_S: Final = 60.0


class FileTrouble:
    """The worker's state while its file cannot be used.

    Args:
        queue: Who waits for it is told.
        db: The file.
        mend: Rescues it; None where there was nothing to rescue, or another process does.
        is_silent: Whether somebody else says what is wrong.

    Attributes:
        is_there: Whether the file could not be used the last time.
        words: Why it cannot, and what to do about it; None if it can.
    """

    def __init__(
        self,
        queue: RunQueue,
        db: Path,
        mend: Callable[[], Rescue | None],
        *,
        is_silent: bool = False,
    ) -> None:
        self._queue = queue
        self._db = db
        self._mend = mend
        self._said = is_silent
        self._rest_until_s = 0.0
        self._rescue_at_s = 0.0
        self.is_there = False
        self.words: str | None = None

    @property
    def rests(self) -> bool:
        """Whether an agent's thread must not retry: the last attempt was slow and recent."""
        return self.is_there and time.monotonic() < self._rest_until_s

    def meet(self, error: Exception, took_s: float) -> bool:
        """Say what is wrong, once; True if it could be mended at once."""
        self.is_there = True
        if took_s > _SLOW_S:
            self._rest_until_s = time.monotonic() + _REST_S
        if is_damage(error) and self._rescued():
            return True
        self._warn(error)
        self._queue.meet_trouble(lasting=isinstance(error, DatabaseError) or is_damage(error))
        return False

    def end(self) -> None:
        """Clear the trouble: the file can be used again."""
        if self.is_there:
            self.is_there = self._said = False
            self.words = None
            self._queue.end_trouble()

    def _rescued(self) -> bool:
        """Repair a damaged file; return whether anything was repaired."""
        now_s = time.monotonic()
        if now_s < self._rescue_at_s:
            return False
        self._rescue_at_s = now_s + _RESCUE_AGAIN_S
        try:
            found = self._mend()
        except (*TROUBLE, TimeoutError) as error:
            self._warn(error)
            return False
        if found is not None:
            words = "%s was damaged: %d of its traces could be read and are kept; as it was: %s"
            logger.warning(words, self._db, found.traces, found.aside)
        return found is not None

    def _warn(self, error: Exception) -> None:
        if isinstance(error, TROUBLE):
            error = in_words(self._db, error)
        self.words = str(error)
        if not self._said:
            self._said = True
            unknown = None if isinstance(error, PASSING_TROUBLE) else error
            logger.warning("finished runs wait: %s", error, exc_info=unknown)
