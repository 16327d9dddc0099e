"""Runs that other tools have kept: readers of their formats, each from a stream of values."""

from kp_middleware.imports._files import FORMATS, Spool, files_of, format_in, runs_in
from kp_middleware.imports._source import Book, Filling, Skipped, SourceRun

__all__ = [
    "FORMATS",
    "Book",
    "Filling",
    "Skipped",
    "SourceRun",
    "Spool",
    "files_of",
    "format_in",
    "runs_in",
]
