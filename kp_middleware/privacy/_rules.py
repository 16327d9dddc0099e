"""All redaction rules, and a text indexed for the search by them."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from string import digits
from typing import Any, Final, NamedTuple, TypeAlias

from kp_middleware.privacy import _checks, _values
from kp_middleware.privacy._reading import (
    ANY_NAME,
    ESCAPING,
    HIDDEN,
    NAME,
    NAME_STARTS,
    NAMING,
    PART_OF_NAME,
)
from kp_middleware.privacy._values import (
    TABLE,
    Check,
    Group,
    compiled,
    in_any_case,
    spelled,
    value_of,
    words,
)

LONG = 14
"""How many characters a word has that can hold a token: no white space, quotes or brackets."""


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """A redaction rule for one kind of value, with a bounded pattern that no text makes slow.

    A match begins with one of ``starts``, in lower case: ``0`` stands for any run of digits in a
    text of at least eight, ``0000`` for one of at least four, ``0.`` for digits before a dot and
    one more, ``A`` for any run of capitals. A text without any of ``needs``, in lower case, is not
    searched; ``LONG`` stands for a word of at least `LONG` characters, without ``starts`` for one
    of at least 24 with a digit. Where these are empty, every place and every text is tried.
    """

    label: str
    group: Group
    pattern: str  # of its groups that begin with ``value`` the one that matched goes, or all
    starts: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    check: Check | None = None
    region: str = ""  # that the user must name, such as ``DE``
    reach: int = 200  # characters that the check reads before and after a match, at most
    in_long: bool = False  # begins in a `LONG` word


_FRAGMENT = re.compile(r"<([A-Z][A-Z_0-9]*)(?::([\d,]+))?>")
_WORDS: Final = {name: spelled(words(text)) for name, text in TABLE["words"].items()}
_FRAGMENTS: Final = {
    "NAME": NAME,
    "ANY_NAME": ANY_NAME,
    "PART_OF_NAME": PART_OF_NAME,
    **{name: in_any_case("|".join(listed)) for name, listed in _WORDS.items()},
}


def _expanded(pattern: str) -> str:
    return _FRAGMENT.sub(lambda of: _filled_in(of[1], *(of[2] or "").split(",")), pattern)


def _filled_in(name: str, *arguments: str) -> str:
    """Return a fragment with its arguments in place of ``$1`` and ``$2``."""
    fragment = _FRAGMENTS[name]
    for number, argument in enumerate(arguments, start=1):
        fragment = fragment.replace(f"${number}", argument)
    return fragment


for _name, _text in TABLE["fragments"].items():
    _FRAGMENTS[_name] = _expanded(_text)


def _rules() -> Iterator[Rule]:
    """Yield the rules of each row: one, or for a number with a form up to three."""
    for section in TABLE["section"]:
        for row in (section | row for row in section["rules"]):
            check = _check(row.get("check", ""))
            if "find" in row:
                yield _found(row, check)
            if "form" in row:
                yield from _formed(row, check)
            if "value" in row:
                yield _cued(row, None if "form" in row else check)


def _check(name: str) -> Check | None:
    """Return a check of `_checks`, or one of `_values` or python-stdnum, applied to the value."""
    if not name:
        return None
    if name.startswith("stdnum."):
        return lambda match: _values.is_valid(name, value_of(match))
    check = _values.CHECKS.get(name) or vars(_values).get(name)
    return getattr(_checks, name) if check is None else lambda match: check(value_of(match))


def _found(row: dict[str, Any], check: Check | None) -> Rule:
    pattern: str = row["find"]
    if check and ("<ANY_NAME>" in pattern or "<PART_OF_NAME>" in pattern):
        check = _checks.named(check)
    is_named = "NAME>" in pattern
    return Rule(
        row["label"],
        row["group"],
        _expanded(pattern),
        _listed(row["starts"]) if "starts" in row else NAME_STARTS if is_named else (),
        _listed(row.get("needs", "")),
        check,
        reach=row.get("reach", 200),
        in_long=row.get("in_long", False),
    )


def _listed(text: str | list[str]) -> tuple[str, ...]:
    """Return a list of words: ``a|b``, or ``<THOSE>`` of the table, without what escapes them."""
    if not text or isinstance(text, list):
        return tuple(text)
    if fragment := _FRAGMENT.fullmatch(text):
        return tuple(word.lower().replace("\\", "") for word in _WORDS[fragment[1]])
    return words(text)


def _formed(row: dict[str, Any], check: Check | None) -> Iterator[Rule]:
    """Yield rules for a distinctive form: one near a cue, one anywhere in the user's regions."""
    pattern, starts = _filled_in("FORMED", _expanded(row["form"])), (row["starts"],)
    cues = spelled((*words(row["cues"]), *_WORDS["ANY_ID"]))
    needs = tuple(dict.fromkeys(max(cue.split("_"), key=len) for cue in cues))
    near = _near("|".join(cues).replace("_", "[ _-]?"), check)
    yield Rule(row["label"], row["group"], pattern, starts, needs, near)
    yield Rule(row["label"], row["group"], pattern, starts, check=check, region=row["region"])


