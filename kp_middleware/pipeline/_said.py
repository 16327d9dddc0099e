"""What has been said already, so that a log tells each kind of failure once."""

import logging

logger = logging.getLogger("kp_middleware")


class Said:
    """The kinds of failure that somebody has been warned of."""

    def __init__(self) -> None:
        self._kinds: set[str] = set()

    def warn_once(self, what: str, error: BaseException) -> None:
        """One warning for each kind of failure, however often it happens."""
        kind = f"{what}: {type(error).__name__}"
        level = logging.DEBUG if kind in self._kinds else logging.WARNING
        self._kinds.add(kind)
        logger.log(level, "%s: %s", kind, error)
