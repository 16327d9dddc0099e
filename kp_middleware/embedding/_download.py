"""Download of the embedding model, in the background and at most once in each process."""

import logging
import os
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from pathlib import Path
from threading import Lock, Thread

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
_HUB_ANSWERS_S = 2.5
_HUB_TIMEOUT_S = 10.0
_DEADLINE_S = 600.0


def cached_folder() -> Path:
    """Return the model's folder in fastembed's own cache, without network access."""
    cache = define_cache_dir()
    try:
        return TextEmbedding.download_model(MODEL, str(cache), local_files_only=True)
    except Exception as exc:
        raise EmbedderUnavailableError(f"it is not in fastembed's cache, {cache}") from exc


class Download:
    """One attempt to download the model, started on first use; what comes late is kept."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._attempt: Future[Path] | None = None
        self._began_at = 0.0
        self._answered = False

    def folder(self) -> Path:
        """Return the model's folder, waiting only until the hub should have answered."""
        with self._lock:
            if self._attempt is None:
                self._began_at = time.monotonic()
                self._attempt = Future()
                arguments = (self._attempt,)  # a hang blocks neither the caller nor the exit
                Thread(target=self._run, args=arguments, name="kp-model", daemon=True).start()
        wait([self._attempt], timeout=max(0.0, _HUB_ANSWERS_S - self._took_s()))
        if self._attempt.done():
            problem = self._attempt.exception()
        elif not self._answered:
            problem = TimeoutError(f"the hub did not answer within {_HUB_ANSWERS_S} s")
        elif self._took_s() > _DEADLINE_S:
            problem = TimeoutError(f"it took more than {_DEADLINE_S:g} s")
        else:
            raise EmbedderNotReadyError("the embedding model is being downloaded")
        if problem:
            raise EmbedderUnavailableError(f"it cannot be downloaded ({problem})") from problem
        return self._attempt.result()

    def _took_s(self) -> float:
        return time.monotonic() - self._began_at

    def _run(self, attempt: "Future[Path]") -> None:
        try:
            attempt.set_result(self._fetched())
        except BaseException as exc:  # noqa: BLE001  # raised by `Future.result`
            attempt.set_exception(exc)

    def _fetched(self) -> Path:
        siblings = model_info(_REPOSITORY, timeout=_HUB_TIMEOUT_S).siblings or []
        if (took_s := self._took_s()) > _HUB_ANSWERS_S:  # the caller has given up
            raise TimeoutError(f"the hub took {took_s:.1f} s to answer")
        self._answered = True
        offered = {sibling.rfilename for sibling in siblings}
        cache = define_cache_dir()
        logger.info("downloading the embedding model, 90 MB, to %s", cache)
        with _without_bars():  # one by one: a thread pool would delay the exit of the process
            for name in filter(offered.__contains__, _FILES):
                hf_hub_download(_REPOSITORY, name, cache_dir=cache)
        return cached_folder()


_downloads: dict[int, Download] = {}


def process_download() -> Download:
    """Return this process's download; a forked child, which has no threads, starts its own."""
    pid = os.getpid()
    return _downloads.get(pid) or _downloads.setdefault(pid, Download())


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