def _near(cues: str, check: Check | None) -> Check:
    """Return a check that one of the cues is nearby, before or after the match."""
    pattern = rf"(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))(?i:{cues})(?![a-z])"

    def announced(match: re.Match[str]) -> bool:
        around = match.string[max(0, match.start() - 100) : match.end() + 40]
        return re.search(pattern, around) is not None and (check is None or check(match))

    return announced


def _cued(row: dict[str, Any], check: Check | None) -> Rule:
    cues = spelled(words("|".join(filter(None, (row["cues"], row.get("before"))))))
    announced = in_any_case("|".join(cues).replace("_", "[ _-]?"))
    pattern = _filled_in("CUED", announced, _expanded(row["value"]))
    starts = tuple(dict.fromkeys(cue.partition("_")[0] for cue in cues))
    return Rule(row["label"], row["group"], pattern, starts, check=check)


RULES: Final = tuple(_rules())

_SHOWN = repr([(rule.label, rule.group, rule.pattern, rule.needs, rule.region) for rule in RULES])
REDACTOR = f"kp-redactor/1+{hashlib.sha256(_SHOWN.encode()).hexdigest()[:12]}"
"""The redactor's name, version, and digest of the rules without their checks."""


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
DIVIDERS = str.maketrans(
    {**dict.fromkeys("\"'`{}[],<>", " "), **dict.fromkeys(digits, "0"), "\u212a": "ķ", "İ": "ı"}
)
"""What divides words; and all numbers are alike, so that most words have been seen before. No sign
may become a letter of ASCII in lower case that was none."""

_FREQUENT = frozenset(("the", "your", "for"))
_MOST_WORDS = 20_000  # of at most this length are remembered:
_LONGEST_WORD = 40
_MOST_TEXTS = 512


def lowered(text: str) -> str:
    """Return a text in lower case, of the same length: ``İ`` alone would become longer."""
    return "İ".join(map(str.lower, text.split("İ")))


class IndexedText:
    """A text with the rules that can find something in it, and how their matches can begin."""

    def __init__(self, text: str, index: "Index", words: set[str]) -> None:
        self.text = text
        self.lowered = lowered(text)
        self._places: dict[str, list[int]] = {}
        self._verdicts: dict[tuple[Rule, int, int, str], bool] = {}
        known = frozenset(map(index.__getitem__, words - index.boring))
        rules, self.signs, needed = index.united(known)
        joined = " ".join(words)  # these are fewer in a long text, where most say it all
        needs = {need for part, need in needed if part in joined and need in self.lowered}
        if any(len(word) >= LONG for word in words):
            needs.add("LONG")
        self.rules = [one for one in rules if not (one[0].needs and needs.isdisjoint(one[0].needs))]

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


_Held: TypeAlias = tuple[list[tuple[Rule, set[str]]], set[str], list[tuple[str, str]]]
"""The rules that may find something in a text, with how; its signs; and what those rules need, with
the part of each that is in one word."""


