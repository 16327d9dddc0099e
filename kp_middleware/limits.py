"""Limits that keep a run from exhausting memory; the defaults of their settings."""

from dataclasses import dataclass

__all__ = ["Limits"]


@dataclass(frozen=True)
class Limits:
    """Limits of a text or input, and of a trace."""

    field_bytes: int = 64 * 1024
    steps: int = 1000
    trace_bytes: int = 1024 * 1024
