"""Read the runs that other tools store, each in its own format, from a stream of JSON values."""

from kp_middleware.imports._files import (
    FORMATS,
    StagedRuns,
    default_folders,
    detect_format,
    find_files,
    read_runs,
)
from kp_middleware.imports._source import ImportContext, RunDefaults, SourceRun

__all__ = ["FORMATS", "ImportContext", "RunDefaults", "SourceRun", "StagedRuns", "default_folders",
           "detect_format", "find_files", "read_runs"]  # fmt: skip
