"""Storage of runs, scores and the outbox in the database file."""

from kp_middleware.database import (
    PASSING_TROUBLE,
    RELEASED,
    SCHEMA,
    TROUBLE,
    bring_up_to_date,
    in_words,
    is_damage,
    open_to_all,
    schema_of,
)
from kp_middleware.storage._activity import Endings, Failure, ModelTokens, Period
from kp_middleware.storage._database import Database, no_fork
from kp_middleware.storage._estimates import (
    EstimateTable,
    Kind,
    KnownRun,
    RunEstimate,
    StoredEstimate,
)
from kp_middleware.storage._export_cursor import ExportCandidate, ExportCursor
from kp_middleware.storage._free_query import FreeQuery, domain_names, tool_names, trace_ids
from kp_middleware.storage._history import History
from kp_middleware.storage._last_decisions import (
    LastDecisions,
    read_last_decisions,
)
from kp_middleware.storage._listing import (
    COUNTED,
    SORTS,
    STATES,
    Filters,
)
from kp_middleware.storage._maintenance import (
    SQLITE_VERSION,
    Pruning,
    vacuum,
)
from kp_middleware.storage._outbox_admin import STILL_SENT, OutboxAdmin
from kp_middleware.storage._outbox_table import (
    OutboxTable,
    Queue,
)
from kp_middleware.storage._overview import (
    MOST_POINTS,
    MapPoint,
    NearMiss,
    NoveltyDay,
    Overview,
    Removal,
    ScoreSlices,
    Slice,
)
from kp_middleware.storage._pacing import AgentPace, PacingTable, lift_stops, read_paces
from kp_middleware.storage._past_runs import (
    PastRun,
    PastRuns,
    Selection,
)
from kp_middleware.storage._recall import Candidate, Question, RecallTable
from kp_middleware.storage._records import (
    Embedding,
    FeedbackRecord,
    OutboxItemSummary,
    OutboxRecord,
    Run,
    RunSummary,
    Scoring,
    SimilarRun,
    StepRecord,
)
from kp_middleware.storage._rescue import LOST_ON_ITS_WAY, rescue
from kp_middleware.storage._review import ReviewItem, SuccessRecord, Unjudged
from kp_middleware.storage._shared_runs import Asking, SharedRuns, Unshared
from kp_middleware.storage._sqlite_store import GateHistory, SqliteStore
from kp_middleware.storage._statistics import (
    Counts,
    Funnel,
    GateCounts,
    GroupCounts,
    Highlight,
    ToolUse,
)
from kp_middleware.storage._store import (
    CANCELLED_BY_HAND,
    Belief,
    EarlierReading,
    PausedRun,
    Rescue,
    Store,
    StoredRun,
)

__all__ = [
    "CANCELLED_BY_HAND",
    "COUNTED",
    "LOST_ON_ITS_WAY",
    "MOST_POINTS",
    "PASSING_TROUBLE",
    "RELEASED",
    "SCHEMA",
    "SORTS",
    "SQLITE_VERSION",
    "STATES",
    "STILL_SENT",
    "TROUBLE",
    "AgentPace",
    "Asking",
    "Belief",
    "Candidate",
    "Counts",
    "Database",
    "EarlierReading",
    "Embedding",
    "Endings",
    "EstimateTable",
    "ExportCandidate",
    "ExportCursor",
    "Failure",
    "FeedbackRecord",
    "Filters",
    "FreeQuery",
    "Funnel",
    "GateCounts",
    "GateHistory",
    "GroupCounts",
    "Highlight",
    "History",
    "Kind",
    "KnownRun",
    "LastDecisions",
    "MapPoint",
    "ModelTokens",
    "NearMiss",
    "NoveltyDay",
    "OutboxAdmin",
    "OutboxItemSummary",
    "OutboxRecord",
    "OutboxTable",
    "Overview",
    "PacingTable",
    "PastRun",
    "PastRuns",
    "PausedRun",
    "Period",
    "Pruning",
    "Question",
    "Queue",
    "RecallTable",
    "Removal",
    "Rescue",
    "ReviewItem",
    "Run",
    "RunEstimate",
    "RunSummary",
    "ScoreSlices",
    "Scoring",
    "Selection",
    "SharedRuns",
    "SimilarRun",
    "Slice",
    "SqliteStore",
    "StepRecord",
    "Store",
    "StoredEstimate",
    "StoredRun",
    "SuccessRecord",
    "ToolUse",
    "Unjudged",
    "Unshared",
    "bring_up_to_date",
    "domain_names",
    "in_words",
    "is_damage",
    "lift_stops",
    "no_fork",
    "open_to_all",
    "read_last_decisions",
    "read_paces",
    "rescue",
    "schema_of",
    "tool_names",
    "trace_ids",
    "vacuum",
]
