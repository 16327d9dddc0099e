"""Embeddings of traces, and the score that says how much each is worth sharing."""

from kp_middleware.embedding._index import Neighbour, VectorCache
from kp_middleware.embedding._model import (
    DEFAULT_EMBEDDER,
    MiniLMEmbedder,
    describe_source,
    embed_many,
    shared_embedder,
)
from kp_middleware.embedding._scorer import Embedded, Scorer, aevaluate_value, evaluate_value
from kp_middleware.embedding._text import Embedder, Reader, Vector, embedded_text, specified_text

__all__ = [
    "DEFAULT_EMBEDDER",
    "Embedded",
    "Embedder",
    "MiniLMEmbedder",
    "Neighbour",
    "Reader",
    "Scorer",
    "Vector",
    "VectorCache",
    "aevaluate_value",
    "describe_source",
    "embed_many",
    "embedded_text",
    "evaluate_value",
    "shared_embedder",
    "specified_text",
]
