"""Embedding models as scoring uses them, and the text of a trace that they read."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from kp_middleware.asked import without_recalled
from kp_middleware.traces import ReasoningTrace, Step

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer


Vector: TypeAlias = NDArray[np.float32]
"""A float32 array of shape ``(dimensions,)``; embedders return unit vectors, MiniLM's of 384."""


class Embedder(Protocol):
    """A model that maps texts to vectors, similar texts to near vectors.

    ``name`` is a fingerprint: vectors are only ever compared with vectors of the same name, so
    anything that changes the numbers (weights, window, precision) must change the name.
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


@runtime_checkable
class Reader(Protocol):
    """An embedder that chooses which part of a long trace it reads.

    For any other embedder, the specified text is embedded. A wrapper around a reader delegates
    ``text_of``, or has another name.
    """

    def text_of(self, trace: ReasoningTrace, /) -> str:
        """Return the text to embed for a trace. Raises the errors of `Embedder.embed`."""


WINDOW_TOKENS: Final = 256
WORD_TOKENS: Final = WINDOW_TOKENS - 2
"""The tokens of the window without the two special ones."""

_WORDS = re.compile(" [A-Za-z0-9]")  # certain starts of a token
_LONG_WORDS = re.compile("([A-Za-z0-9]{101})[A-Za-z0-9]+")
_GAPS = re.compile(r"[ \t\n\r]{2,}")
_FIRST_SLICE = 6 * WINDOW_TOKENS  # characters: more than the window holds of most texts
_REMEMBERED = 512  # texts of at most 770 characters
_TOKEN_CHARACTERS = 8  # more than most tokens have


class Piece(NamedTuple):
    text: str
    tokens: int


class Window:
    """A measure of texts with the model's tokenizer, which tokenises little more than it holds."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        tokenizer.enable_truncation(WINDOW_TOKENS)
        self._tokenizer = tokenizer
        self._piece = lru_cache(_REMEMBERED)(self._ends)  # steps and tasks repeat

    def holds(self, text: str) -> bool:
        """Return whether the model reads all of a text."""
        if any(islice(_WORDS.finditer(text), WORD_TOKENS, None)):  # each has a token, or more
            return False
        text = _compact(text)
        return len(self.beginning(text)) == len(text) and not self._encode(text).overflowing

    def beginning(self, text: str) -> str:
        """Return as much of a text as determines its first 256 tokens, perhaps compacted.

        The tokenizer truncates only after it has tokenised the whole text: 0.2 s for 400 KB.
        """
        size = _FIRST_SLICE
        if size < len(text) and not _is_decided(self._encode(text[:size])):
            text = _compact(text)
        while size < len(text) and not _is_decided(self._encode(text[:size])):
            size *= 4
        return text[:size]

    def ends(self, text: str, first: int, last: int) -> Piece:
        """Return the first and the last tokens of a text, or all of it if it has no more."""
        head, tail = first * _TOKEN_CHARACTERS, last * _TOKEN_CHARACTERS
        if len(text) > head + tail:
            text = f"{text[:head]} {text[-tail:]}"
        return self._piece(text, first, last)

    def _ends(self, text: str, first: int, last: int) -> Piece:
        encoding = self._encode(text)
        spans = [span for part in (encoding, *encoding.overflowing) for span in part.offsets]
        spans = [span for span in spans if span != (0, 0)]  # without the special tokens
        if len(spans) <= first + last:
            return Piece(text, len(spans))
        return Piece(f"{text[: spans[first - 1][1]]} {text[spans[-last][0] :]}", first + last)

    def _encode(self, text: str) -> "Encoding":
        return self._tokenizer.encode_batch([text])[0]  # releases the GIL, unlike `encode`


def _compact(text: str) -> str:
    """Return the same tokens in fewer characters; any longer word than 100 is one unknown token."""
    return _GAPS.sub(" ", _LONG_WORDS.sub(r"\1", text))


def _is_decided(encoding: "Encoding") -> bool:
    """Return whether the last two words, which the cut may change, are outside the window."""
    if not encoding.overflowing:
        return False
    return _last_word(encoding) + 2 <= _last_word(encoding.overflowing[-1])


def _last_word(encoding: "Encoding") -> int:
    return max(word for word in encoding.word_ids if word is not None)


Reading: TypeAlias = Literal["task-first", "specified"]
"""The way a text is made from a trace; part of the fingerprint, so a change needs a new name.

``specified`` is the protocol's text, of which the model reads the beginning. ``task-first`` is the
same if the window holds all of it. From a longer one it takes the beginning and the end of each
part, in the order of the run. What people said comes first in the budget of the window, then what
the agent thought; tool results get no more room than both together.
"""


_OBJECTIVE_ENDS: Final = (32, 64)  # tokens: the task often follows instructions all runs share
_ENDS: Final = {"person": (32, 32), "agent": (16, 16), "tool": (16, 16)}


def embedded_text(trace: ReasoningTrace, embedder: Embedder | None = None) -> str:
    """Return the text to embed for a trace: the embedder's own choice, or the specified text."""
    text_of: Callable[[ReasoningTrace], str] = getattr(embedder, "text_of", specified_text)
    return text_of(trace)


def specified_text(trace: ReasoningTrace) -> str:
    """Return the objective and each step's ``content``, joined by spaces, without past runs."""
    contents = " ".join(without_recalled(step.content or "") for step in trace.steps)
    return f"{without_recalled(trace.task.objective)} {contents}"


def task_first_text(trace: ReasoningTrace, window: Window) -> str:
    """Return the specified text if the window holds it, else the parts that tell the task."""
    text = specified_text(trace)
    if window.holds(text):
        return text
    taken: dict[int, Piece] = {}
    objective = (0, without_recalled(trace.task.objective), _OBJECTIVE_ENDS)
    _take(taken, (objective, *_parts(trace, "person"), *_parts(trace, "agent")), window)
    tokens = sum(piece.tokens for piece in taken.values())
    _take(taken, _parts(trace, "tool"), window, room=min(WORD_TOKENS - tokens, tokens))
    return " ".join(taken[place].text for place in sorted(taken))


def _parts(trace: ReasoningTrace, source: str) -> Iterator[tuple[int, str, tuple[int, int]]]:
    """Yield the place and text of each part from one source, and how many tokens are read of it."""
    for place, step in enumerate(trace.steps, start=1):
        if step.content and _source(step) == source:
            yield place, without_recalled(step.content), _ENDS[source]


def _source(step: Step) -> str:
    if step.type == "thought":
        return "agent"
    return "person" if step.type == "observation" and step.tool is None else "tool"


def _take(
    taken: dict[int, Piece],
    parts: Iterable[tuple[int, str, tuple[int, int]]],
    window: Window,
    *,
    room: int = WORD_TOKENS,
) -> None:
    """Add the ends of each part in turn, until there is no room left."""
    for place, text, ends in parts:
        if room <= 0:
            return
        piece = window.ends(text, *ends)
        if piece.tokens:
            taken[place] = piece
            room -= piece.tokens
