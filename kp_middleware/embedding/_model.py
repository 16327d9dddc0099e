"""The embedding model all-MiniLM-L6-v2, loaded on first use, and the text it reads of a trace."""

import logging
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from kp_middleware.embedding._source import MODEL, file_sha256, int8_folder, load_first
from kp_middleware.errors import EmbedderNotReadyError, EmbedderUnavailableError
from kp_middleware.recall_text import LONG_CHARS, first_line, without_recalled
from kp_middleware.traces import ReasoningTrace

if TYPE_CHECKING:
    from fastembed.text.onnx_text_model import OnnxTextModel
    from tokenizers import Encoding, Tokenizer

logger = logging.getLogger(__name__)

S = TypeVar("S")
T = TypeVar("T")
EmbedderName: TypeAlias = Literal["minilm", "minilm-int8", "none"]
Precision: TypeAlias = Literal["fp32", "int8"]
"""The number format of weights and activations; part of the fingerprint."""

Vector: TypeAlias = NDArray[np.float32]
"""A float32 array of shape ``(dimensions,)``; embedders return unit vectors, MiniLM's of 384."""

_READING: Final = "task-first"
"""The way a text is made from a trace; part of the fingerprint, so a change needs a new name."""

WINDOW_TOKENS: Final = 256
WORD_TOKENS: Final = WINDOW_TOKENS - 2  # without the two special ones

_WORDS = re.compile(" [A-Za-z0-9]")  # certain starts of a token
_CACHED_TEXTS = 512  # texts of at most 770 characters
_TOKEN_CHARACTERS = 8  # more than most tokens have
_OBJECTIVE_ENDS: Final = (32, 64)  # tokens: the task often follows instructions all runs share
_ENDS: Final = {"person": (32, 32), "agent": (16, 16), "tool": (16, 16)}
_ALONE_FACTOR: Final = 0.9
"""The length of the vector of a task that is embedded alone, whose cosines are higher."""

_BACKFILL_THREADS: Final = min(4, max(2, os.cpu_count() or 2))  # of a backfill
_MAX_AHEAD: Final = 8  # texts: enough to keep the threads busy, few enough to fit in memory


class Embedder(Protocol):
    """A model that maps texts to vectors, similar texts to near vectors.

    ``name`` is a fingerprint: vectors are only ever compared with vectors of the same name, so
    anything that changes the numbers (weights, window, precision) must change the name. An
    embedder with a method ``text_of``, from a trace to a text, chooses what is read of a trace.
    """

    @property
    def name(self) -> str:
        """The fingerprint stored with each vector."""

    def embed(self, text: str, /) -> Vector:
        """Return the vector of a text.

        Raises:
            EmbedderUnavailableError: If there is no model; novelty is then 0.5.
            EmbedderNotReadyError: If the model is being downloaded; try again later.
        """


class MiniLMEmbedder:
    """An embedder of the first 256 tokens of a text with all-MiniLM-L6-v2; thread-safe.

    The model is located and loaded on first use, which takes a second or two. A process does so
    once: if there is no model, later calls do not look again.

    Args:
        threads: Threads for one text, which do not spin. More than 1 is faster only on an idle
            machine.
        precision: ``int8`` takes 0.55 of the time; its similarities are off by 0.003 on average,
            at most 0.011. Its model is made once, with onnx (the extra ``weights``).
    """

    def __init__(self, *, threads: int = 1, precision: Precision = "fp32") -> None:
        self._load = partial(_Model, threads=threads, precision=precision)
        self._precision = precision
        self._attempts: dict[int, _Attempt] = {}

    @property
    def name(self) -> str:
        """The fingerprint of weights, window, reading and precision; reading it loads the model."""
        return f"{self._model().name}:{WINDOW_TOKENS}:{_READING}:{self._precision}"

    def text_of(self, trace: ReasoningTrace, /) -> str:
        """Return the text to embed for a trace. Raises the errors of `Embedder.embed`."""
        return task_first_text(trace, self._model().window)

    def embed(self, text: str, /) -> Vector:
        """Return the vector of a text: float32, shape ``(384,)``, of unit length.

        Raises:
            EmbedderUnavailableError: If this process has no model; the message says what to do.
            EmbedderNotReadyError: If the model is being downloaded.
        """
        return self._model().embed(text)[0]

    def embed_with(self, text: str, said: str) -> tuple[Vector, Vector | None]:
        """Return the vectors of a text and of the user's words in it, or None without any.

        The second is that of the first line of the user's words within the text or, outside of the
        window, that of their beginning alone.
        """
        if not said.strip():
            return self.embed(text), None
        model = self._model()
        whole, task = model.embed(text, first_line(said))
        if task is None:
            task = model.embed(said[:LONG_CHARS])[0] * np.float32(_ALONE_FACTOR)
        return whole, task

    @property
    def is_loaded(self) -> bool:
        """True if this process has loaded the model."""
        attempt = self._attempts.get(os.getpid())
        return attempt is not None and attempt.model is not None

    def load_without_network(self) -> None:
        """Load the model if it is on this machine. Raises EmbedderUnavailableError if not."""
        self._model(without_network=True)

    def _model(self, *, without_network: bool = False) -> "_Model":
        """Return the model, loaded once; a failure is remembered and raised again."""
        pid = os.getpid()  # a forked child inherits held locks, but not the session's threads
        attempt = self._attempts.get(pid) or self._attempts.setdefault(pid, _Attempt())
        with attempt.lock:
            if attempt.problem is not None:
                raise EmbedderUnavailableError(attempt.problem)
            if attempt.model is None:
                try:
                    attempt.model = load_first(self._load, without_network=without_network)
                except EmbedderNotReadyError:
                    raise
                except Exception as exc:
                    attempt.problem = None if without_network else str(exc)
                    raise EmbedderUnavailableError(str(exc)) from exc
            return attempt.model


