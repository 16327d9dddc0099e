"""The embedding model: all-MiniLM-L6-v2, loaded when first used, once in each process."""

import logging
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, assert_never, cast

import numpy as np

from kp_middleware.embedding._embedded_text import Reading, specified_text, task_first_text
from kp_middleware.embedding._embedder import Vector
from kp_middleware.embedding._model_source import file_sha256, int8_folder, load_first
from kp_middleware.embedding._recent_vectors import RecentVectors
from kp_middleware.embedding._window import WINDOW_TOKENS, Window
from kp_middleware.errors import EmbedderNotReadyError, EmbedderUnavailableError
from kp_middleware.traces import ReasoningTrace

if TYPE_CHECKING:
    from fastembed import TextEmbedding
    from fastembed.text.onnx_text_model import OnnxTextModel
    from tokenizers import Tokenizer

logger = logging.getLogger(__name__)

Precision: TypeAlias = Literal["fp32", "int8"]
"""Of the weights and what they are multiplied by: part of the fingerprint."""


class MiniLMEmbedder:
    """Embeds the first 256 tokens of a text with all-MiniLM-L6-v2; safe to share between threads.

    Nothing is looked for or loaded before the first use, which takes a second or two. Whether
    there is a model is decided once in a process: later calls do not look again.

    Args:
        threads: For one text; none of them spins. More than 1 is faster only while the machine has
            nothing else to do.
        precision: ``int8`` takes 0.55 of the time, and finds similarities that are 0.003 off on
            average, at most 0.011. Its model is made once, with onnx (the extra ``weights``).
        reading: What it reads of a trace that is longer than that: ``task-first`` what people said
            and the agent thought, so that long tool results do not drown the task; ``specified``
            the beginning of the protocol's text. A trace that fits is read the same way by both.
    """

    def __init__(
        self, *, threads: int = 1, precision: Precision = "fp32", reading: Reading = "task-first"
    ) -> None:
        self._load = partial(_Model, threads=threads, precision=precision)
        self._precision = precision
        self._reading = reading
        self._loaders: dict[int, _Loader] = {}

    @property
    def name(self) -> str:
        """The fingerprint of weights, window, reading, precision; the model is loaded for it."""
        return f"{self._loader().model().name}:{WINDOW_TOKENS}:{self._reading}:{self._precision}"

    def text_of(self, trace: ReasoningTrace, /) -> str:
        """What it embeds of a trace. Raises as `embed`."""
        match self._reading:
            case "task-first":
                return task_first_text(trace, self._loader().model().window)
            case "specified":
                return specified_text(trace)
            case _:
                assert_never(self._reading)

    def embed(self, text: str, /) -> Vector:
        """The vector of a text: float32, shape ``(384,)``, of length 1.

        Raises:
            EmbedderUnavailableError: If this process has no model; the message says what to do.
            EmbedderNotReadyError: If it is being downloaded.
        """
        return self._loader().model().embed(text)

    def _loader(self) -> "_Loader":
        pid = os.getpid()  # a fork leaves locks as they were, and the session's threads behind
        return self._loaders.get(pid) or self._loaders.setdefault(pid, _Loader(self._load))


class _Loader:
    """Loads the model once; what it says when there is none is remembered as well."""

    def __init__(self, load: Callable[[Path], "_Model"]) -> None:
        self._load_from = load
        self._lock = Lock()
        self._model: _Model | None = None
        self._problem: str | None = None

    def model(self) -> "_Model":
        with self._lock:
            if self._model is None:
                self._model = self._load()
            return self._model

    def _load(self) -> "_Model":
        if self._problem is not None:
            raise EmbedderUnavailableError(self._problem)
        try:
            return load_first(self._load_from)
        except EmbedderNotReadyError:
            raise
        except Exception as exc:
            self._problem = str(exc)
            raise EmbedderUnavailableError(self._problem) from exc


class _Model:
    """The loaded model."""

    def __init__(self, folder: Path, *, threads: int, precision: Precision) -> None:
        began_at = time.monotonic()
        digest = file_sha256(folder / "model.onnx")[:12]
        self.name = f"all-MiniLM-L6-v2:{digest}"
        folder = _folder_in(precision, folder, digest)
        self._embedding = _load_with_fastembed(folder, threads)
        model = cast("OnnxTextModel[Any]", self._embedding.model)
        self.window = Window(cast("Tokenizer", model.tokenizer))
        self._recent = RecentVectors(self._embed)
        took_s = time.monotonic() - began_at
        logger.info("loaded the embedding model from %s in %.1f s", folder, took_s)

    def embed(self, text: str) -> Vector:
        text = text.encode(errors="replace").decode()  # the tokenizer refuses lone surrogates
        return self._recent.of(self.window.beginning(text))

    def _embed(self, text: str) -> Vector:
        vectors = self._embedding.embed([text], batch_size=1)
        return np.asarray(next(iter(vectors)), np.float32)


def _folder_in(precision: Precision, folder: Path, digest: str) -> Path:
    match precision:
        case "fp32":
            return folder
        case "int8":
            return int8_folder(folder, digest)
        case _:
            assert_never(precision)


def _load_with_fastembed(folder: Path, threads: int) -> "TextEmbedding":
    from fastembed import TextEmbedding

    from kp_middleware.embedding._model_download import MODEL

    try:
        embedding = TextEmbedding(
            MODEL.model,
            specific_model_path=str(folder),
            threads=1,
            providers=["CPUExecutionProvider"],
        )
        if threads > 1:
            _replace_session(embedding, folder, threads)
    except Exception as exc:
        problem = f"the embedding model in {folder} cannot be loaded, replace or remove it: {exc}"
        raise EmbedderUnavailableError(problem) from exc
    return embedding


def _replace_session(embedding: "TextEmbedding", folder: Path, threads: int) -> None:
    """By one that does not spin: fastembed has no way to ask for it."""
    from kp_middleware.embedding._onnx_session import quiet_session

    model = cast("OnnxTextModel[Any]", embedding.model)
    model.model = quiet_session(folder / "model.onnx", threads)
