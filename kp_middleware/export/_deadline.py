"""Until when a whole request must be over: connection, question, headers and body."""

import math
import socket
import threading
from collections.abc import Callable
from contextlib import suppress


class Deadline:
    """What is left of the time for the request in hand, and the way to break it off.

    Only `break_off` may be called from another thread than the one that asks.

    Args:
        clock: Any seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until = math.inf
        self._lock = threading.Lock()
        self._asked = False
        self._broken_off = False
        self._socket: socket.socket | None = None

    def begin(self, seconds: float) -> None:
        """Another request is to be over in so many seconds."""
        self._until = self._clock() + seconds
        self._asked = False

    def left_s(self) -> float:
        """The seconds that are left.

        Raises:
            TimeoutError: If there are none.
            ConnectionAbortedError: If it was broken off.
        """
        if self._broken_off:
            raise ConnectionAbortedError("broken off")
        left_s = self._until - self._clock()
        if left_s <= 0:
            raise TimeoutError("the time for the whole request is over")
        return left_s

    @property
    def asked(self) -> bool:
        """Whether a byte of the request in hand was sent."""
        return self._asked

    def meet(self, connected: socket.socket | None) -> None:
        """This is the connection that is used from now on."""
        self._socket = connected

    def ask(self) -> None:
        """The first byte, or the next, is about to be sent.

        Raises:
            ConnectionAbortedError: If it was broken off.
        """
        with self._lock:
            if self._broken_off:
                raise ConnectionAbortedError("broken off")
            self._asked = True

    def break_off(self) -> bool:
        """End what is under way, and whatever is begun later; whether a byte of it was sent."""
        with self._lock:
            self._broken_off = True
        if self._socket is not None:
            with suppress(OSError):  # it is closed already; TLS is not asked: it may be in use
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        return self._asked
