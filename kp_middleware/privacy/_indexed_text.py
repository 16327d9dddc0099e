"""A text indexed for the search by many rules, and the rules by the words they begin in."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from string import digits
from typing import NamedTuple

from kp_middleware.privacy._escapes import ESCAPING, HIDDEN
from kp_middleware.privacy._names import NAME_STARTS, NAMING
from kp_middleware.privacy._rules import LONG, Rule, compiled

_RUNS = {
    "0": re.compile(r"(?<!\d)\d(?=(?:[^0-9A-Za-z]{0,3}\d){5})", re.ASCII),
    "0000": re.compile(r"(?<!\d)\d(?=\d{3}(?:[^0-9A-Za-z]{0,3}\d){2})", re.ASCII),
    "0.": re.compile(r"\d{1,3}(?=\.\d)", re.ASCII),
    "A": re.compile(r"[A-Z]+"),
}
_SHOWN_BY = {"A": [("0", 0), ("", LONG)], "0.": [("0.0", 0)], "LONG": [("0", 24)]}
"""What is in a word in which such a run begins, and how long it is; a random value has 24 signs."""

_SIGNS = {  # of a word in lower case
    "NAME": re.compile(NAMING, re.ASCII),
    "BASE64": re.compile(r"[\w+/-]{18}", re.ASCII),
    "ESCAPE": re.compile(ESCAPING),
}
"""What a word holds beside what rules' matches begin with; ``NAME`` may name a secret."""

_ANSWERED = re.compile(rf"[A-Za-z_]{{2,40}}+[\"']?=[\"']?{HIDDEN}[\"']?\s", re.ASCII)
_BEFORE = re.compile(r"\(\?<!(?:\\w|\[(?=\^|A-Za-z|\\w|\\d)(?:[!-Z^-~]|\\.)+\])\)")
_ANYWHERE = re.compile("")
_REMEMBERED = 500  # verdicts: a text with more matches than that is long anyway
_STRETCH = 4096  # characters of a word: there may be anything in a longer one
_DIVIDERS = str.maketrans(
    {**dict.fromkeys("\"'`{}[],<>", " "), **dict.fromkeys(digits, "0"), "\u212a": "ķ", "İ": "ı"}
)
"""What divides words; and all numbers are alike, so that most words have been seen before. No sign
may become a letter of ASCII in lower case that was none."""

_FREQUENT = frozenset(("the", "your", "for"))
_WORDS = 20_000  # of at most this length are remembered:
_WORD_SIZE = 40


def words_of(text: str) -> set[str]:
    """Return the words of a text, in lower case, with zeros for all digits."""
    return {*text.translate(_DIVIDERS).lower().split()}


def lowered(text: str) -> str:
    """Return a text in lower case, of the same length: ``İ`` alone would become longer."""
    return "İ".join(map(str.lower, text.split("İ")))


class IndexedText:
    """A text with the rules that can find something in it, and the places where they can.

    Attributes:
        rules: Those rules, each with how its matches can begin.
        signs: The names of what its words hold beside.
    """

    def __init__(self, text: str, index: "Index", words: set[str] | None = None) -> None:
        self.text = text
        self.lowered = lowered(text)
        words = words_of(text) if words is None else words
        self._places: dict[str, list[int]] = {}
        self._needed: dict[str, bool] = {"LONG": any(len(word) >= LONG for word in words)}
        self._verdicts: dict[tuple[Rule, int, int, str], bool] = {}
        rules, self.signs = index.held(words)
        self.rules = [
            (rule, starts)
            for rule, starts in rules
            if not rule.needs or any(map(self._holds, rule.needs))
        ]

    def matches(self, rule: Rule, starts: Iterable[str]) -> Iterator[re.Match[str]]:
        """Yield the matches of a pattern, unchecked; each begins with one of ``starts``."""
        pattern = compiled(rule.pattern)
        places = [self._starts(start) for start in starts] if rule.starts else []
        if not rule.starts or sum(map(len, places)) > len(self.text):
            yield from pattern.finditer(self.text)  # where places are dense, a scan is faster
            return
        for found in places:
            reached = 0
            for place in found:
                match = pattern.match(self.text, place) if place >= reached else None
                if match is not None:
                    reached = match.end()
                    yield match

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

    def _holds(self, need: str) -> bool:
        if need not in self._needed:
            self._needed[need] = need in self.lowered
        return self._needed[need]

    def _starts(self, word: str) -> list[int]:
        if word not in self._places:
            found = (
                [run.start() for run in _RUNS[word].finditer(self.text)]
                if word in _RUNS
                else occurrences(word.rstrip(), self.lowered)
            )
            if HIDDEN in self.text and word[0].isalpha():  # the rules have been here already
                found = [place for place in found if not _ANSWERED.match(self.text, place)]
            self._places[word] = found
        return self._places[word]