@dataclass
class _Attempt:
    lock: Lock = field(default_factory=Lock)
    model: "_Model | None" = None
    problem: str | None = None


def embed_many(
    embed: Callable[[S], T], items: Iterable[S], embedder: Embedder | None
) -> Iterator[T]:
    """Yield ``embed`` of each item, in order.

    MiniLM embeds two to four texts in parallel, as the processors allow, without batches, which
    would pad all texts to the longest. Any other embedder, which may not be thread-safe, is called
    in the caller's thread, which also reads the items, at most 8 ahead. Raises as `Embedder.embed`
    instead of yielding a vector; the remaining items are dropped.
    """
    if not isinstance(embedder, MiniLMEmbedder):
        yield from map(embed, items)
        return
    pending: deque[Future[T]] = deque()
    threads = ThreadPoolExecutor(_BACKFILL_THREADS, thread_name_prefix="kp-embedding")
    try:
        for item in items:
            if len(pending) == _MAX_AHEAD:
                yield pending.popleft().result()
            pending.append(threads.submit(embed, item))
        while pending:
            yield pending.popleft().result()
    finally:
        threads.shutdown(cancel_futures=True)


class _Model:
    def __init__(self, folder: Path, *, threads: int, precision: Precision) -> None:
        began_at = time.monotonic()
        digest = file_sha256(folder / "model.onnx")[:12]
        self.name = f"all-MiniLM-L6-v2:{digest}"
        if precision == "int8":
            folder = int8_folder(folder, digest)
        self.session = _load_with_fastembed(folder, threads)
        self.window = Window(cast("Tokenizer", self.session.tokenizer))
        self._recent = lru_cache(64)(self._embed)  # vectors: 100 KB
        took_s = time.monotonic() - began_at
        logger.info("loaded the embedding model from %s in %.1f s", folder, took_s)

    def embed(self, text: str, part: str = "") -> tuple[Vector, Vector | None]:
        """Return the vectors of a text and, if the window holds it, of a part of it."""
        # Without lone surrogates, which the tokenizer refuses.
        text, part = (one.encode(errors="replace").decode() for one in (text, part))
        whole, of_part = self._recent(self.window.beginning(text), part)
        return whole.copy(), of_part  # the caller may change it

    def _embed(self, text: str, part: str) -> tuple[Vector, Vector | None]:
        tokens = self.session.onnx_embed([text]).model_output[0]
        whole, begins = _mean(tokens), text.find(part)
        if not part or begins < 0:
            return whole, None
        ends = begins + len(part)
        after = text.find(" ", ends)  # no token crosses a space: later ones need no tokenizing
        spans = enumerate(self.session.tokenize([text[: after if after >= 0 else None]])[0].offsets)
        inside = [at for at, (first, last) in spans if begins <= first < last <= ends]
        return whole, _mean(tokens[[0, *inside]]) if inside else None


def _mean(tokens: Vector) -> Vector:
    mean = tokens.mean(0, dtype=np.float64)
    return np.asarray(mean / np.linalg.norm(mean), np.float32)


