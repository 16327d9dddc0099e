"""Stand-ins for what is slow, far away or moving; pass them in where the real ones go."""

from kp_middleware.testing._clock import FakeClock
from kp_middleware.testing._embedder import StandInEmbedder
from kp_middleware.testing._mood import Mood
from kp_middleware.testing._outbox import ListOutbox, Row
from kp_middleware.testing._registry import LocalRegistry
from kp_middleware.testing._wire import Answer, Received

__all__ = [
    "Answer",
    "FakeClock",
    "ListOutbox",
    "LocalRegistry",
    "Mood",
    "Received",
    "Row",
    "StandInEmbedder",
]
