"""Limits that keep a run from exhausting memory; the defaults of their settings."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from kp_middleware.settings import Settings

__all__ = ["Limits"]


@dataclass(frozen=True)
class Limits:
    """Limits of a text or input, and of a trace."""

    field_bytes: int = 64 * 1024
    steps: int = 1000
    trace_bytes: int = 1024 * 1024

    @classmethod
    def from_settings(cls, settings: "Settings") -> Self:
        """Return the limits of the settings."""
        return cls(
            field_bytes=settings.max_field_bytes,
            steps=settings.max_steps,
            trace_bytes=settings.max_trace_bytes,
        )
