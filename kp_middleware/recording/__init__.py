"""Recording of agent runs as traces."""

from kp_middleware.recording._assembly import assemble
from kp_middleware.recording._bounds import bounded
from kp_middleware.recording._capture import GIVEN_UP, Naming, captured, recorded_tool
from kp_middleware.recording._carried import carried
from kp_middleware.recording._confidence import Sureness, extractors_of
from kp_middleware.recording._current import (
    Here,
    captured_recorder,
    current_recorder,
    current_trace,
    inside,
    register_finder,
)
from kp_middleware.recording._joining import alone, ended, joined
from kp_middleware.recording._jsonable import jsonable
from kp_middleware.recording._limits import Limits, bounded_text
from kp_middleware.recording._place import Place, place_here
from kp_middleware.recording._recorder import LateNote, Recorder, Sink, causes
from kp_middleware.recording._shield import shield
from kp_middleware.recording._span import Failure, RootSpan, Span, given_up, is_survived
from kp_middleware.recording._spans import SpanTree
from kp_middleware.recording._step_log import BEGINNING, ModelCall

__all__ = [
    "BEGINNING",
    "GIVEN_UP",
    "Failure",
    "Here",
    "LateNote",
    "Limits",
    "ModelCall",
    "Naming",
    "Place",
    "Recorder",
    "RootSpan",
    "Sink",
    "Span",
    "SpanTree",
    "Sureness",
    "alone",
    "assemble",
    "bounded",
    "bounded_text",
    "captured",
    "captured_recorder",
    "carried",
    "causes",
    "current_recorder",
    "current_trace",
    "ended",
    "extractors_of",
    "given_up",
    "inside",
    "is_survived",
    "joined",
    "jsonable",
    "place_here",
    "recorded_tool",
    "register_finder",
    "shield",
]
