"""The secrets redacted from a run, which are removed wherever else they occur in it."""

import base64
import re
from bisect import insort
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

from kp_middleware.privacy._decoding import HIDDEN, full_readings, fully_decoded
from kp_middleware.privacy._values import LabeledSpan, is_harmless, pattern

MIN_LENGTH: Final = 8
"""The minimum length in characters; shorter values occur too often by chance."""

_MAX_VALUES: Final = 1_000
_MAX_LENGTH: Final = 4096
_MAX_PIECES: Final = 100
_CUT_LABEL: Final = "cut"  # before a cut, it may be any word

_PUNCTUATION = " \t\r\n\"'`.,:;!?()[]{}<>\\"
_JOINTS = re.compile(r"[\s;,\"'`]+")
_NAMED = re.compile(r"[\w.-]{1,64}[=:](?P<rest>.*[^\W_].*)", re.DOTALL)
_USERINFO = re.compile(r"://[^\s/:@]{0,256}:(?P<password>\S{1,1024})@")
_ORDINARY = pattern("ORDINARY_VALUE")
_HUMP = re.compile(r"[^\W\d_a-z]*[^\W\d_A-Z]+|[^\W\d_a-z]+")
_STRONG = re.compile(r"[^\W_][$#@!%^*]+[^\W_]")


class KnownSecrets:
    """The secrets redacted from a run, kept in memory to find them elsewhere in it.

    At most 1,000 values, each of 8 characters or more. Values that may also be a word, a date, a
    path or a version are left out: they would redact too much.
    """

    def __init__(self) -> None:
        self.labels: dict[str, str] = {}
        self._mixed: set[str] = set()  # those that are also found within a longer word
        self._parts: dict[str, dict[int, list[str]]] = {}
        """The values by five of their characters and the offset of these, the longest first. In any
        text, five characters of a value of eight begin at a multiple of four."""

    def __len__(self) -> int:
        return len(self.labels)

    def learn(self, value: str, label: str, is_allowed: Callable[[str], bool]) -> None:
        """Add a secret in all its forms, except forms for which ``is_allowed`` returns True."""
        if label == _CUT_LABEL or len(value) < MIN_LENGTH or value in self.labels:
            return
        for form in _forms(value):
            if len(self.labels) == _MAX_VALUES:
                return
            if form not in self.labels and _is_unmistakable(form) and not is_allowed(form):
                self.labels[form] = label
                if alternates(form):
                    self._mixed.add(form)
                for offset in range(4):
                    values = self._parts.setdefault(form[offset : offset + 5], {})
                    insort(values.setdefault(offset, []), form, key=lambda value: -len(value))

    def spans(self, text: str) -> Iterator[LabeledSpan]:
        """Yield the known secrets in a text, however escaped; spans may overlap."""
        if not self.labels or len(text) < MIN_LENGTH:
            return
        for reading in full_readings(text):
            read = reading.text
            for place in range(0, len(read) - 4, 4):
                for offset, values in self._parts.get(read[place : place + 5], {}).items():
                    for value in values if place >= offset else ():
                        start, end = place - offset, place - offset + len(value)
                        if read.startswith(value, start) and (
                            not _is_inside_word(read, start, end) or value in self._mixed
                        ):
                            yield LabeledSpan(
                                *reading.origin(start, end), self.labels[value], "secret"
                            )
                            break


def _is_inside_word(text: str, start: int, end: int) -> bool:
    return (text[max(0, start - 1) : start].isalnum() and text[start].isalnum()) or (
        text[end - 1].isalnum() and text[end : end + 1].isalnum()
    )


def _forms(value: str) -> Iterator[str]:
    """Yield the other spellings of a secret, and the secret part of ``sid=x`` or ``user:x``."""
    bytewise = value.encode(errors="replace").decode("latin-1")  # as URL escapes are decoded
    for form in dict.fromkeys((value, fully_decoded(value), bytewise)):
        if "; " not in form:  # in a cookie header, each cookie is a secret
            yield form
            yield form.strip(_PUNCTUATION)
        if password := _USERINFO.search(form):
            yield password["password"]
        for piece in _JOINTS.split(form, _MAX_PIECES)[:_MAX_PIECES]:
            bare = piece.strip(_PUNCTUATION)
            if "://" not in bare:
                named = _NAMED.fullmatch(bare)
                part = named["rest"] if named else bare
                if any(map(str.isdigit, part)) and any(map(str.isalpha, part)):
                    yield part
                yield _after_colon(bare)


def _after_colon(piece: str) -> str:
    """Return the password of ``user:password`` in base64, or an empty string."""
    if not MIN_LENGTH <= len(piece) <= 1024 or piece.isdecimal():
        return ""
    try:
        decoded = base64.b64decode(piece + "=" * (-len(piece) % 4), validate=True).decode()
    except ValueError:
        return ""
    return decoded.partition(":")[2] if decoded.isprintable() else ""


def _is_unmistakable(value: str) -> bool:
    if not MIN_LENGTH <= len(value) <= _MAX_LENGTH or HIDDEN in value or is_harmless(value):
        return False
    ordinary = _ORDINARY.fullmatch(value)
    if ordinary is None:
        return any(map(str.isalnum, value))
    if ordinary["words"] is None:
        return False
    return _STRONG.search(value) is not None or len(value) < 3 * len(_HUMP.findall(value))


def alternates(value: str) -> bool:
    """Return whether letters and digits alternate more than in human text."""
    kinds = [character.isdigit() for character in value if character.isalnum()]
    return sum(a != b for a, b in pairwise(kinds)) >= max(3, 0.2 * len(kinds))
