"""The redaction rule: a pattern, its label and its check."""

import re
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal, NamedTuple, TypeAlias
from unicodedata import normalize

Group: TypeAlias = Literal["secret", "sensitive", "identity", "contact"]
"""Secrets and what is as good as one (a payment card, a user's own rules) go at every level; what
says who somebody is (national ids, bank accounts), and what reaches them, where others read."""

Check: TypeAlias = Callable[[re.Match[str]], bool]


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """A redaction rule for one kind of value.

    Patterns are compiled with ``re.ASCII``. Each is bounded, so that no text makes it slow.

    Attributes:
        label: What the placeholder says.
        group: Decides at which levels the thing goes.
        pattern: What to find. If it has groups whose names begin with ``value``, only the one that
            matched goes; otherwise the whole match does.
        starts: How each match begins, in lower case: only such places are tried. ``0`` stands for
            any run of digits in a text of at least eight, ``0000`` for one of at least four, ``0.``
            for digits before a dot and one more, ``A`` for any run of capitals. Empty: every place
            is tried.
        needs: A text without any of these, in lower case, is not searched. Empty: all texts are.
            ``LONG`` stands for a word of at least `LONG` characters; alone, without ``starts``, for
            one of at least 24 with a digit.
        in_long: Each match begins in a `LONG` word: its start is looked for in no other.
        check: Says of a match whether it is really one.
        reach: How many characters before and after a match its check reads at the most.
        region: Looked for only where the user names this region, such as ``DE``. Empty: everywhere.
    """

    label: str
    group: Group
    pattern: str
    starts: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    check: Check | None = None
    region: str = ""
    reach: int = 200
    in_long: bool = False


TABLE: Final[dict[str, Any]] = tomllib.loads(
    re.sub(r"\n {4}", "", files(__package__).joinpath("rules.toml").read_text("utf-8"))
)
"""The contents of ``rules.toml``, with its broken lines joined."""

LONG = 14
"""How many characters a word has that can hold a token: no white space, quotes or brackets."""


class Span(NamedTuple):
    """A part of a text to redact."""

    start: int
    end: int
    label: str
    group: Group


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern on first use: all together take some hundredths of a second."""
    return re.compile(pattern, re.ASCII)


def words(divided: str) -> tuple[str, ...]:
    return tuple(divided.split("|"))


def spelled(words: Iterable[str]) -> tuple[str, ...]:
    """Return the words in both Unicode normal forms."""
    return tuple(dict.fromkeys(form for word in words for form in (word, normalize("NFD", word))))


def in_any_case(pattern: str) -> str:
    """Expand non-ASCII letters to both cases, for ``(?i:…)`` with ``re.ASCII``.

    >>> in_any_case("łódź|x")
    '[łŁ][óÓ]d[źŹ]|x'
    """
    return "".join(
        character
        if character.isascii() or len(other := character.upper()) > 1 or other == character
        else f"[{character}{other}]"
        for character in pattern
    )


def matched_value(match: re.Match[str]) -> tuple[int, int]:
    last = match.lastgroup
    if last is not None and last.startswith("value"):  # nearly always
        return match.span(last)
    for name in match.re.groupindex:
        if name.startswith("value") and match[name] is not None:
            return match.span(name)
    return match.span()


def value_of(match: re.Match[str]) -> str:
    start, end = matched_value(match)
    return match.string[start:end]
