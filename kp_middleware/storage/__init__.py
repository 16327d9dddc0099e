"""The file of traces: what was recorded, how it scored, what was sent."""

from kp_middleware.storage._agreement import agree
from kp_middleware.storage._aliases import Aliases
from kp_middleware.storage._arrivals import Arrivals
from kp_middleware.storage._backup import SQLITE_VERSION, Soundness, back_up, check_soundness
from kp_middleware.storage._beside import Beside, read_beside
from kp_middleware.storage._condition import Condition, read_condition
from kp_middleware.storage._counts import Counts, count_all, count_backlog, count_without_tokens
from kp_middleware.storage._database import Database, Identity, no_fork
from kp_middleware.storage._distribution import Distribution, Effect, Hundredth
from kp_middleware.storage._dry_run import DryRun
from kp_middleware.storage._feedback_table import Belief, FeedbackTable
from kp_middleware.storage._free_query import FreeQuery
from kp_middleware.storage._gate_history import GateHistory
from kp_middleware.storage._highlights import best, listed, newest, some_of_each_score
from kp_middleware.storage._history import History, Row
from kp_middleware.storage._last_decisions import (
    LastDecisions,
    claim_to_say,
    read_last_decisions,
)
from kp_middleware.storage._listing import COUNTED, STATES, Filters, Listing
from kp_middleware.storage._map_points import MOST_POINTS, MapPoint, read_points
from kp_middleware.storage._neighbours import Neighbours, TraceVector
from kp_middleware.storage._outbox_care import Entry, OutboxCare, Sent
from kp_middleware.storage._outbox_table import OutboxTable, Queue, adopt_registry, read_queues
from kp_middleware.storage._overview import (
    Funnel,
    NoveltyDay,
    Overview,
    first_since,
    read_domains,
    read_overview,
)
from kp_middleware.storage._pacing_table import PacingTable
from kp_middleware.storage._past_runs import PastRun, PastRuns, Remembered, Selection
from kp_middleware.storage._pauses import Bucket, Pause, lift_stops, read_buckets, read_pauses
from kp_middleware.storage._pruning import Doomed, Pruning, vacuum
from kp_middleware.storage._recent_overviews import RecentOverviews
from kp_middleware.storage._records import (
    FeedbackRecord,
    OutboxRecord,
    Run,
    RunSummary,
    Scoring,
    StepRecord,
)
from kp_middleware.storage._removals import Removal
from kp_middleware.storage._rescoring_progress import (
    RescoringProgress,
    forget_progress,
    read_progress,
    save_progress,
)
from kp_middleware.storage._rescue import LOST_ON_ITS_WAY, Rescue, rescue
from kp_middleware.storage._score_slices import ScoreSlices, Slice, read_score_slices
from kp_middleware.storage._scored_runs import read_scored_runs
from kp_middleware.storage._scored_traces import Decided, ScoredTraces
from kp_middleware.storage._tool_usage import read_tool_usage
from kp_middleware.storage._totals import read_groups
from kp_middleware.storage._trace_store import CANCELLED_BY_HAND, TraceStore
from kp_middleware.storage._used_tools import ToolTotals, ToolUse
from kp_middleware.storage._waiting_runs import WaitingRun, WaitingRuns
from kp_middleware.storage._words import domain_names, tool_names, trace_ids

__all__ = [
    "CANCELLED_BY_HAND",
    "COUNTED",
    "LOST_ON_ITS_WAY",
    "MOST_POINTS",
    "SQLITE_VERSION",
    "STATES",
    "Aliases",
    "Arrivals",
    "Belief",
    "Beside",
    "Bucket",
    "Condition",
    "Counts",
    "Database",
    "Decided",
    "Distribution",
    "Doomed",
    "DryRun",
    "Effect",
    "Entry",
    "FeedbackRecord",
    "FeedbackTable",
    "Filters",
    "FreeQuery",
    "Funnel",
    "GateHistory",
    "History",
    "Hundredth",
    "Identity",
    "LastDecisions",
    "Listing",
    "MapPoint",
    "Neighbours",
    "NoveltyDay",
    "OutboxCare",
    "OutboxRecord",
    "OutboxTable",
    "Overview",
    "PacingTable",
    "PastRun",
    "PastRuns",
    "Pause",
    "Pruning",
    "Queue",
    "RecentOverviews",
    "Remembered",
    "Removal",
    "RescoringProgress",
    "Rescue",
    "Row",
    "Run",
    "RunSummary",
    "ScoreSlices",
    "ScoredTraces",
    "Scoring",
    "Selection",
    "Sent",
    "Slice",
    "Soundness",
    "StepRecord",
    "ToolTotals",
    "ToolUse",
    "TraceStore",
    "TraceVector",
    "WaitingRun",
    "WaitingRuns",
    "adopt_registry",
    "agree",
    "back_up",
    "best",
    "check_soundness",
    "claim_to_say",
    "count_all",
    "count_backlog",
    "count_without_tokens",
    "domain_names",
    "first_since",
    "forget_progress",
    "lift_stops",
    "listed",
    "newest",
    "no_fork",
    "read_beside",
    "read_buckets",
    "read_condition",
    "read_domains",
    "read_groups",
    "read_last_decisions",
    "read_overview",
    "read_pauses",
    "read_points",
    "read_progress",
    "read_queues",
    "read_score_slices",
    "read_scored_runs",
    "read_tool_usage",
    "rescue",
    "save_progress",
    "some_of_each_score",
    "tool_names",
    "trace_ids",
    "vacuum",
]