class Index(dict[str, frozenset[tuple[int | str, str]]]):
    """The rules of a ruleset, by the words in which their matches can begin.

    Each word has the numbers of rules, each with how it begins, the names of `_SIGNS`, and
    ``START`` with how the name of a secret begins. The words of one run are those of the next: what
    is known of them decides which rules are tried. Nothing begins in a ``boring`` word.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        super().__init__()
        self.boring: set[str] = set()
        self._rules = rules
        self.united = lru_cache(_MOST_TEXTS)(self._unite)  # those of one run are alike
        self._named = [at for at, rule in enumerate(rules) if rule.starts is NAME_STARTS]
        self._starts: dict[str, list[_Start]] = {}  # by their first three characters
        starts = [*_starts(Rule("", "secret", "", NAME_STARTS), "START")]
        for number, rule in enumerate(rules):
            starts += _starts(rule, number) if rule.starts is not NAME_STARTS else ()
        for start in starts:
            self._starts.setdefault(start.part[:3], []).append(start)

    def _unite(self, parts: frozenset[frozenset[tuple[int | str, str]]]) -> _Held:
        rules: dict[int, set[str]] = {}
        signs: dict[str, set[str]] = {}
        for part in parts:
            for what, start in part:
                if isinstance(what, int):
                    rules.setdefault(what, set()).add(start)
                else:
                    signs.setdefault(what, set()).add(start)
        names = signs.pop("START", None)
        if "NAME" in signs and names:
            rules.update(dict.fromkeys(self._named, names))
        found = [(self._rules[number], rules[number]) for number in sorted(rules)]
        needs = {need for rule, _ in found for need in rule.needs}
        return found, {*signs}, [(_part(need), need) for need in needs]

    def __missing__(self, word: str) -> frozenset[tuple[int | str, str]]:
        sizes = range(4)
        heads = {word[at : at + size] for size in sizes for at in range(len(word) + 1 - size)}
        starts = (one for head in self._starts.keys() & heads for one in self._starts[head])
        held = frozenset((start.rule, start.text) for start in starts if start.is_in(word)).union(
            (name, "") for name, sign in _SIGNS.items() if len(word) > _STRETCH or sign.search(word)
        )
        if len(word) <= _LONGEST_WORD:
            if len(self) + len(self.boring) >= _MOST_WORDS:
                self.clear()
                self.boring.clear()
            if held:
                self[word] = held
            else:
                self.boring.add(word)
        return held


class _Start(NamedTuple):
    """How a match of a rule can begin, or what it needs, as far as one word holds it."""

    text: str
    rule: int | str
    part: str
    least: int = 0  # characters of the word
    before: re.Pattern[str] = _ANYWHERE
    opens: bool = False  # the part begins its word
    closes: bool = False

    def is_in(self, word: str) -> bool:
        size = len(self.part)
        at = word.find(self.part) if len(word) >= self.least else -1
        if len(word) > _STRETCH:
            return at != -1
        while at != -1:
            anchored = (not at or not self.opens) and (at + size == len(word) or not self.closes)
            if anchored and self.before.match(word, at):
                return True
            at = word.find(self.part, at + 1)
        return False


@cache
def _part(text: str) -> str:
    """Return the longest part of a text that is in one word, and not in most texts."""
    parts = text.translate(DIVIDERS).split()
    return max(parts, key=lambda part: (part not in _FREQUENT, len(part)), default="")


def _starts(rule: Rule, number: int | str) -> Iterator[_Start]:
    """Yield how matches of a rule begin, without what begins with another of them."""
    least = LONG if rule.in_long else 0
    for text in rule.starts or rule.needs:
        if text in _SHOWN_BY:
            for part, size in _SHOWN_BY[text]:
                yield _Start(text, number, part, max(least, size))
        elif text[:1] == "0" or not any(text[:size] in rule.starts for size in range(1, len(text))):
            divided, part = text.translate(DIVIDERS), _part(text)
            at = divided.find(part)
            found = _BEFORE.match(rule.pattern) if rule.starts and at == 0 else None
            before = compiled(found[0]) if found else _ANYWHERE
            yield _Start(text, number, part, least, before, at > 0, at + len(part) < len(divided))


def occurrences(word: str, text: str) -> list[int]:
    places, place = [], text.find(word)
    while place != -1:
        places.append(place)
        place = text.find(word, place + 1)
    return places
