"""The file of traces: what was recorded, how it scored, what was sent."""

from kp_middleware.storage._counts import count_backlog
from kp_middleware.storage._history import History, Row
from kp_middleware.storage._outbox_table import OutboxTable
from kp_middleware.storage._trace_store import TraceStore, Verdict

__all__ = ["History", "OutboxTable", "Row", "TraceStore", "Verdict", "count_backlog"]
