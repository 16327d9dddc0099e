"""Stand-ins for what is slow, far away or moving; pass them in where the real ones go."""

from kp_middleware.testing._answers import Fault
from kp_middleware.testing._fakes import FakeClock, ListOutbox, Row, StandInEmbedder
from kp_middleware.testing._registry import LocalRegistry
from kp_middleware.testing._wire import Answer, Received

__all__ = [
    "Answer",
    "FakeClock",
    "Fault",
    "ListOutbox",
    "LocalRegistry",
    "Received",
    "Row",
    "StandInEmbedder",
]
