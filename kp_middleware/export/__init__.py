"""Bring to the registry, or to an exporter of the user's, what may leave, at a pace it likes."""

from kp_middleware.export._exporter import Exporter, OwnExporter
from kp_middleware.export._payload import payload
from kp_middleware.export._registry import Registry
from kp_middleware.export._sender import Outbox, Sender
from kp_middleware.outbox_items import OutboxItem, Receipt

__all__ = [
    "Exporter",
    "Outbox",
    "OutboxItem",
    "OwnExporter",
    "Receipt",
    "Registry",
    "Sender",
    "payload",
]
