"""Bring to the registry what may leave, at a pace it likes."""

from kp_middleware.export._payload import payload
from kp_middleware.export._registry import Registry
from kp_middleware.export._sender import Outbox, Sender

__all__ = ["Outbox", "Registry", "Sender", "payload"]
