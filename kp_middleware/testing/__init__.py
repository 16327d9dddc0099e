"""Test doubles for slow, remote or time-dependent parts; pass them in place of the real ones."""

from kp_middleware.testing._fakes import FakeClock, ListOutbox, Row, StandInEmbedder
from kp_middleware.testing._registry import Fault, LocalRegistry
from kp_middleware.testing._wire import Answer, Received

__all__ = ["Answer", "FakeClock", "Fault", "ListOutbox", "LocalRegistry", "Received", "Row",
           "StandInEmbedder"]  # fmt: skip
