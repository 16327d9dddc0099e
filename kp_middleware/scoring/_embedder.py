"""What scoring needs from an embedding model."""

from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

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
