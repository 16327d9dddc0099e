"""How much of a text the model reads: 256 tokens, the two that frame each text among them."""

import re
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

WINDOW_TOKENS: Final = 256
WORD_TOKENS: Final = WINDOW_TOKENS - 2
"""What is left for the text itself."""

_WORDS = re.compile(" [A-Za-z0-9]")  # where a token begins for certain
_LONG_WORDS = re.compile("([A-Za-z0-9]{101})[A-Za-z0-9]+")
_GAPS = re.compile(r"[ \t\n\r]{2,}")
_FIRST_SLICE = 6 * WINDOW_TOKENS  # characters: more than the window in most texts
_TOKEN_CHARACTERS = 8  # more than most tokens have


class Piece(NamedTuple):
    """A part of a text, and how many tokens it has."""

    text: str
    tokens: int


class Window:
    """Measures texts with the model's own tokenizer, and never tokenises much more than it holds.

    Args:
        tokenizer: From now on it truncates at the window: a folder's limit is 128, 256 or 512.
    """

    def __init__(self, tokenizer: "Tokenizer") -> None:
        tokenizer.enable_truncation(WINDOW_TOKENS)
        self._tokenizer = tokenizer

    def holds(self, text: str) -> bool:
        """Whether the model reads all of a text."""
        if _has_too_many_words(text):
            return False
        text = _compact(text)
        return len(self.beginning(text)) == len(text) and not self._encode(text).overflowing

    def beginning(self, text: str) -> str:
        """As much of a text as decides its first 256 tokens, perhaps compacted.

        All of a text would be tokenised before it is truncated: 0.2 s for 400 KB.
        """
        size = _FIRST_SLICE
        if size < len(text) and not _is_decided(self._encode(text[:size])):
            text = _compact(text)
        while size < len(text) and not _is_decided(self._encode(text[:size])):
            size *= 4
        return text[:size]

    def ends(self, text: str, first: int, last: int) -> Piece:
        """The first and the last tokens of a text, or all of one that has no more than these."""
        head, tail = first * _TOKEN_CHARACTERS, last * _TOKEN_CHARACTERS
        if len(text) > head + tail:
            text = f"{text[:head]} {text[-tail:]}"
        spans = self._spans(text)
        if len(spans) <= first + last:
            return Piece(text, len(spans))
        return Piece(f"{text[: spans[first - 1][1]]} {text[spans[-last][0] :]}", first + last)

    def _spans(self, text: str) -> list[tuple[int, int]]:
        """Where each token of a text begins and ends in it."""
        encoding = self._encode(text)
        spans = [span for part in (encoding, *encoding.overflowing) for span in part.offsets]
        return [span for span in spans if span != (0, 0)]  # of the frame

    def _encode(self, text: str) -> "Encoding":
        return self._tokenizer.encode_batch([text])[0]  # unlike `encode`, without the GIL


def _has_too_many_words(text: str) -> bool:
    """True only where the tokens are too many, too: to count words takes a tenth of the time."""
    return any(islice(_WORDS.finditer(text), WORD_TOKENS, None))


def _compact(text: str) -> str:
    """The same tokens in fewer characters: words of more than 100 are all one unknown token."""
    return _GAPS.sub(" ", _LONG_WORDS.sub(r"\1", text))


def _is_decided(encoding: "Encoding") -> bool:
    """Whether the last two words, which the cut may have changed, are outside the window."""
    if not encoding.overflowing:
        return False
    return _last_word(encoding) + 2 <= _last_word(encoding.overflowing[-1])


def _last_word(encoding: "Encoding") -> int:
    return max(word for word in encoding.word_ids if word is not None)
