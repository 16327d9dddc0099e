"""Bring to the registry what may leave, at a pace it likes."""

from kp_middleware.forwarding._forwarder import Forwarder, Outbox
from kp_middleware.forwarding._pace import Cause, Pace
from kp_middleware.forwarding._pace_keeper import Change, OwnPace, PaceKeeper
from kp_middleware.forwarding._payload import payload
from kp_middleware.forwarding._registry import Registry

__all__ = [
    "Cause",
    "Change",
    "Forwarder",
    "Outbox",
    "OwnPace",
    "Pace",
    "PaceKeeper",
    "Registry",
    "payload",
]
