"""Redaction of one text by the rules of a level and a policy; findings omit the value."""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from unicodedata import normalize

from kp_middleware.errors import MissingExtraError, RedactionError
from kp_middleware.patterns import Pattern, is_pattern
from kp_middleware.patterns import compiled as compiled_pattern
from kp_middleware.privacy._other_secrets import (
    DESCRIBING,
    KnownSecrets,
    readings_of_cut,
    spans_at_cuts,
    spans_below_keys,
    spans_in_base64,
    spans_in_columns,
)
from kp_middleware.privacy._policy import Policy, document, engine, texts_of
from kp_middleware.privacy._reading import (
    ESCAPED,
    HIDDEN,
    PLACEHOLDER,
    DecodedText,
    Numbers,
    names_a_secret,
    readings,
    seen,
)
from kp_middleware.privacy._rules import (
    DIVIDERS,
    RULES,
    Index,
    IndexedText,
    Rule,
    lowered,
    occurrences,
)
from kp_middleware.privacy._values import TABLE, Group, Hit, compiled, matched_value, words

if TYPE_CHECKING:
    from kp_middleware.traces import PrivacyLevel, ReasoningTrace

DENIED = "denied"
"""The label for the findings of a user's own rules."""

_VALUES = frozenset(words(TABLE["names"]["told"]))
_ROLES = dict.fromkeys(DESCRIBING, "describing")
_ROLES |= {"content": "content", "data": "content", "token": "token"}
_GROUPS: Final[tuple[Group, ...]] = ("secret", "sensitive", "identity", "contact")
_GLUED_SIZE = 512
_REMEMBERED = 1 << 20  # characters of texts
_KEYS = 2048  # remembered: documents have the same few


class Member(NamedTuple):
    name: str
    blank: str  # the label for all below it
    role: str  # a ``value`` that a sibling names, ``content``, a ``token``, or ``describing`` one
    stays: bool  # the key itself holds nothing to redact


