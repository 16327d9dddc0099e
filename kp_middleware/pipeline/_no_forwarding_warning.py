"""Warn once a day per file when no recent run passed the gate."""

import logging
import time
from typing import Final

from kp_middleware.core.evaluation import Verdict
from kp_middleware.database import Connection, transaction
from kp_middleware.storage import claim_to_say, read_last_decisions

logger = logging.getLogger("kp_middleware")

_EVERY: Final = 100  # runs that stay: one look takes a millisecond


class NoForwardingWarning:
    """Checks now and then whether any recent run of a file has cleared the gate.

    It speaks of the gate alone: whether what clears may leave is another question.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._withheld = 0

    def note(self, verdict: Verdict) -> None:
        """Note that a verdict was stored; call it outside the transaction that stored it."""
        if verdict.decision == "forward":
            return
        self._withheld += 1
        if self._withheld == 1 or self._withheld % _EVERY == 0:  # others may have scored the rest
            self._look()

    def _look(self) -> None:
        last = read_last_decisions(self._connection)
        if not last.is_dry:
            return
        with transaction(self._connection):
            is_news = claim_to_say(self._connection, now_s=time.time())
        if is_news:
            logger.warning("nothing leaves: %s", last.in_words())
