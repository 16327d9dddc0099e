"""Protocols of embedding models, as scoring uses them."""

from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from kp_middleware.traces import ReasoningTrace

Vector: TypeAlias = NDArray[np.float32]
"""A float32 array of shape ``(dimensions,)``; embedders return unit vectors, MiniLM's of 384."""


class Embedder(Protocol):
    """A model that maps texts to vectors, similar texts to near vectors.

    ``name`` is a fingerprint: vectors are only ever compared with vectors of the same name, so
    anything that changes the numbers (weights, window, precision) must change the name.
    """

    @property
    def name(self) -> str:
        """The fingerprint stored with each vector."""

    def embed(self, text: str, /) -> Vector:
        """Return the vector of a text.

        Raises:
            EmbedderUnavailableError: If there is no model; novelty is then 0.5.
            EmbedderNotReadyError: If the model is being downloaded; try again later.
        """


@runtime_checkable
class Reader(Protocol):
    """An embedder that chooses which part of a long trace it reads.

    For any other embedder, the specified text is embedded. A wrapper around a reader delegates
    ``text_of``, or has another name.
    """

    def text_of(self, trace: ReasoningTrace, /) -> str:
        """Return the text to embed for a trace. Raises the errors of `Embedder.embed`."""