class Ruleset:
    """The built-in rules, the user's own, and the engines in the settings."""

    def __init__(self, level: "PrivacyLevel", policy: "Policy") -> None:
        groups = _GROUPS if level != "private" else _GROUPS[:2]
        rules = (rule for rule in RULES if rule.group in groups)
        regions = ("", *policy.phone_regions)
        self.index = Index([rule for rule in rules if rule.region in regions])
        self._clean: set[str] = set()
        self._clean_size = 0
        denied = [form for entry in texts_of(policy.deny) for form in _spellings(entry)]
        self._denied_texts = [lowered(seen(form)) for form in denied]
        self._denied_patterns = _patterns(policy.deny)
        self._allowed_texts = frozenset(texts_of(policy.allow))
        self._allowed_patterns = _patterns(policy.allow)
        self._denied_keys = frozenset(map(plainly, policy.keys_deny))
        self._allowed_keys = frozenset(map(plainly, policy.keys_allow))
        engines = [engine(name, policy.phone_regions) for name in policy.engine_names]
        self._engines = [one for one in engines if one.group in groups]
        self._exempts = bool(policy.allow)
        self.adds = bool(policy.deny or self._engines)
        self._looks_at_all = self.adds or bool(self._denied_keys)
        self.member = lru_cache(_KEYS)(self._member)

    def indexed(self, text: str) -> IndexedText | None:
        """Return a text with its index; None if nothing can be found in it."""
        if text in self._clean:  # most come again soon
            return None
        words = words_of(text)
        if self.index.boring.issuperset(words) and not self._looks_at_all:
            return None
        indexed = IndexedText(text, self.index, words)
        return indexed if indexed.rules or indexed.signs or self._looks_at_all else None

    def read(self, text: str) -> IndexedText:
        return IndexedText(text, self.index, words_of(text))

    def spans(self, indexed: IndexedText) -> Iterator[Hit]:
        """Yield the spans to redact; they may overlap."""
        yield from self._plain(indexed)
        for looks in self._engines:
            yield from self._exempting(indexed, iter(looks.spans(indexed.text)))
        if "BASE64" in indexed.signs:
            found = spans_in_base64(indexed.text, lambda said: self._plain(self.read(said)))
            yield from self._exempting(indexed, found)
        if "[cut: " in indexed.text:
            yield from spans_at_cuts(indexed)
            for start, before, closing in readings_of_cut(indexed.text):
                end = start + len(before)
                for span in self._by_rules(self.read(before + closing), beyond=len(before)):
                    yield span._replace(start=min(start + span.start, end), end=end)

    def learn_clean(self, text: str) -> None:
        if self._clean_size > _REMEMBERED:
            self._clean, self._clean_size = set(), 0
        self._clean.add(text)
        self._clean_size += len(text)

    def blanks(self, key: str) -> str:
        """Return the label for everything below a key, or an empty string."""
        plain = plainly(key)
        if plain in self._denied_keys:
            return DENIED
        return "password" if plain not in self._allowed_keys and names_a_secret(key) else ""

    def _member(self, key: str) -> Member:
        name = "" if plainly(key) in self._allowed_keys else PLACEHOLDER.sub("|", key)
        role = _ROLES.get(key, "value" if plainly(key) in _VALUES else "")
        return Member(name, self.blanks(key), role, self.indexed(key) is None)

    def is_plain(self, text: str, cue: str) -> bool:
        """Return whether a text is one word, or nothing can begin in its words and the cue's."""
        if not self.adds and _HARMLESS.fullmatch(text):
            return True
        whole = cue + text
        if whole in self._clean:
            return True
        return not self._looks_at_all and self.index.boring.issuperset(words_of(whole))

    def _plain(self, indexed: IndexedText) -> Iterator[Hit]:
        yield from self._exempting(indexed, self._by_rules(indexed))
        if "NAME" in indexed.signs or self._denied_keys:
            yield from self._exempting(indexed, spans_below_keys(indexed, self.blanks))
            yield from self._exempting(indexed, spans_in_columns(indexed, self.blanks))
        for text in self._denied_texts:
            for start in occurrences(text, indexed.lowered):
                yield Hit(start, start + len(text), DENIED, "sensitive")
        for pattern in self._denied_patterns:
            for match in pattern.finditer(indexed.text):
                yield Hit(*match.span(), DENIED, "sensitive")

    def _exempting(self, indexed: IndexedText, spans: Iterator[Hit]) -> Iterator[Hit]:
        if not self._exempts:
            return spans
        text, allows = indexed.text, cache(self.allows)  # a text full of one value asks once
        return (span for span in spans if not allows(text[span.start : span.end], span.group))

    def _by_rules(self, indexed: IndexedText, *, beyond: int = 0) -> Iterator[Hit]:
        """Yield the findings of the built-in rules that end at ``beyond`` or later."""
        for rule, starts in indexed.rules:
            glued_to = 0
            for match in indexed.matches(rule, starts):
                start, end = matched_value(match)
                if end < beyond or indexed.text[start:end] == HIDDEN:
                    continue
                if indexed.accepts(rule, match):
                    yield Hit(start, end, rule.label, rule.group)
                    if rule.pattern.startswith("(?<") and match.end() > glued_to:
                        for span in _glued(rule, indexed.text, match.end()):
                            glued_to = span.end
                            yield span

    def allows(self, text: str, group: Group = "secret") -> bool:
        """Return whether the user exempts a finding with this exact text."""
        if text in self._allowed_texts:
            return True
        return group != "secret" and any(one.fullmatch(text) for one in self._allowed_patterns)


def words_of(text: str) -> set[str]:
    return {*text.translate(DIVIDERS).lower().split()}


@cache
def ruleset(level: "PrivacyLevel", policy: "Policy") -> Ruleset:
    return Ruleset(level, policy)


def _glued(rule: Rule, text: str, place: int) -> Iterator[Hit]:
    """Yield further matches directly after one, where no word boundary separates them."""
    while text[place : place + 1].strip():
        ahead = HIDDEN + text[place : place + _GLUED_SIZE]
        match = compiled(rule.pattern).match(ahead, 1)
        if match is None or match.end() == len(ahead) > _GLUED_SIZE:
            return
        if rule.check and not rule.check(match):
            return
        start, end = matched_value(match)
        yield Hit(place + start - 1, place + end - 1, rule.label, rule.group)
        place += match.end() - 1


