"""The file of traces: what was recorded, how it scored, what was sent."""

from kp_middleware.storage._condition import Condition, read_condition
from kp_middleware.storage._counts import Counts, count_all, count_backlog
from kp_middleware.storage._fork_gate import ForkGate
from kp_middleware.storage._history import History, Row
from kp_middleware.storage._outbox_care import Entry, OutboxCare
from kp_middleware.storage._outbox_table import OutboxTable
from kp_middleware.storage._pacing_table import Pacing, PacingTable
from kp_middleware.storage._pauses import Pause, read_pauses
from kp_middleware.storage._pruning import Doomed, Pruning, vacuum
from kp_middleware.storage._rescue import Rescue, rescue
from kp_middleware.storage._resting_connection import Identity, RestingConnection
from kp_middleware.storage._trace_store import TraceStore, Verdict
from kp_middleware.storage._waiting_runs import WaitingRun, WaitingRuns

__all__ = [
    "Condition",
    "Counts",
    "Doomed",
    "Entry",
    "ForkGate",
    "History",
    "Identity",
    "OutboxCare",
    "OutboxTable",
    "Pacing",
    "PacingTable",
    "Pause",
    "Pruning",
    "Rescue",
    "RestingConnection",
    "Row",
    "TraceStore",
    "Verdict",
    "WaitingRun",
    "WaitingRuns",
    "count_all",
    "count_backlog",
    "read_condition",
    "read_pauses",
    "rescue",
    "vacuum",
]
