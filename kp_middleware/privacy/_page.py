"""A text made ready to be searched by many rules."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise

from kp_middleware.privacy._rules import Rule

_RUNS = {
    "0": re.compile(r"(?<!\d)\d(?=(?:[^0-9A-Za-z]{0,3}\d){5})", re.ASCII),
    "0.": re.compile(r"\d{1,3}(?=\.\d)", re.ASCII),
    "A": re.compile(r"[A-Z]+"),
}
_LONG = 20_000  # characters: of so many, the pairs may be as many, and take longer than the words
_FREQUENT = " etaoinsrhldcumfpgwybvkxjqz"  # the other characters are rarer


class Page:
    """A text, and where in it matches can begin.

    Attributes:
        text: As it is searched.
        lowered: In lower case, each character in its place.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.lowered = _lowered(text)
        self._places: dict[str, list[int]] = {}

    def held(self, words: Iterable[str]) -> list[str]:
        """Those of ``Rule.starts`` or ``Rule.needs`` that occur."""
        lowered = self.lowered
        return [word for word in words if word in lowered or (word in _RUNS and self._starts(word))]

    def matches(self, rule: Rule) -> Iterator[re.Match[str]]:
        """Where a rule's pattern is found; its check is not asked."""
        if rule.needs and not self.held(rule.needs):
            return iter(())
        pattern = compiled(rule.pattern)
        places = [self._starts(word) for word in rule.starts]
        if not places or sum(map(len, places)) * 3 > len(self.text):
            return pattern.finditer(self.text)  # where places are dense, a scan is faster
        return self._tried(pattern, places)

    def _tried(self, pattern: re.Pattern[str], places: list[list[int]]) -> Iterator[re.Match[str]]:
        for starts in places:
            reached = 0
            for start in starts:
                match = pattern.match(self.text, start) if start >= reached else None
                if match is not None:
                    reached = match.end()
                    yield match

    def _starts(self, word: str) -> list[int]:
        if word not in self._places:
            if word in _RUNS:
                found = _runs(word, self.text)
            else:
                found = list(occurrences(word, self.lowered))
            self._places[word] = found
        return self._places[word]


class Beginnings:
    """All words with which matches of rules begin.

    Few have their rarest pair of characters in common with a text: only these are looked for.
    """

    def __init__(self, words: Iterable[str]) -> None:
        self._words = [*words]
        self._without_pair: list[str] = []
        self._by_pair: dict[tuple[str, str], list[str]] = {}
        for word in self._words:
            if word in _RUNS or len(word) == 1:
                self._without_pair.append(word)
            else:
                self._by_pair.setdefault(min(pairwise(word), key=_frequency), []).append(word)

    def held_by(self, page: Page) -> list[str]:
        """Those that occur in a page."""
        if len(page.lowered) > _LONG:
            return page.held(self._words)
        pairs = self._by_pair.keys() & {*pairwise(page.lowered)}
        possible = (word for pair in pairs for word in self._by_pair[pair])
        return page.held([*self._without_pair, *possible])


def _frequency(pair: tuple[str, str]) -> int:
    """High for a pair that many texts have."""
    return sum(len(_FREQUENT) - _FREQUENT.find(sign) if sign in _FREQUENT else 0 for sign in pair)


def _runs(kind: str, text: str) -> list[int]:
    return [run.start() for run in _RUNS[kind].finditer(text)]


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Compile on first use: all patterns together take some hundredths of a second."""
    return re.compile(pattern, re.ASCII)


def occurrences(word: str, text: str) -> Iterator[int]:
    """Where a word begins in a text."""
    place = text.find(word)
    while place != -1:
        yield place
        place = text.find(word, place + 1)


def _lowered(text: str) -> str:
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(
        small if len(small := character.lower()) == 1 else character for character in text
    )
