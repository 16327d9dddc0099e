"""All redaction rules, and an index of the texts they search."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from string import digits
from typing import Any, Final, NamedTuple, TypeAlias, cast

from kp_middleware.privacy import _assignments, _checks, _contacts, _values
from kp_middleware.privacy._decoding import (
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
    unicode_forms,
    value_of,
    words,
)

LONG = 14
"""The minimum length of a word (without white space, quotes or brackets) that can be a token."""


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """A redaction rule for one kind of value, with a bounded pattern that no text makes slow.

    A match begins with one of ``starts``, in lower case: ``0`` stands for any run of digits in a
    number of at least eight, ``0000`` for a run of at least four, ``0.`` for digits before a dot
    and a digit, ``A`` for any run of capitals. A text without any of ``needs``, in lower case, is
    not searched; ``LONG`` stands for a word of at least `LONG` characters or, without ``starts``,
    of at least 24 with a digit. Without ``starts`` every position is tried, without ``needs`` every
    text.
    """

    label: str
    group: Group
    pattern: str  # redacts its group whose name begins with ``value``, or the whole match
    starts: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    check: Check | None = None
    region: str = ""  # applies only if the user names it, such as ``DE``
    reach: int = 200  # the most characters that the check reads before and after a match
    in_long: bool = False  # begins in a `LONG` word


_FRAGMENT = re.compile(r"<([A-Z][A-Z_0-9]*)(?::([\d,]+))?>")
_WORDS: Final = {name: unicode_forms(words(text)) for name, text in TABLE["words"].items()}
_FRAGMENTS: Final = {
    "NAME": NAME,
    "ANY_NAME": ANY_NAME,
    "PART_OF_NAME": PART_OF_NAME,
    **{name: in_any_case("|".join(listed)) for name, listed in _WORDS.items()},
}


def _expand(pattern: str) -> str:
    return _FRAGMENT.sub(lambda of: _fill(of[1], *(of[2] or "").split(",")), pattern)


def _fill(name: str, *arguments: str) -> str:
    fragment = _FRAGMENTS[name]
    for number, argument in enumerate(arguments, start=1):
        fragment = fragment.replace(f"${number}", argument)
    return fragment


for _name, _text in TABLE["fragments"].items():
    _FRAGMENTS[_name] = _expand(_text)


def _rules() -> Iterator[Rule]:
    """Yield the rules of each row: one, or up to three for a number with a distinctive form."""
    for section in TABLE["section"]:
        for row in (section | row for row in section["rules"]):
            check = _check(row.get("check", ""))
            if "find" in row:
                yield _pattern_rule(row, check)
            if "form" in row:
                yield from _number_rules(row, check)
            if "value" in row:
                yield _cued_rule(row, None if "form" in row else check)


def _check(name: str) -> Check | None:
    """Return a check of the match, or one of its value alone from `_values` or python-stdnum."""
    if not name:
        return None
    if name.startswith("stdnum."):
        return lambda match: _values.is_valid_number(name, value_of(match))
    check = _values.CHECKS.get(name) or vars(_values).get(name)
    if check is not None:
        return lambda match: check(value_of(match))
    return cast("Check", {**vars(_contacts), **vars(_checks), **vars(_assignments)}[name])


def _pattern_rule(row: dict[str, Any], check: Check | None) -> Rule:
    pattern: str = row["find"]
    if check and ("<ANY_NAME>" in pattern or "<PART_OF_NAME>" in pattern):
        check = _checks.after_name(check)
    is_named = "NAME>" in pattern
    return Rule(
        row["label"],
        row["group"],
        _expand(pattern),
        _word_list(row["starts"]) if "starts" in row else NAME_STARTS if is_named else (),
        _word_list(row.get("needs", "")),
        check,
        reach=row.get("reach", 200),
        in_long=row.get("in_long", False),
    )


def _word_list(text: str | list[str]) -> tuple[str, ...]:
    """Return the words of ``a|b``, or of ``<FRAGMENT>`` in the table, without backslashes."""
    if not text or isinstance(text, list):
        return tuple(text)
    if fragment := _FRAGMENT.fullmatch(text):
        return tuple(word.lower().replace("\\", "") for word in _WORDS[fragment[1]])
    return words(text)


def _number_rules(row: dict[str, Any], check: Check | None) -> Iterator[Rule]:
    """Yield rules for a distinctive form: one near a cue, one anywhere in the user's regions."""
    pattern, starts = _fill("FORMED", _expand(row["form"])), (row["starts"],)
    cues = unicode_forms((*words(row["cues"]), *_WORDS["ANY_ID"]))
    needs = tuple(dict.fromkeys(max(cue.split("_"), key=len) for cue in cues))
    near = _near_cue("|".join(cues).replace("_", "[ _-]?"), check)
    yield Rule(row["label"], row["group"], pattern, starts, needs, near)
    yield Rule(row["label"], row["group"], pattern, starts, check=check, region=row["region"])


