"""What others tell: spans, in the dialects of OpenTelemetry, and messages."""

from kp_middleware.recording import text_of
from kp_middleware.spans._dialects import kept, kind_of, read
from kp_middleware.spans._fields import (
    Fields,
    arguments,
    fields,
    first_text,
    listed,
    name,
    number,
    objects,
    parsed,
    text,
    time_s,
    tokens,
)
from kp_middleware.spans._held import HeldRuns
from kp_middleware.spans._held_span import ROOTS, HeldSpan, Scope, roots_in, split
from kp_middleware.spans._reading import (
    Attributes,
    Event,
    Kind,
    Problem,
    Reading,
    handoff_to,
    problem_in,
)
from kp_middleware.spans._replay import replay
from kp_middleware.spans._said import (
    Said,
    asked_in,
    last_text,
    messages_in,
    results_in,
    said_in,
    turn_of,
)

__all__ = [
    "ROOTS",
    "Attributes",
    "Event",
    "Fields",
    "HeldRuns",
    "HeldSpan",
    "Kind",
    "Problem",
    "Reading",
    "Said",
    "Scope",
    "arguments",
    "asked_in",
    "fields",
    "first_text",
    "handoff_to",
    "kept",
    "kind_of",
    "last_text",
    "listed",
    "messages_in",
    "name",
    "number",
    "objects",
    "parsed",
    "problem_in",
    "read",
    "replay",
    "results_in",
    "roots_in",
    "said_in",
    "split",
    "text",
    "text_of",
    "time_s",
    "tokens",
    "turn_of",
]
