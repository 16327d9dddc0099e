"""A text indexed for the search by many rules."""

import re
from collections.abc import Iterable, Iterator
from string import digits

from kp_middleware.privacy._escapes import ESCAPING, HIDDEN
from kp_middleware.privacy._names import NAMING
from kp_middleware.privacy._rules import LONG, Rule, compiled

_RUNS = {
    "0": re.compile(r"(?<!\d)\d(?=(?:[^0-9A-Za-z]{0,3}\d){5})", re.ASCII),
    "0000": re.compile(r"(?<!\d)\d(?=\d{3}(?:[^0-9A-Za-z]{0,3}\d){2})", re.ASCII),
    "0.": re.compile(r"\d{1,3}(?=\.\d)", re.ASCII),
    "A": re.compile(r"[A-Z]+"),
}
_SIGNS = {  # of a word in lower case
    "0": re.compile(r"\d", re.ASCII),
    "0000": re.compile(r"\d{4}", re.ASCII),
    "0.": re.compile(r"\d\.\d", re.ASCII),
    "A": re.compile(rf"\d|.{{{LONG}}}", re.ASCII),
    "LONG": re.compile(f".{{{LONG}}}"),
    "NAME": re.compile(NAMING, re.ASCII),
    "BASE64": re.compile(r"[\w+/-]{18}", re.ASCII),
    "ESCAPE": re.compile(ESCAPING),
}
"""What a word holds beside what rules' matches begin with; ``NAME`` may name a secret."""

_ANSWERED = re.compile(rf"[A-Za-z_]{{2,40}}+[\"']?=[\"']?{HIDDEN}[\"']?\s", re.ASCII)
_REMEMBERED = 500  # verdicts: a text with more matches than that is long anyway
_STRETCH = 4096  # characters of a word: there may be anything in a longer one
_DIVIDERS = str.maketrans({**dict.fromkeys("\"'`{}[],<>", " "), **dict.fromkeys(digits, "0")})
"""What divides words; and all numbers are alike, so that most words have been seen before."""

_WORDS = 20_000  # of at most this length are remembered:
_WORD_SIZE = 40


class IndexedText:
    """A text with an index of the places where matches can begin, and of what its words hold."""

    def __init__(self, text: str, vocabulary: "Vocabulary") -> None:
        self.text = text
        self.lowered = "İ".join(map(str.lower, text.split("İ")))  # alone in becoming longer
        self.held = vocabulary.held_by(self.lowered)
        self._places: dict[str, list[int]] = {}
        self._needed: dict[str, bool] = {"LONG": True}
        self._verdicts: dict[tuple[Rule, int, int, str], bool] = {}

    def holds_any(self, words: Iterable[str]) -> bool:
        """Return whether one of ``Rule.needs`` occurs; the answers are cached."""
        needed = self._needed
        for word in words:
            if word not in needed:
                needed[word] = word in self.lowered
            if needed[word]:
                return True
        return False

    def matches(self, rule: Rule, starts: Iterable[str] | None = None) -> Iterator[re.Match[str]]:
        """Yield the matches of a pattern, unchecked; ``starts`` may be some of the rule's."""
        if rule.needs and not self.holds_any(rule.needs):
            return iter(())
        pattern = compiled(rule.pattern)
        if not rule.starts:
            return pattern.finditer(self.text)
        places = [self._starts(word) for word in (rule.starts if starts is None else starts)]
        if sum(map(len, places)) > len(self.text):
            return pattern.finditer(self.text)  # where places are dense, a scan is faster
        return self._tried(pattern, places)

    def accepts(self, rule: Rule, match: re.Match[str]) -> bool:
        """Return the result of a rule's check, cached by match and context."""
        if rule.check is None:
            return True
        start, end = match.span()
        first = max(0, start - rule.reach)
        key = rule, start - first, end - start, self.text[first : end + rule.reach]
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = rule.check(match)
            if len(self._verdicts) < _REMEMBERED:
                self._verdicts[key] = verdict
        return verdict

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
            found = (
                [run.start() for run in _RUNS[word].finditer(self.text)]
                if word in _RUNS
                else occurrences(word, self.lowered)
            )
            if HIDDEN in self.text and word[0].isalpha():  # the rules have been here already
                found = [place for place in found if not _ANSWERED.match(self.text, place)]
            self._places[word] = found
        return self._places[word]


class Vocabulary(dict[str, frozenset[str]]):
    """What each word of a text holds of that with which rules' matches begin, and what they need.

    The words of one run are those of the next: what is known of them decides which rules can find
    something, before any of them is tried.
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
        super().__init__()
        self._pieces: dict[str, set[str]] = {}  # by their first three characters
        self._in_long: set[str] = set()
        for rule in rules:
            self._in_long.update(map(piece, rule.starts or rule.needs) if rule.in_long else ())
            for word in {*map(piece, (*rule.starts, *rule.needs))} - _SIGNS.keys() - {""}:
                self._pieces.setdefault(word[:3], set()).add(word)

    def held_by(self, lowered: str) -> frozenset[str]:
        """Return what a text holds: of `_SIGNS`, of the pieces of words, and of those in_long."""
        words = {*lowered.translate(_DIVIDERS).split()}
        return frozenset(("",)).union(*map(self.__getitem__, words))

    def __missing__(self, word: str) -> frozenset[str]:
        held = {name for name, sign in _SIGNS.items() if sign.search(word[:_STRETCH])}
        if len(word) > _STRETCH:
            held.update(_SIGNS)
        held.update(self._pieces_in(word))
        if "LONG" in held:
            held.update(map(in_a_long, held & self._in_long))
        if len(word) <= _WORD_SIZE:
            if len(self) >= _WORDS:
                self.clear()
            self[word] = frozenset(held)
        return frozenset(held)

    def _pieces_in(self, word: str) -> Iterator[str]:
        starts = {word[at : at + size] for size in (3, 2, 1) for at in range(len(word) + 1 - size)}
        for start in self._pieces.keys() & starts:
            yield from (piece for piece in self._pieces[start] if piece in word)


def piece(start: str) -> str:
    """Return the longest part of what a rule begins with or needs that is in one word."""
    return max(start.translate(_DIVIDERS).split(), key=len, default="")


def in_a_long(piece: str) -> str:
    return f"LONG {piece}"


def occurrences(word: str, text: str) -> list[int]:
    places, place = [], text.find(word)
    while place != -1:
        places.append(place)
        place = text.find(word, place + 1)
    return places
