"""The similarity of a run to all others."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from kp_middleware.database import Connection

_BATCH: Final = 1024  # vectors of 384 numbers: 1.5 MB


def similarities(
    connection: Connection,
    seq: int,
    embedder: str,
    vector: bytes,
    reach: Callable[[int], None],
) -> Iterator[tuple[float, int]]:
    """Yield the similarity to each of the others, by one matrix product per batch."""
    import numpy as np

    rows = connection.execute(
        "SELECT trace_seq, vector FROM vectors"
        " WHERE trace_seq <> ? AND embedder = ? AND length(vector) = ? ORDER BY seq",
        (seq, embedder, len(vector)),
    )
    wanted, done = np.frombuffer(vector, "<f4"), 0
    while batch := [*islice(rows, _BATCH)]:
        matrix = np.frombuffer(b"".join(blob for _, blob in batch), "<f4")
        found = np.clip(matrix.reshape(len(batch), -1) @ wanted, -1.0, 1.0).tolist()
        yield from zip(found, (seq for seq, _ in batch), strict=True)
        reach(done := done + len(batch))
