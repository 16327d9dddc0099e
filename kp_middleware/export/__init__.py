"""Bring to the registry what may leave, at a pace it likes."""

from kp_middleware.export._forwarder import Forwarder, Outbox
from kp_middleware.export._pace import Cause, Pace
from kp_middleware.export._pace_keeper import Change, OwnPace, PaceKeeper
from kp_middleware.export._payload import payload
from kp_middleware.export._registry import Registry

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
