"""Redaction of one text, with findings that omit the value."""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

from kp_middleware.errors import RedactionError
from kp_middleware.privacy._escapes import HIDDEN, PLACEHOLDER, Reading, escapes_in, readings
from kp_middleware.privacy._indexed_text import IndexedText
from kp_middleware.privacy._known_secrets import KnownSecrets
from kp_middleware.privacy._plugins import document
from kp_middleware.privacy._policy import Policy
from kp_middleware.privacy._rules import Group, Span
from kp_middleware.privacy._ruleset import Ruleset, ruleset

if TYPE_CHECKING:
    from kp_middleware.traces import PrivacyLevel


class Found(NamedTuple):
    """A redacted value: its path, label and length."""

    path: str
    label: str
    length: int


class Findings:
    """What a redaction took out, by path."""

    __slots__ = ()
    found: tuple[Found, ...]

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of placeholders inserted, by label."""
        return Counter(one.label for one in self.found)


def count_placeholders(text: str) -> Counter[str]:
    """Return the number of placeholders in a text, by label.

    >>> count_placeholders("[REDACTED:email#1] wrote to [REDACTED:email#2]")
    Counter({'email': 2})
    """
    return Counter(match["label"] for match in PLACEHOLDER.finditer(text) if match["label"])


_NUMBERED = re.compile(r"\[REDACTED:([a-z0-9_]{1,40})#(\d{1,9})\]")


class Numbers:
    """The placeholder numbers of the contacts of one document, which mean nothing outside of it."""

    def __init__(self) -> None:
        self._last: Counter[str] = Counter()
        self._known: dict[tuple[str, str], str] = {}

    @classmethod
    def after(cls, document: object) -> Self:
        """Return numbers that continue after those in the document."""
        numbers = cls()
        for label, number in _NUMBERED.findall(str(document)):
            numbers._last[label] = max(numbers._last[label], int(number))
        return numbers

    def of(self, span: Span, value: str) -> str:
        """Return the suffix of the label in the placeholder: ``#1``, or nothing."""
        if span.group != "contact":
            return ""
        key = span.label, value.casefold()
        if key not in self._known:
            self._last[span.label] += 1
            self._known[key] = f"#{self._last[span.label]}"
        return self._known[key]


MAX_CHARACTERS = 1 << 20
_MAX_PASSES = 16
_HARMLESS = re.compile(r"[A-Za-z_]{0,15}|[a-z_]{16,24}|[\W_]*")  # a word: most keys, many values
_SHOWN = re.compile(f"[^{HIDDEN}]+")
_STRENGTH: dict[Group, int] = {"contact": 0, "identity": 1, "sensitive": 2, "secret": 3}
_NO_POLICY = Policy()
_NO_ESCAPE = (sys.maxsize, sys.maxsize)


@dataclass(frozen=True, slots=True)
class Redacted(Findings):
    """A text with placeholders such as ``[REDACTED:email]``, and what they stand for, by line."""

    text: str
    found: tuple[Found, ...]


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
    numbers = Numbers.after(text) if policy.numbered else None
    with document():
        book = ruleset(level, policy)
        known = KnownSecrets() if known is None else known
        cleaned, gone = take_out(text, book, numbers=numbers, known=known, everywhere=True)
    return Redacted(cleaned, tuple(_by_line(text, gone)))


def take_out(
    text: str,
    book: Ruleset,
    *,
    cue: str = "",
    numbers: Numbers | None = None,
    known: KnownSecrets | None = None,
    everywhere: bool = False,
) -> tuple[str, list[Span]]:
    """Return the redacted text and the replaced spans, each counted in the text of its pass.

    The ``cue``, such as the key of a value, is read, not cleaned; ``known`` learns the secrets, and
    ``everywhere`` takes out what it knows.
    """
    gone: list[Span] = []
    looked_for = 0
    for _ in range(_MAX_PASSES):  # what is gone can uncover the edge of something else
        spans = find(text, book, cue=cue, known=known)
        if everywhere and known is not None and len(known) > looked_for:
            spans, looked_for = [*_united([*spans, *known_in(text, known)])], len(known)
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


def is_harmless(text: str, book: Ruleset) -> bool:
    """Return whether a text is a word that no rule takes out."""
    return not book.adds and _HARMLESS.fullmatch(text) is not None


