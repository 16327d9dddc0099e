"""The model's window: 256 tokens of a text, including the two special tokens."""

import re
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

WINDOW_TOKENS: Final = 256
WORD_TOKENS: Final = WINDOW_TOKENS - 2
"""The tokens of the window without the two special ones."""

_WORDS = re.compile(" [A-Za-z0-9]")  # certain starts of a token
_LONG_WORDS = re.compile("([A-Za-z0-9]{101})[A-Za-z0-9]+")
_GAPS = re.compile(r"[ \t\n\r]{2,}")
_FIRST_SLICE = 6 * WINDOW_TOKENS  # characters: more than the window holds of most texts
_TOKEN_CHARACTERS = 8  # more than most tokens have


class Piece(NamedTuple):
    """A part of a text, and its number of tokens."""

    text: str
    tokens: int


class Window:
    """A measure of texts with the model's tokenizer, which tokenises little more than it holds.

    Args:
        tokenizer: Set to truncate at the window, because a folder's own limit may be 128 or 512.
    """

    def __init__(self, tokenizer: "Tokenizer") -> None:
        tokenizer.enable_truncation(WINDOW_TOKENS)
        self._tokenizer = tokenizer

    def holds(self, text: str) -> bool:
        """Return whether the model reads all of a text."""
        if _has_too_many_words(text):
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
        spans = self._spans(text)
        if len(spans) <= first + last:
            return Piece(text, len(spans))
        return Piece(f"{text[: spans[first - 1][1]]} {text[spans[-last][0] :]}", first + last)

    def _spans(self, text: str) -> list[tuple[int, int]]:
        """Return the offsets at which each token of a text begins and ends."""
        encoding = self._encode(text)
        spans = [span for part in (encoding, *encoding.overflowing) for span in part.offsets]
        return [span for span in spans if span != (0, 0)]  # a special token

    def _encode(self, text: str) -> "Encoding":
        return self._tokenizer.encode_batch([text])[0]  # releases the GIL, unlike `encode`


def _has_too_many_words(text: str) -> bool:
    """Return True only if the tokens are too many as well; counting words takes a tenth as long."""
    return any(islice(_WORDS.finditer(text), WORD_TOKENS, None))


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