def _near_cue(cues: str, check: Check | None) -> Check:
    pattern = rf"(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))(?i:{cues})(?![a-z])"

    def announced(match: re.Match[str]) -> bool:
        around = match.string[max(0, match.start() - 100) : match.end() + 40]
        return re.search(pattern, around) is not None and (check is None or check(match))

    return announced


def _cued_rule(row: dict[str, Any], check: Check | None) -> Rule:
    cues = unicode_forms(words("|".join(filter(None, (row["cues"], row.get("before"))))))
    announced = in_any_case("|".join(cues).replace("_", "[ _-]?"))
    pattern = _fill("CUED", announced, _expand(row["value"]))
    starts = tuple(dict.fromkeys(cue.partition("_")[0] for cue in cues))
    return Rule(row["label"], row["group"], pattern, starts, check=check)


RULES: Final = tuple(_rules())

_FIELDS = repr([(rule.label, rule.group, rule.pattern, rule.needs, rule.region) for rule in RULES])
REDACTOR = f"kp-redactor/1+{hashlib.sha256(_FIELDS.encode()).hexdigest()[:12]}"
"""The redactor's name and version, with a digest of the rules without their checks."""


_RUNS = {
    "0": re.compile(r"(?<!\d)\d(?=(?:[^0-9A-Za-z]{0,3}\d){5})", re.ASCII),
    "0000": re.compile(r"(?<!\d)\d(?=\d{3}(?:[^0-9A-Za-z]{0,3}\d){2})", re.ASCII),
    "0.": re.compile(r"\d{1,3}(?=\.\d)", re.ASCII),
    "A": re.compile(r"[A-Z]+"),
}
_PARTS_OF_RUNS = {"A": [("0", 0), ("", LONG)], "0.": [("0.0", 0)], "LONG": [("0", 24)]}
"""A part of each word in which such a run begins, and the minimum length of the word."""

_SIGNS = {  # searched in words in lower case
    "NAME": re.compile(NAMING, re.ASCII),
    "BASE64": re.compile(r"[\w+/-]{18}", re.ASCII),
    "ESCAPE": re.compile(ESCAPING),
    "FLAG": re.compile(r"\A--?[a-z]"),
}
"""Further properties of a word by pattern; with ``NAME`` it may name a secret."""

_REDACTED_BEFORE = re.compile(rf"[A-Za-z_]{{2,40}}+[\"']?=[\"']?{HIDDEN}[\"']?\s", re.ASCII)
_LOOKBEHIND = re.compile(r"\(\?<!(?:\\w|\[(?=\^|A-Za-z|\\w|\\d)(?:[!-Z^-~]|\\.)+\])\)")
_ANYWHERE = re.compile("")
_MAX_VERDICTS = 500
_HUGE = 4096  # characters of a word; a longer one may contain anything
DIVIDERS = str.maketrans(
    {**dict.fromkeys("\"'`{}[],<>", " "), **dict.fromkeys(digits, "0"), "\u212a": "ķ", "İ": "ı"}
)
"""Divides words and makes all digits equal, so that most words repeat. No other character may
become an ASCII letter in lower case."""

_FREQUENT = frozenset(("the", "your", "for"))
_MAX_WORDS = 20_000  # of at most this length are remembered:
_MAX_WORD = 40
_MAX_TEXTS = 512


def lowered(text: str) -> str:
    """Return a text in lower case, of the same length: ``İ`` alone would become longer."""
    return "İ".join(map(str.lower, text.split("İ")))


class IndexedText:
    """A text with the rules that can match in it, and how their matches can begin."""

    def __init__(self, text: str, index: "Index", words: set[str]) -> None:
        self.text = text
        self.lowered = lowered(text)
        self._places: dict[str, list[int]] = {}
        self._verdicts: dict[tuple[Rule, int, int, str], bool] = {}
        known_words = frozenset(map(index.__getitem__, words - index.irrelevant_words))
        rules, self.signs, needed = index.combined(known_words)
        joined = " ".join(words)  # shorter than a long text, and decides most needs
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
            if len(self._verdicts) < _MAX_VERDICTS:
                self._verdicts[key] = verdict
        return verdict

    def _starts(self, word: str) -> list[int]:
        if word not in self._places:
            found = (
                [run.start() for run in _RUNS[word].finditer(self.text)]
                if word in _RUNS
                else occurrences(word.rstrip(), self.lowered)
            )
            if HIDDEN in self.text and word[0].isalpha():  # an earlier pass redacted some
                found = [place for place in found if not _REDACTED_BEFORE.match(self.text, place)]
            self._places[word] = found
        return self._places[word]