def find(
    text: str, book: Ruleset, *, cue: str = "", known: KnownSecrets | None = None
) -> list[Span]:
    """Return the spans of a text to redact, in order, not overlapping; placeholders stay."""
    if is_too_large(text):
        raise RedactionError("too_large")
    if is_harmless(text, book):
        return []
    whole = cue + text
    indexed = book.indexed(whole)
    if indexed is None:
        return []
    parts = book.spans(indexed)
    if "ESCAPE" in indexed.signs:
        parts = (part for reading in readings(whole) for part in _parts(reading, book, indexed))
    if cue:
        parts = (
            Span(max(0, part.start - len(cue)), part.end - len(cue), part.label, part.group)
            for part in parts
        )
    inside = [part for part in parts if part.end > part.start]
    if not inside:
        book.learn_clean(whole)
        return []
    if known is not None:
        _learn(text, inside, book, known)
    return list(_whole(text, [*_united(inside)]))


def known_in(text: str, known: KnownSecrets) -> list[Span]:
    """Return the known secrets in a text, in order, not overlapping."""
    return list(_whole(text, [*_united(known.spans(text))]))


def _learn(text: str, parts: Iterable[Span], book: Ruleset, known: KnownSecrets) -> None:
    """Learn each secret before spans are merged: a merged text would be found nowhere else."""
    values = {
        (text[part.start : part.end], part.label): None for part in parts if part.group == "secret"
    }
    for value, label in values:
        known.learn(value, label, book.allows_secret)


def _whole(text: str, spans: list[Span]) -> Iterator[Span]:
    """Yield the spans extended to whole escapes: half an escape would break the JSON."""
    escapes = iter(escapes_in(text) if spans else [])
    start, end = next(escapes, _NO_ESCAPE)
    for span in spans:
        first, last = span.start, span.end
        while end <= first:
            start, end = next(escapes, _NO_ESCAPE)
        first = min(first, start)
        while end < last:
            start, end = next(escapes, _NO_ESCAPE)
        last = end if start < last else last
        yield Span(first, last, span.label, span.group)


def _parts(reading: Reading, book: Ruleset, whole: IndexedText) -> Iterator[Span]:
    """Yield the spans to redact in one reading, counted in the original text."""
    indexed = whole if reading.text == whole.text else IndexedText(reading.text, book.index)
    for span in book.spans(indexed):
        for part in _outside_placeholders(reading.text, span):
            if part.end > part.start:
                yield Span(*reading.origin(part.start, part.end), part.label, part.group)


def _united(spans: Iterable[Span]) -> Iterator[Span]:
    """Yield overlapping spans merged, labelled by the strongest group, then the longest span."""
    together: list[Span] = []
    reached = 0
    for span in sorted({*spans}):  # two readings find most things twice
        if together and span.start >= reached:
            yield _union(together)
            together = []
        together.append(span)
        reached = max(reached, span.end)
    if together:
        yield _union(together)


def _union(spans: list[Span]) -> Span:
    if len(spans) == 1:
        return spans[0]
    namer = max(spans, key=lambda span: (_STRENGTH[span.group], span.end - span.start))
    return namer._replace(start=spans[0].start, end=max(span.end for span in spans))


def _outside_placeholders(text: str, span: Span) -> Iterator[Span]:
    if HIDDEN not in text[span.start : span.end]:
        yield span
        return
    for part in _SHOWN.finditer(text, span.start, span.end):
        if any(map(str.isalnum, part[0])):
            yield Span(*part.span(), span.label, span.group)


def replaced(text: str, spans: list[Span], numbers: Numbers | None = None) -> str:
    """Return the text with the spans replaced by placeholders."""
    parts, reached = [], 0
    for span in spans:
        number = numbers.of(span, text[span.start : span.end]) if numbers else ""
        parts += [text[reached : span.start], f"[REDACTED:{span.label}{number}]"]
        reached = span.end
    return "".join([*parts, text[reached:]])


def _by_line(text: str, gone: Iterable[Span]) -> Iterator[Found]:
    line, counted_to = 1, 0
    for span in sorted(gone):
        line += text.count("\n", counted_to, span.start)
        counted_to = span.start
        yield Found(f"line {line}", span.label, span.end - span.start)
