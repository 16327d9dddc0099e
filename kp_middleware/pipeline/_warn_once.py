"""Warn once of each kind of failure, however often it happens."""

import logging

logger = logging.getLogger("kp_middleware")


class WarnOnce:
    """Remembers the kinds of failure that were logged."""

    def __init__(self) -> None:
        self._kinds: set[str] = set()

    def warn(self, what: str, error: BaseException) -> None:
        """Log one warning for each kind of failure, and the rest for debugging."""
        kind = f"{what}: {type(error).__name__}"
        level = logging.DEBUG if kind in self._kinds else logging.WARNING
        self._kinds.add(kind)
        logger.log(level, "%s: %s", kind, error)
