"""The file of traces: what was recorded, how it scored, what was sent."""

from kp_middleware.storage._arrivals import Arrivals
from kp_middleware.storage._backup import SQLITE_VERSION, Soundness, back_up, check_soundness
from kp_middleware.storage._beside import Beside, read_beside
from kp_middleware.storage._condition import Condition, read_condition
from kp_middleware.storage._counts import Counts, count_all, count_backlog
from kp_middleware.storage._distribution import Distribution, Effect, Hundredth
from kp_middleware.storage._fork_gate import ForkGate
from kp_middleware.storage._free_query import FreeQuery
from kp_middleware.storage._highlights import best, listed, newest, some_of_each_score
from kp_middleware.storage._history import History, Row
from kp_middleware.storage._listing import COUNTED, STATES, Filters, Listing
from kp_middleware.storage._map_points import MapPoint, read_points
from kp_middleware.storage._neighbours import Neighbours, TraceVector
from kp_middleware.storage._outbox_care import Entry, OutboxCare
from kp_middleware.storage._outbox_table import OutboxTable
from kp_middleware.storage._overview import (
    Funnel,
    NoveltyDay,
    Overview,
    Removal,
    ToolUse,
    first_since,
    read_overview,
)
from kp_middleware.storage._pacing_table import Pacing, PacingTable
from kp_middleware.storage._pauses import Pause, lift_stops, read_pauses
from kp_middleware.storage._pruning import Doomed, Pruning, vacuum
from kp_middleware.storage._registries import adopt_registry
from kp_middleware.storage._rescue import LOST_ON_ITS_WAY, Rescue, rescue
from kp_middleware.storage._resting_connection import Identity, RestingConnection
from kp_middleware.storage._score_slices import ScoreSlices, Slice, read_score_slices
from kp_middleware.storage._tool_usage import read_tool_usage
from kp_middleware.storage._totals import read_groups
from kp_middleware.storage._trace_store import NO_KEY, TraceStore, Verdict
from kp_middleware.storage._waiting_runs import WaitingRun, WaitingRuns
from kp_middleware.storage._words import domain_names, tool_names, trace_ids

__all__ = [
    "COUNTED",
    "LOST_ON_ITS_WAY",
    "NO_KEY",
    "SQLITE_VERSION",
    "STATES",
    "Arrivals",
    "Beside",
    "Condition",
    "Counts",
    "Distribution",
    "Doomed",
    "Effect",
    "Entry",
    "Filters",
    "ForkGate",
    "FreeQuery",
    "Funnel",
    "History",
    "Hundredth",
    "Identity",
    "Listing",
    "MapPoint",
    "Neighbours",
    "NoveltyDay",
    "OutboxCare",
    "OutboxTable",
    "Overview",
    "Pacing",
    "PacingTable",
    "Pause",
    "Pruning",
    "Removal",
    "Rescue",
    "RestingConnection",
    "Row",
    "ScoreSlices",
    "Slice",
    "Soundness",
    "ToolUse",
    "TraceStore",
    "TraceVector",
    "Verdict",
    "WaitingRun",
    "WaitingRuns",
    "adopt_registry",
    "back_up",
    "best",
    "check_soundness",
    "count_all",
    "count_backlog",
    "domain_names",
    "first_since",
    "lift_stops",
    "listed",
    "newest",
    "read_beside",
    "read_condition",
    "read_groups",
    "read_overview",
    "read_pauses",
    "read_points",
    "read_score_slices",
    "read_tool_usage",
    "rescue",
    "some_of_each_score",
    "tool_names",
    "trace_ids",
    "vacuum",
]
