"""What a command's exit code says, beside 0 (done), 1 (an error) and 2 (typed wrongly)."""

from typing import Final

FOUND: Final = 3
"""Something was found that wants a look: ``doctor``, ``redact --check``; left: ``outbox send``."""

EMPTY: Final = 4
"""Nothing matched, and ``--fail-empty`` was given."""

UNREACHABLE: Final = 5
"""The registry cannot be reached."""

BLOCKED: Final = 6
"""Redaction keeps something from being sent."""

INTERRUPTED: Final = 130
"""Ctrl-C."""

BROKEN_PIPE: Final = 141
"""Whoever read the output has gone, as ``| head`` does; shells name it so."""
