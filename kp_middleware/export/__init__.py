"""Export of outbox items to the registry or a custom exporter, within the rate limit."""

from kp_middleware.export._exporter import Exporter, OwnExporter
from kp_middleware.export._registry import Registry
from kp_middleware.export._sender import Sender, payload
from kp_middleware.outbox_items import Outbox, OutboxItem, Receipt
from kp_middleware.runs import ExportedRun, StepFacts

__all__ = ["ExportedRun", "Exporter", "Outbox", "OutboxItem", "OwnExporter", "Receipt", "Registry",
           "Sender", "StepFacts", "payload"]  # fmt: skip
