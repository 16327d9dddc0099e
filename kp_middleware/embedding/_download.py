"""Download of the embedding model, in the background and at most once in each process."""

import logging
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Lock, Thread
from typing import TypeVar

from fastembed import TextEmbedding
from fastembed.common.model_description import DenseModelDescription, ModelSource
from fastembed.common.utils import define_cache_dir
from huggingface_hub import hf_hub_download, model_info
from huggingface_hub.utils.tqdm import (
    are_progress_bars_disabled,
    disable_progress_bars,
    enable_progress_bars,
)
from loguru import logger as loguru

from kp_middleware.errors import EmbedderNotReadyError, EmbedderUnavailableError

logger = logging.getLogger(__name__)
loguru.disable("fastembed")  # or its log lines reach the host's terminal

T = TypeVar("T")

_REPOSITORY = "Qdrant/all-MiniLM-L6-v2-onnx"
MODEL = DenseModelDescription(
    model="sentence-transformers/all-MiniLM-L6-v2",
    sources=ModelSource(hf=_REPOSITORY),
    model_file="model.onnx",
    description="",
    license="apache-2.0",
    size_in_GB=0.09,
    dim=384,
)
_FILES = (
    "config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "model.onnx",  # last, because fastembed considers a cache with this file complete
)
_CALLER_WAITS_S = 3.0
_HUB_ANSWERS_S = 2.5  # less, so that the caller learns of a silent hub at once


def cached_folder() -> Path:
    """Return the model's folder in fastembed's own cache, without network access.

    Raises:
        EmbedderUnavailableError: If the model is not cached.
    """
    cache = define_cache_dir()
    try:
        return TextEmbedding.download_model(MODEL, str(cache), local_files_only=True)
    except Exception as exc:
        raise EmbedderUnavailableError(f"it is not in fastembed's cache, {cache}") from exc


class Download:
    """One attempt to download the model into fastembed's cache, started on first use.

    Args:
        deadline_s: Timeout in seconds; files fetched after it serve the next process.
    """

    def __init__(self, *, deadline_s: float = 600.0) -> None:
        self._deadline_s = deadline_s
        self._lock = Lock()
        self._attempt: Future[Path] | None = None
        self._wait_until = 0.0

    def folder(self) -> Path:
        """Return the model's folder, blocking only during the first 3 s of the attempt.

        Raises:
            EmbedderUnavailableError: If the hub did not answer in time, or the download failed.
            EmbedderNotReadyError: While the download runs.
        """
        attempt = self._begun()
        wait([attempt], timeout=max(0.0, self._wait_until - time.monotonic()))
        if not attempt.done():
            raise EmbedderNotReadyError("the embedding model is being downloaded")
        if problem := attempt.exception():
            raise EmbedderUnavailableError(f"it cannot be downloaded ({problem})") from problem
        return attempt.result()

    def _begun(self) -> Future[Path]:
        with self._lock:
            if self._attempt is None:
                self._wait_until = time.monotonic() + _CALLER_WAITS_S
                self._attempt = _in_background(self._try)
            return self._attempt

    def _try(self) -> Path:
        asking = _in_background(_ask_hub)
        if not wait([asking], timeout=_HUB_ANSWERS_S).done:
            raise TimeoutError(f"the hub did not answer within {_HUB_ANSWERS_S} s")
        cache = define_cache_dir()
        logger.info("downloading the embedding model, 90 MB, to %s", cache)
        fetching = _in_background(partial(_fetch, asking.result(), cache))
        if not wait([fetching], timeout=self._deadline_s).done:
            raise TimeoutError(f"it took more than {self._deadline_s:g} s")
        return fetching.result()


_downloads: dict[int, Download] = {}


def process_download() -> Download:
    """Return this process's download; a forked child, which has no threads, starts its own."""
    pid = os.getpid()
    return _downloads.get(pid) or _downloads.setdefault(pid, Download())


def _ask_hub() -> list[str]:
    """Return the names of the model's files that the hub has."""
    siblings = model_info(_REPOSITORY, timeout=_HUB_ANSWERS_S).siblings or []
    offered = {sibling.rfilename for sibling in siblings}
    return [name for name in _FILES if name in offered]


def _fetch(names: list[str], cache: Path) -> Path:
    # One by one: snapshot_download uses a thread pool, which delays the exit of the process.
    with _without_bars():
        for name in names:
            hf_hub_download(_REPOSITORY, name, cache_dir=cache)
    return cached_folder()


@contextmanager
def _without_bars() -> Iterator[None]:
    """Keep the hub's progress bars off the host's terminal."""
    if are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()


def _in_background(work: Callable[[], T]) -> Future[T]:
    """Run ``work`` on a daemon thread, so that a hang blocks neither the caller nor the exit."""
    future: Future[T] = Future()
    Thread(target=_fulfil, args=(future, work), name="kp-model", daemon=True).start()
    return future


def _fulfil(future: Future[T], work: Callable[[], T]) -> None:
    try:
        future.set_result(work())
    except BaseException as exc:  # noqa: BLE001  # raised by `Future.result`
        future.set_exception(exc)
