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
    CurrentRun,
    Place,
    captured_recorder,
    current_place,
    current_recorder,
    inside,
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
from kp_middleware.recording._recorded_run import (
    assemble,
    bounded,
    detach_from_thread,
    ended,
    joined,
)
from kp_middleware.recording._recorder import GIVEN_UP, Recorder, current_trace
from kp_middleware.recording._spans import RootSpan, Span, SpanFailure, SpanId
from kp_middleware.recording._tree import NullRecording, Recording, SpanTree, recordings

__all__ = ["GIVEN_UP", "Conversation", "CurrentRun", "Extractors", "LateNote", "Message",
           "ModelCall", "NullRecording", "Place", "Recorder", "Recording", "RootSpan",
           "ServedResult", "Span", "SpanFailure", "SpanId", "SpanTree", "ToolCall", "Turn",
           "assemble", "bounded", "bounded_name", "bounded_text", "captured", "captured_recorder",
           "causes", "current_place", "current_recorder", "current_trace", "detach_from_thread",
           "ended", "fields_of", "holds_cuts", "inside", "is_marker", "joined", "jsonable",
           "propagate_context", "recorded_tool", "recordings", "register_finder", "shield",
           "text_of"]  # fmt: skip
