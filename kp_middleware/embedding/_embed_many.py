"""Many texts embedded at once: what a backfill needs."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from kp_middleware.embedding._embedder import Embedder, Vector
from kp_middleware.embedding._minilm import MiniLMEmbedder

_THREADS: Final = 2
_AHEAD: Final = 8  # texts: enough that no thread waits for the caller, few enough for any memory


def embed_many(texts: Iterable[str], embedder: Embedder) -> Iterator[Vector]:
    """The vectors of many texts, in their order.

    MiniLM embeds two at a time, one text in each run: batches pad all to the longest. Another
    embedder, which need not be safe in two threads, is asked in the caller's thread.

    Args:
        texts: Read in the caller's thread, at most 8 ahead.
        embedder: Shared by the threads.

    Raises:
        EmbedderUnavailableError, EmbedderNotReadyError: In the place of the text's vector; what was
            not begun by then is dropped, as it is where the caller stops.
    """
    if isinstance(embedder, MiniLMEmbedder):
        yield from _in_threads(texts, embedder)
    else:
        yield from map(embedder.embed, texts)


def _in_threads(texts: Iterable[str], embedder: Embedder) -> Iterator[Vector]:
    begun: deque[Future[Vector]] = deque()
    threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="kp-embedding")
    try:
        for text in texts:
            if len(begun) == _AHEAD:
                yield begun.popleft().result()
            begun.append(threads.submit(embedder.embed, text))
        while begun:
            yield begun.popleft().result()
    finally:
        threads.shutdown(cancel_futures=True)
