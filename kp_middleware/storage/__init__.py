"""Storage of runs, scores and the outbox in the database file."""

from kp_middleware.database import (
    DATABASE_ERRORS,
    SCHEMA,
    TRANSIENT_ERRORS,
    Database,
    fork_lock,
    is_damage,
    is_locked,
    permission_warning,
    schema_version,
    to_database_error,
    upgrade_file,
)
from kp_middleware.storage._export_cursor import ExportCandidate, ExportCursor
from kp_middleware.storage._history import (
    FreeQuery,
    History,
    ReviewItem,
    domain_names,
    tool_names,
    trace_ids,
)
from kp_middleware.storage._learning import (
    MIN_P,
    EstimateTable,
    LabelledRun,
    RecallCandidate,
    RecallFilter,
    RunEstimate,
    RunKind,
    StoredEstimate,
)
from kp_middleware.storage._listing import COUNTED, SORTS, STATES, Filters
from kp_middleware.storage._maintenance import SQLITE_VERSION, Pruning
from kp_middleware.storage._outbox import STILL_SENT, OutboxAdmin, OutboxTable, Queue
from kp_middleware.storage._overview import (
    MOST_POINTS,
    LastDecisions,
    MapPoint,
    NoveltyDay,
    Overview,
    Removal,
    ReviewBacklog,
    ScoreSlices,
    Slice,
    SuccessRecord,
)
from kp_middleware.storage._pacing import (
    AgentPace,
    PacingTable,
    SharedPace,
    lift_stops,
    read_paces,
    unpack_agent_pace,
)
from kp_middleware.storage._past_runs import PastRun, PastRuns
from kp_middleware.storage._records import (
    Embedding,
    FeedbackRecord,
    Run,
    RunDocument,
    RunSummary,
    Scoring,
    StepRecord,
)
from kp_middleware.storage._shared_runs import DecisionRequest, SharedBacklog, SharedRuns
from kp_middleware.storage._sqlite_store import SqliteStore
from kp_middleware.storage._statistics import (
    Backlog,
    Counts,
    Endings,
    Failure,
    Funnel,
    GroupCounts,
    ModelTokens,
    Period,
    ToolUse,
    TopRun,
)
from kp_middleware.storage._store import (
    CANCELLED_BY_USER,
    MAY_HAVE_BEEN_SENT,
    PausedRun,
    Retention,
    RunPicker,
    Store,
    StoredRun,
)

__all__ = ["CANCELLED_BY_USER", "COUNTED", "DATABASE_ERRORS", "MAY_HAVE_BEEN_SENT", "MIN_P",
           "MOST_POINTS", "SCHEMA", "SORTS", "SQLITE_VERSION", "STATES", "STILL_SENT",
           "TRANSIENT_ERRORS", "AgentPace", "Backlog", "Counts", "Database", "DecisionRequest",
           "Embedding", "Endings", "EstimateTable", "ExportCandidate", "ExportCursor", "Failure",
           "FeedbackRecord", "Filters", "FreeQuery", "Funnel", "GroupCounts", "History",
           "LabelledRun", "LastDecisions", "MapPoint", "ModelTokens", "NoveltyDay", "OutboxAdmin",
           "OutboxTable", "Overview", "PacingTable", "PastRun", "PastRuns", "PausedRun", "Period",
           "Pruning", "Queue", "RecallCandidate", "RecallFilter", "Removal", "Retention",
           "ReviewBacklog", "ReviewItem", "Run", "RunDocument", "RunEstimate", "RunKind",
           "RunPicker", "RunSummary", "ScoreSlices", "Scoring", "SharedBacklog", "SharedPace",
           "SharedRuns", "Slice", "SqliteStore", "StepRecord", "Store", "StoredEstimate",
           "StoredRun", "SuccessRecord", "ToolUse", "TopRun",
           "domain_names", "fork_lock", "is_damage", "is_locked", "lift_stops",
           "permission_warning", "read_paces", "schema_version", "to_database_error", "tool_names",
           "trace_ids", "unpack_agent_pace", "upgrade_file"]  # fmt: skip
