"""The file of traces: what was recorded, how it scored, what was sent."""

from kp_middleware.storage._counts import count_backlog
from kp_middleware.storage._fork_gate import ForkGate
from kp_middleware.storage._history import History, Row
from kp_middleware.storage._outbox_care import Entry, OutboxCare
from kp_middleware.storage._outbox_table import OutboxTable
from kp_middleware.storage._pacing_table import Pacing, PacingTable
from kp_middleware.storage._resting_connection import RestingConnection
from kp_middleware.storage._trace_store import TraceStore, Verdict
from kp_middleware.storage._waiting_runs import WaitingRun, WaitingRuns

__all__ = [
    "Entry",
    "ForkGate",
    "History",
    "OutboxCare",
    "OutboxTable",
    "Pacing",
    "PacingTable",
    "RestingConnection",
    "Row",
    "TraceStore",
    "Verdict",
    "WaitingRun",
    "WaitingRuns",
    "count_backlog",
]