def _spellings(entry: str) -> set[str]:
    """Return both Unicode normal forms, with ß and ss interchanged."""
    forms = {entry, entry.replace("ß", "ss"), entry.replace("ss", "ß")}
    return {normalize(name, form) for form in forms for name in ("NFC", "NFD")} | forms


def plainly(key: str) -> str:
    """Return a key without case and separators: ``apiKey`` and ``API_KEY`` are one name."""
    return "".join(filter(str.isalnum, key)).casefold()


def _patterns(entries: tuple[str, ...]) -> list[Pattern]:
    try:
        return [compiled_pattern(entry[1:-1]) for entry in entries if is_pattern(entry)]
    except MissingExtraError as error:
        raise RedactionError("engine_missing", f"a /pattern/: {error}") from error


class Found(NamedTuple):
    """A redacted value: its path, label and length."""

    path: str
    label: str
    length: int


class Findings:
    """The parts that a redaction took out, by path or by line."""

    __slots__ = ()
    found: tuple[Found, ...]

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of placeholders inserted, by label."""
        return Counter(one.label for one in self.found)


@dataclass(frozen=True, slots=True)
class Redacted(Findings):
    """A text with placeholders such as ``[REDACTED:email]``, and what they stand for, by line."""

    text: str
    found: tuple[Found, ...]


@dataclass(frozen=True, slots=True)
class RedactedTrace(Findings):
    """A redacted trace, validated again, and what its placeholders stand for, by path."""

    trace: "ReasoningTrace"
    found: tuple[Found, ...]


@dataclass(frozen=True, slots=True)
class RedactedValue(Findings):
    """A redacted structure of the same shape, and what its placeholders stand for, by path.

    A placeholder such as ``[REDACTED:email]`` can stand for a number, too.
    """

    value: Any
    found: tuple[Found, ...]


MAX_CHARACTERS = 1 << 20
_MAX_PASSES = 16
_HARMLESS = re.compile(r"[A-Za-z_]{0,15}|[a-z_]{16,24}|[\W_]*")  # a word: most keys, many values
_SHOWN = re.compile(f"[^{HIDDEN}]+")
_STRENGTH: dict[Group, int] = {"contact": 0, "identity": 1, "sensitive": 2, "secret": 3}
_NO_POLICY = Policy()
_NO_ESCAPE = (sys.maxsize, sys.maxsize)


def take_out(
    text: str,
    book: Ruleset,
    *,
    cue: str = "",
    numbers: Numbers | None = None,
    known: KnownSecrets | None = None,
    everywhere: bool = False,
) -> tuple[str, list[Hit]]:
    """Return the redacted text and the replaced spans, each counted in the text of its pass.

    The ``cue``, such as the key of a value, is read, not cleaned; ``known`` learns the secrets, and
    ``everywhere`` takes out what it knows.
    """
    gone: list[Hit] = []
    looked_for = 0
    for _ in range(_MAX_PASSES):  # what is gone can uncover the edge of something else
        spans = _find(text, book, cue, known)
        if everywhere and known is not None and len(known.labels) > looked_for:
            looked_for = len(known.labels)
            spans = [*_united([*spans, *known_in(text, known)])]
        if not spans:
            return text, gone
        gone += spans
        text = replaced(text, spans, numbers)
    last = gone[-1]
    raise RedactionError("redactor_error", f"({last.label}, {last.end - last.start} chars)")


def is_too_large(text: str) -> bool:
    """Return whether a text is too large, not counting its placeholders."""
    if len(text) <= MAX_CHARACTERS:
        return False
    return len(PLACEHOLDER.sub("", text)) > MAX_CHARACTERS


def _find(text: str, book: Ruleset, cue: str, known: KnownSecrets | None) -> list[Hit]:
    """Return the spans of a text to redact, in order, not overlapping; placeholders stay."""
    if is_too_large(text):
        raise RedactionError("too_large")
    if not book.adds and _HARMLESS.fullmatch(text):
        return []
    whole = cue + text
    indexed = book.indexed(whole)
    if indexed is None:
        return []
    parts = book.spans(indexed)
    if "ESCAPE" in indexed.signs:
        parts = (part for reading in readings(whole) for part in _parts(reading, book, indexed))
    size = len(cue)
    moved = (part._replace(start=max(0, part.start - size), end=part.end - size) for part in parts)
    inside = [part for part in moved if part.end > part.start]
    if not inside:
        book.learn_clean(whole)
        return []
    if known is not None:  # before they are merged: a merged text would be found nowhere else
        secrets = (part for part in inside if part.group == "secret")
        for value, label in dict.fromkeys((text[at.start : at.end], at.label) for at in secrets):
            known.learn(value, label, book.allows)
    return [*_whole(text, inside)]


def known_in(text: str, known: KnownSecrets) -> list[Hit]:
    """Return the known secrets in a text, in order, not overlapping."""
    return [*_whole(text, known.spans(text))]


def _whole(text: str, spans: Iterable[Hit]) -> Iterator[Hit]:
    """Yield the spans merged and extended to whole escapes: half of one would break the JSON."""
    united = [*_united(spans)]
    escapes = iter([sign.span() for sign in ESCAPED.finditer(text)] if united else [])
    start, end = next(escapes, _NO_ESCAPE)
    for span in united:
        first, last = span.start, span.end
        while end <= first:
            start, end = next(escapes, _NO_ESCAPE)
        first = min(first, start)
        while end < last:
            start, end = next(escapes, _NO_ESCAPE)
        last = end if start < last else last
        yield Hit(first, last, span.label, span.group)


def _parts(reading: DecodedText, book: Ruleset, whole: IndexedText) -> Iterator[Hit]:
    """Yield the spans to redact in one reading, counted in the original text."""
    text = reading.text
    for span in book.spans(whole if text == whole.text else book.read(text)):
        parts = [(span.start, span.end)]
        if HIDDEN in text[span.start : span.end]:
            shown = _SHOWN.finditer(text, span.start, span.end)
            parts = [part.span() for part in shown if any(map(str.isalnum, part[0]))]
        for start, end in parts:
            if end > start:
                yield Hit(*reading.origin(start, end), span.label, span.group)


def _united(spans: Iterable[Hit]) -> Iterator[Hit]:
    """Yield overlapping spans merged, labelled by the strongest group, then the longest span."""
    groups: list[list[Hit]] = []
    reached = 0
    for span in sorted({*spans}):  # two readings find most things twice
        if groups and span.start < reached:
            groups[-1].append(span)
        else:
            groups.append([span])
        reached = max(reached, span.end)
    for together in groups:
        namer = max(together, key=lambda span: (_STRENGTH[span.group], span.end - span.start))
        yield namer._replace(start=together[0].start, end=max(span.end for span in together))


def replaced(text: str, spans: list[Hit], numbers: Numbers | None = None) -> str:
    parts, reached = [], 0
    for span in spans:
        number = numbers.of(span, text[span.start : span.end]) if numbers else ""
        parts += [text[reached : span.start], f"[REDACTED:{span.label}{number}]"]
        reached = span.end
    return "".join([*parts, text[reached:]])


def redact_text(
    text: str,
    *,
    level: "PrivacyLevel" = "private",
    policy: Policy = _NO_POLICY,
    known: KnownSecrets | None = None,
) -> Redacted:
    """Redact a text for a privacy level.

    Secrets and payment cards are redacted at every level; identities (national ids, bank accounts)
    and contacts (e-mail, phone, IP, MAC, home path) at every level except ``private``. A secret
    found in one place is redacted in every place, as are the ``known`` secrets of other texts, to
    which those found here are added.

    Raises:
        RedactionError: ``too_large`` above 1,048,576 characters: redact the parts.
            ``engine_missing`` or ``engine_failed`` if an engine of the policy does not work.

    >>> redact_text("password=hunter2 for anna@example.org", level="aggregated").text
    'password=[REDACTED:password] for [REDACTED:email]'
    """
    numbers = Numbers(text) if policy.numbered else None
    with document():
        book = ruleset(level, policy)
        known = KnownSecrets() if known is None else known
        cleaned, gone = take_out(text, book, numbers=numbers, known=known, everywhere=True)
    found, line, counted_to = [], 1, 0
    for span in sorted(gone):
        line += text.count("\n", counted_to, span.start)
        counted_to = span.start
        found.append(Found(f"line {line}", span.label, span.end - span.start))
    return Redacted(cleaned, tuple(found))
