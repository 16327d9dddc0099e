"""Embeddings of traces, and the score that says how much each is worth sharing."""

from kp_middleware.embedding._index import Neighbour, VectorCache
from kp_middleware.embedding._model import (
    DEFAULT_EMBEDDER,
    Embedder,
    MiniLMEmbedder,
    Vector,
    embed_many,
    embedded_text,
    shared_embedder,
)
from kp_middleware.embedding._scorer import Embedded, Scorer, aevaluate_value, evaluate_value

__all__ = ["DEFAULT_EMBEDDER", "Embedded", "Embedder", "MiniLMEmbedder", "Neighbour", "Scorer",
           "Vector", "VectorCache", "aevaluate_value", "embed_many", "embedded_text",
           "evaluate_value", "shared_embedder"]  # fmt: skip
