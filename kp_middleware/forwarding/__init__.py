"""Bring to the registry what may leave, at a pace it likes."""

from kp_middleware.forwarding._forwarder import Forwarder, Outbox
from kp_middleware.forwarding._pace import Pace
from kp_middleware.forwarding._payload import payload
from kp_middleware.forwarding._registry import Registry

__all__ = ["Forwarder", "Outbox", "Pace", "Registry", "payload"]