def _load_with_fastembed(folder: Path, threads: int) -> "OnnxTextModel[Any]":
    """Load the model; with several threads, replace fastembed's session by one without spinning.

    By default idle threads spin for as long as a run took and slow down the host.
    """
    from fastembed import TextEmbedding
    from onnxruntime import InferenceSession, SessionOptions

    providers = ["CPUExecutionProvider"]
    try:
        embedding = TextEmbedding(
            MODEL, specific_model_path=str(folder), threads=1, providers=providers
        )
        model = cast("OnnxTextModel[Any]", embedding.model)
        if threads > 1:
            options = SessionOptions()
            options.intra_op_num_threads = threads
            options.inter_op_num_threads = 1
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
            model.model = InferenceSession(str(folder / "model.onnx"), options, providers)
    except Exception as exc:
        problem = f"the embedding model in {folder} cannot be loaded, replace or remove it: {exc}"
        raise EmbedderUnavailableError(problem) from exc
    return model


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


class Window:
    """The model's window of tokens, which tokenizes little more of a text than fits."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        tokenizer.enable_truncation(WINDOW_TOKENS)
        self._tokenizer = tokenizer
        self._piece = lru_cache(_CACHED_TEXTS)(self._shorten)  # steps and tasks repeat

    def holds(self, text: str) -> bool:
        if any(islice(_WORDS.finditer(text), WORD_TOKENS, None)):  # each has a token, or more
            return False
        return len(self.beginning(text)) == len(text) and not self._encode(text).overflowing

    def beginning(self, text: str) -> str:
        """Return the beginning of a text that determines its first 256 tokens.

        The tokenizer truncates only after tokenizing the whole text: 0.2 s for 400 KB.
        """
        size = 6 * WINDOW_TOKENS  # characters: more than the window holds of most texts
        while size < len(text) and not _is_decided(self._encode(text[:size])):
            size *= 4
        return text[:size]

    def shorten(self, text: str, first: int, last: int) -> tuple[str, int]:
        """Return the first and last tokens of a text, as text, and the number of tokens."""
        head, tail = first * _TOKEN_CHARACTERS, last * _TOKEN_CHARACTERS
        if len(text) > head + tail:
            text = f"{text[:head]} {text[-tail:]}"
        return self._piece(text, first, last)

    def _shorten(self, text: str, first: int, last: int) -> tuple[str, int]:
        encoding = self._encode(text)
        spans = [span for part in (encoding, *encoding.overflowing) for span in part.offsets]
        spans = [span for span in spans if span != (0, 0)]  # without the special tokens
        if len(spans) <= first + last:
            return text, len(spans)
        return f"{text[: spans[first - 1][1]]} {text[spans[-last][0] :]}", first + last

    def _encode(self, text: str) -> "Encoding":
        return self._tokenizer.encode_batch([text])[0]  # releases the GIL, unlike `encode`


def _is_decided(encoding: "Encoding") -> bool:
    """Return whether the last two words, which the cut may change, are outside the window."""
    if not encoding.overflowing:
        return False
    parts = encoding, encoding.overflowing[-1]
    last, cut = (max(word for word in part.word_ids if word is not None) for part in parts)
    return last + 2 <= cut


def embedded_text(trace: ReasoningTrace, embedder: Embedder | None = None) -> str:
    """Return the text to embed for a trace: the embedder's choice, or the protocol's text.

    The latter joins the objective and each step's ``content`` by spaces, without past runs.
    """
    text_of: Callable[[ReasoningTrace], str] | None = getattr(embedder, "text_of", None)
    if text_of is not None:
        return text_of(trace)
    parts = (trace.task.objective, *(step.content or "" for step in trace.steps))
    return " ".join(map(without_recalled, parts))


def task_first_text(trace: ReasoningTrace, window: Window) -> str:
    """Return the protocol's text if it fits the window, else both ends of each part, in order.

    The budget goes to the user's turns first, then to the agent's thoughts; tool results get at
    most as much as both together.
    """
    text = embedded_text(trace)
    if window.holds(text):
        return text
    parts: dict[str, list[tuple[int, str, tuple[int, int]]]] = {source: [] for source in _ENDS}
    parts["person"].append((0, without_recalled(trace.task.objective), _OBJECTIVE_ENDS))
    for place, step in enumerate(trace.steps, start=1):
        if step.content:
            is_turn = step.type == "observation" and step.tool is None
            source = "agent" if step.type == "thought" else "person" if is_turn else "tool"
            parts[source].append((place, without_recalled(step.content), _ENDS[source]))
    selected, budget = {}, WORD_TOKENS
    for source, its_parts in parts.items():
        if source == "tool":
            budget = min(budget, WORD_TOKENS - budget)
        for place, part, sizes in its_parts:
            said, tokens = window.shorten(part, *sizes) if budget > 0 else ("", 0)
            if tokens:
                selected[place] = said
                budget -= tokens
    return " ".join(selected[place] for place in sorted(selected))
