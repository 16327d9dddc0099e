"""The pipeline: keep, score, gate and send finished runs, in that order."""

from kp_middleware.pipeline._client import KnowledgePulse
from kp_middleware.pipeline._dispatch import Rescan
from kp_middleware.pipeline._imports import (
    Import,
    ImportRequest,
    copy_log,
    sync_shared_outbox,
)
from kp_middleware.pipeline._intake import Feedback
from kp_middleware.pipeline._reevaluation import Reevaluation
from kp_middleware.pipeline._rescore import Rescoring
from kp_middleware.pipeline._sending import check_key, drain, reconcile
from kp_middleware.storage import Backlog

__all__ = ["Backlog", "Feedback", "Import", "ImportRequest", "KnowledgePulse", "Reevaluation",
           "Rescan", "Rescoring", "check_key", "copy_log", "drain", "reconcile",
           "sync_shared_outbox"]  # fmt: skip
