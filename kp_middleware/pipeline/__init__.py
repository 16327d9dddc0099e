"""Takes finished runs through the stages, in order; nothing else does."""

from kp_middleware.pipeline._knowledge_pulse import KnowledgePulse
from kp_middleware.pipeline._workers import Backlog

__all__ = ["Backlog", "KnowledgePulse"]