_Combined: TypeAlias = tuple[list[tuple[Rule, set[str]]], set[str], list[tuple[str, str]]]
"""The rules that may match in a text, each with its starts; the text's signs; and each need of
those rules, after its part that is in a single word."""


class Index(dict[str, frozenset[tuple[int | str, str]]]):
    """The rules of a ruleset, by the words in which their matches can begin.

    A word maps to the numbers of rules, each with a start, the names of `_SIGNS`, and ``START``
    with the start of a secret's name. Most words repeat from run to run, so the index decides
    quickly which rules to try. No match begins in one of its ``irrelevant_words``.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        super().__init__()
        self.irrelevant_words: set[str] = set()
        self._rules = rules
        self.combined = lru_cache(_MAX_TEXTS)(self._combine)  # the texts of a run are alike
        self._named = [at for at, rule in enumerate(rules) if rule.starts is NAME_STARTS]
        self._starts: dict[str, list[_Start]] = {}  # by their first three characters
        starts = [*_starts(Rule("", "secret", "", NAME_STARTS), "START")]
        for number, rule in enumerate(rules):
            starts += _starts(rule, number) if rule.starts is not NAME_STARTS else ()
        for start in starts:
            self._starts.setdefault(start.part[:3], []).append(start)

    def _combine(self, parts: frozenset[frozenset[tuple[int | str, str]]]) -> _Combined:
        rules: dict[int, set[str]] = {}
        signs: dict[str, set[str]] = {}
        for part in parts:
            for holder, start in part:
                if isinstance(holder, int):
                    rules.setdefault(holder, set()).add(start)
                else:
                    signs.setdefault(holder, set()).add(start)
        names = signs.pop("START", None)
        if "NAME" in signs and names:
            rules.update(dict.fromkeys(self._named, names))
        found = [(self._rules[number], rules[number]) for number in sorted(rules)]
        needs = {need for rule, _ in found for need in rule.needs}
        return found, {*signs}, [(_part(need), need) for need in needs]

    def __missing__(self, word: str) -> frozenset[tuple[int | str, str]]:
        triples = {word[at : at + 3] for at in range(len(word) or 1)}
        heads = {triple[:size] for triple in triples for size in range(4)}
        starts = (one for head in self._starts.keys() & heads for one in self._starts[head])
        held = frozenset((start.rule, start.text) for start in starts if start.is_in(word)).union(
            (name, "") for name, sign in _SIGNS.items() if len(word) > _HUGE or sign.search(word)
        )
        if len(word) <= _MAX_WORD:
            if len(self) + len(self.irrelevant_words) >= _MAX_WORDS:
                self.clear()
                self.irrelevant_words.clear()
            if held:
                self[word] = held
            else:
                self.irrelevant_words.add(word)
        return held


class _Start(NamedTuple):
    """A start or need of a rule, as far as a single word can contain it."""

    text: str
    rule: int | str
    part: str
    min_size: int = 0  # characters of the word
    before: re.Pattern[str] = _ANYWHERE
    opening: bool = False  # the part begins its word
    closing: bool = False

    def is_in(self, word: str) -> bool:
        size = len(self.part)
        at = word.find(self.part) if len(word) >= self.min_size else -1
        if len(word) > _HUGE:
            return at != -1
        while at != -1:
            anchored = (not at or not self.opening) and (at + size == len(word) or not self.closing)
            if anchored and self.before.match(word, at):
                return True
            at = word.find(self.part, at + 1)
        return False


@cache
def _part(text: str) -> str:
    """Return the longest part of a text within one word, preferring rare words."""
    parts = text.translate(DIVIDERS).split()
    return max(parts, key=lambda part: (part not in _FREQUENT, len(part)), default="")


def _starts(rule: Rule, number: int | str) -> Iterator[_Start]:
    """Yield the starts of a rule, except those that begin with another start."""
    min_size = LONG if rule.in_long else 0
    for text in rule.starts or rule.needs:
        if text in _PARTS_OF_RUNS:
            for part, size in _PARTS_OF_RUNS[text]:
                yield _Start(text, number, part, max(min_size, size))
        elif text[:1] == "0" or not any(text[:size] in rule.starts for size in range(1, len(text))):
            divided, part = text.translate(DIVIDERS), _part(text)
            at = divided.find(part)
            found = _LOOKBEHIND.match(rule.pattern) if rule.starts and at == 0 else None
            before = compiled(found[0]) if found else _ANYWHERE
            closing = at + len(part) < len(divided)
            yield _Start(text, number, part, min_size, before, at > 0, closing)


def occurrences(word: str, text: str) -> list[int]:
    places, place = [], text.find(word)
    while place != -1:
        places.append(place)
        place = text.find(word, place + 1)
    return places
