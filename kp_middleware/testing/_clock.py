"""A clock that stands still until told."""


class FakeClock:
    """Call it for seconds since the epoch, as ``time.time``; its bound ``ms`` is the same in ms.

    >>> clock = FakeClock(1000.0)
    >>> clock.advance(1.5)
    >>> clock(), clock.ms()
    (1001.5, 1001500)
    """

    def __init__(self, now: float = 1_790_000_000.0) -> None:
        self._now = now

    def __call__(self) -> float:
        """Seconds since the epoch."""
        return self._now

    def ms(self) -> int:
        """Milliseconds since the epoch, rounded."""
        return round(self._now * 1000)

    def advance(self, seconds: float) -> None:
        """Let time pass; a negative number sets the clock back."""
        self._now += seconds
