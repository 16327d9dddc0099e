"""Recording of agent runs as traces; adapters feed a framework's spans to a `SpanTree`."""

from kp_middleware.recording._bounds import (
    LateNote,
    ModelCall,
    bounded_name,
    bounded_text,
    causes,
    fields_of,
    holds_cuts,
    is_marker,
    jsonable,
)
from kp_middleware.recording._context import (
    Here,
    Place,
    captured_recorder,
    current_recorder,
    inside,
    place_here,
    propagate_context,
    register_finder,
    shield,
)
from kp_middleware.recording._conversation import (
    Conversation,
    Message,
    ServedResult,
    ToolCall,
    Turn,
    text_of,
)
from kp_middleware.recording._decorators import captured, recorded_tool
from kp_middleware.recording._extractors import Extractors
from kp_middleware.recording._recorded_run import alone, assemble, bounded, ended, joined
from kp_middleware.recording._recorder import GIVEN_UP, Recorder, current_trace
from kp_middleware.recording._spans import RootSpan, Span, SpanFailure, SpanId
from kp_middleware.recording._tree import NullRecording, Recording, SpanTree, recordings

__all__ = [
    "GIVEN_UP",
    "Conversation",
    "Extractors",
    "Here",
    "LateNote",
    "Message",
    "ModelCall",
    "NullRecording",
    "Place",
    "Recorder",
    "Recording",
    "RootSpan",
    "ServedResult",
    "Span",
    "SpanFailure",
    "SpanId",
    "SpanTree",
    "ToolCall",
    "Turn",
    "alone",
    "assemble",
    "bounded",
    "bounded_name",
    "bounded_text",
    "captured",
    "captured_recorder",
    "causes",
    "current_recorder",
    "current_trace",
    "ended",
    "fields_of",
    "holds_cuts",
    "inside",
    "is_marker",
    "joined",
    "jsonable",
    "place_here",
    "propagate_context",
    "recorded_tool",
    "recordings",
    "register_finder",
    "shield",
    "text_of",
]
