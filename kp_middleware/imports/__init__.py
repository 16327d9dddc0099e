"""Runs that other tools have kept: readers of their formats, each from a stream of values."""

from kp_middleware.imports._files import FORMATS, Spool, files_of, folders_of, format_in, runs_in
from kp_middleware.imports._source import Book, Filling, SourceRun

__all__ = [
    "FORMATS",
    "Book",
    "Filling",
    "SourceRun",
    "Spool",
    "files_of",
    "folders_of",
    "format_in",
    "runs_in",
]
