"""What scoring needs from an embedding model."""

from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from kp_middleware.traces import ReasoningTrace

Vector: TypeAlias = NDArray[np.float32]
"""float32, shape ``(dimensions,)``; an embedder's has length 1, and MiniLM's 384 dimensions."""


class Embedder(Protocol):
    """Maps a text to a vector; like texts map to near vectors.

    ``name`` is a fingerprint: vectors are only ever compared with vectors of the same name, so
    anything that changes the numbers (weights, window, precision) must change the name.
    """

    @property
    def name(self) -> str:
        """The fingerprint that is stored with each vector."""

    def embed(self, text: str, /) -> Vector:
        """The vector of one text.

        Raises:
            EmbedderUnavailableError: If there is no model: novelty is then 0.5.
            EmbedderNotReadyError: If the model is on its way: ask again later.
        """


@runtime_checkable
class Reader(Protocol):
    """An embedder that reads a part of a long trace, and chooses which.

    Where an embedder is none, the specified text is embedded. Who wraps one passes this on, or
    gives the whole another name.
    """

    def text_of(self, trace: ReasoningTrace, /) -> str:
        """What is embedded of a trace. Raises as `Embedder.embed`."""
