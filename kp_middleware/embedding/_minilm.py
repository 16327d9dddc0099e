"""The embedding model: all-MiniLM-L6-v2, loaded at first use, once in each process."""

import logging
import os
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, assert_never, cast

import numpy as np

from kp_middleware.embedding._embedder import Embedder, Vector
from kp_middleware.embedding._model_source import file_sha256, int8_folder, load_first
from kp_middleware.embedding._text import Reading, specified_text, task_first_text
from kp_middleware.embedding._window import WINDOW_TOKENS, Window
from kp_middleware.errors import EmbedderNotReadyError, EmbedderUnavailableError
from kp_middleware.traces import ReasoningTrace

if TYPE_CHECKING:
    from fastembed import TextEmbedding
    from fastembed.text.onnx_text_model import OnnxTextModel
    from tokenizers import Tokenizer

logger = logging.getLogger(__name__)

EmbedderName: TypeAlias = Literal["minilm", "minilm-int8", "none"]
Precision: TypeAlias = Literal["fp32", "int8"]
"""Of the weights and what they are multiplied by: part of the fingerprint."""

_RECENT: Final = 64  # vectors: 100 KB
_THREADS: Final = 2  # of a backfill
_AHEAD: Final = 8  # texts: enough that no thread waits for the caller, few enough for any memory


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
        self._recent = _RecentVectors(self._embed)
        took_s = time.monotonic() - began_at
        logger.info("loaded the embedding model from %s in %.1f s", folder, took_s)

    def embed(self, text: str) -> Vector:
        text = text.encode(errors="replace").decode()  # the tokenizer refuses lone surrogates
        return self._recent.of(self.window.beginning(text))

    def _embed(self, text: str) -> Vector:
        vectors = self._embedding.embed([text], batch_size=1)
        return np.asarray(next(iter(vectors)), np.float32)


class _RecentVectors:
    """Embeds a text unless it is among the last 64 different ones. Safe in several threads.

    Args:
        embed: Makes a vector; called without a lock.
    """

    def __init__(self, embed: Callable[[str], Vector]) -> None:
        self._embed = embed
        self._lock = Lock()
        self._vectors: OrderedDict[bytes, Vector] = OrderedDict()

    def of(self, text: str) -> Vector:
        """The vector of a text, the caller's own to change."""
        key = sha256(text.encode()).digest()
        with self._lock:
            vector = self._vectors.get(key)
        if vector is None:
            vector = self._embed(text)
        with self._lock:
            self._vectors[key] = vector
            self._vectors.move_to_end(key)
            if len(self._vectors) > _RECENT:
                self._vectors.popitem(last=False)
        return vector.copy()


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

    from kp_middleware.embedding._download import MODEL

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
    """Use a session whose threads sleep while they have nothing to do: fastembed cannot ask for it.

    By default they spin after each run, for as long as it took: the host's own work waits.
    """
    from onnxruntime import InferenceSession, SessionOptions

    options = SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    model = cast("OnnxTextModel[Any]", embedding.model)
    providers = ["CPUExecutionProvider"]
    model.model = InferenceSession(str(folder / "model.onnx"), options, providers)


DEFAULT_EMBEDDER: Final = MiniLMEmbedder()
"""Nothing is loaded yet."""

_PRECISIONS: Final[dict[str, Precision]] = {"minilm": "fp32", "minilm-int8": "int8"}
_shared = {("minilm", 1): DEFAULT_EMBEDDER}


def shared_embedder(name: EmbedderName, *, threads: int = 1) -> MiniLMEmbedder | None:
    """Return the process's embedder of a name and number of threads, or None for ``none``."""
    if name == "none":
        return None
    new = MiniLMEmbedder(threads=threads, precision=_PRECISIONS[name])
    return _shared.setdefault((name, threads), new)
