"""Embeddings of traces, and the score that says how much each is worth sharing."""

from kp_middleware.embedding._embedder import Embedder, Reader, Vector
from kp_middleware.embedding._evaluate import aevaluate_value, evaluate_value
from kp_middleware.embedding._minilm import (
    DEFAULT_EMBEDDER,
    MiniLMEmbedder,
    embed_many,
    shared_embedder,
)
from kp_middleware.embedding._model_source import describe_source
from kp_middleware.embedding._ring import Neighbour
from kp_middleware.embedding._scorer import Scorer
from kp_middleware.embedding._text import embedded_text, specified_text
from kp_middleware.embedding._vector_cache import VectorCache

__all__ = [
    "DEFAULT_EMBEDDER",
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