class _Word(NamedTuple):
    """What can begin in a word: of rules by their number, and of a secret's name."""

    begins: tuple[tuple[int, str], ...]
    names: tuple[str, ...]
    signs: tuple[str, ...]


class Index(dict[str, _Word]):
    """The rules of a ruleset, by the words in which their matches can begin.

    The words of one run are those of the next: what is known of them decides which rules can find
    something, before any of them is tried. Nothing begins in a ``boring`` word.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        super().__init__()
        self.boring: set[str] = set()
        self._rules = rules
        self._named = [at for at, rule in enumerate(rules) if rule.starts is NAME_STARTS]
        self._starts: dict[str, list[_Start]] = {}  # by their first three characters
        some = Rule("", "secret", "", NAME_STARTS)
        for number, rule in [(-1, some), *enumerate(rules)]:
            for text in _shortest(rule.starts) or rule.needs:
                if number < 0 or rule.starts is not NAME_STARTS:
                    for start in _Start.all_of(text, number, rule):
                        self._starts.setdefault(start.part[:3], []).append(start)

    def held(self, words: set[str]) -> tuple[list[tuple[Rule, set[str]]], set[str]]:
        """Return the ``rules`` and the ``signs`` of a text of these words."""
        found: dict[int, set[str]] = {}
        names: set[str] = set()
        signs: set[str] = set()
        for word in words - self.boring:
            of_word = self[word]
            for number, start in of_word.begins:
                found.setdefault(number, set()).add(start)
            names.update(of_word.names)
            signs.update(of_word.signs)
        if "NAME" in signs and names:
            found.update(dict.fromkeys(self._named, names))
        return [(self._rules[number], found[number]) for number in sorted(found)], signs

    def __missing__(self, word: str) -> _Word:
        sizes = range(4)
        heads = {word[at : at + size] for size in sizes for at in range(len(word) + 1 - size)}
        begin = [
            start
            for head in self._starts.keys() & heads
            for start in self._starts[head]
            if start.is_in(word)
        ]
        signs = [name for name, sign in _SIGNS.items() if len(word) > _STRETCH or sign.search(word)]
        held = _Word(
            tuple((start.rule, start.text) for start in begin if start.rule >= 0),
            tuple(start.text for start in begin if start.rule < 0),
            tuple(signs),
        )
        if len(word) <= _WORD_SIZE:
            if len(self) + len(self.boring) >= _WORDS:
                self.clear()
                self.boring.clear()
            if held == _NOTHING:
                self.boring.add(word)
            else:
                self[word] = held
        return held


_NOTHING = _Word((), (), ())


class _Start(NamedTuple):
    """How a match of a rule can begin, or what it needs, as far as one word holds it."""

    text: str
    rule: int
    part: str
    before: re.Pattern[str]
    opens: bool = False  # the part begins its word
    closes: bool = False
    least: int = 0

    @classmethod
    def all_of(cls, text: str, number: int, rule: Rule) -> "Iterator[_Start]":
        least = LONG if rule.in_long else 0
        if text in _SHOWN_BY:
            for part, size in _SHOWN_BY[text]:
                yield cls(text, number, part, _ANYWHERE, least=max(least, size))
            return
        divided = text.translate(_DIVIDERS)
        part = max(divided.split(), key=lambda part: (part not in _FREQUENT, len(part)), default="")
        at = divided.find(part)
        before = _BEFORE.match(rule.pattern) if rule.starts and at == 0 else None
        pattern = compiled(before[0]) if before else _ANYWHERE
        yield cls(text, number, part, pattern, at > 0, at + len(part) < len(divided), least)

    def is_in(self, word: str) -> bool:
        size = len(self.part)
        at = word.find(self.part) if len(word) >= self.least else -1
        while at != -1:
            anchored = (not at or not self.opens) and (at + size == len(word) or not self.closes)
            if anchored and self.before.match(word, at):
                return True
            at = word.find(self.part, at + 1)
        return False


@cache
def _shortest(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words without those that begin with another: each place is tried once."""
    return tuple(
        word
        for word in words
        if word[:1] in "0A" or not any(word[:size] in words for size in range(1, len(word)))
    )


def occurrences(word: str, text: str) -> list[int]:
    places, place = [], text.find(word)
    while place != -1:
        places.append(place)
        place = text.find(word, place + 1)
    return places
