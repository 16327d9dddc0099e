"""Many dimensions seen from where they spread most: two numbers for each vector."""

from collections.abc import Sequence
from typing import NamedTuple


class Projection(NamedTuple):
    """Where each vector is on the plane.

    Attributes:
        places: One for each vector, around (0, 0).
        kept: Which part of their variance the plane shows, 0 to 1.
    """

    places: tuple[tuple[float, float], ...]
    kept: float


def project(vectors: Sequence[bytes]) -> Projection:
    """The first two principal components; the same vectors give the same map.

    Args:
        vectors: Each float32, little-endian, all of the same length.
    """
    if not vectors:
        return Projection((), 0.0)
    import numpy as np

    matrix = np.frombuffer(b"".join(vectors), dtype="<f4").reshape(len(vectors), -1)
    matrix = matrix - matrix.mean(axis=0)
    variances, axes = np.linalg.eigh(matrix.T @ matrix)  # in rising order
    axes = axes[:, :-3:-1]
    signs = np.sign(axes[np.abs(axes).argmax(axis=0), [*range(axes.shape[1])]])  # eigh's are free
    places = matrix @ (axes * signs)
    total = float(variances.sum())
    kept = float(variances[:-3:-1].sum()) / total if total > 0 else 0.0
    return Projection(tuple((float(x), float(y)) for x, y in places), min(1.0, max(0.0, kept)))


def nearest(vectors: Sequence[bytes], limit: int) -> list[tuple[int, float]]:
    """Which are most like the first: their places and cosine similarities, the most first.

    Args:
        vectors: Each float32, little-endian, of length 1.
        limit: How many at the most.
    """
    import numpy as np

    matrix = np.frombuffer(b"".join(vectors), dtype="<f4").reshape(len(vectors), -1)
    similarities = matrix[1:] @ matrix[0]
    order = np.argsort(-similarities, kind="stable")[:limit]
    return [(int(place) + 1, float(similarities[place])) for place in order]
