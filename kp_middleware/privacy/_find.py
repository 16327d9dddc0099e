"""Find what has to go in one text, settle what overlaps, and put placeholders in its place."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from kp_middleware.errors import RedactionError
from kp_middleware.privacy._page import HIDDEN, Page
from kp_middleware.privacy._rules import Group, Rule, matched_value
from kp_middleware.privacy._table import RULES

if TYPE_CHECKING:
    from kp_middleware.traces import PrivacyLevel

MAX_CHARACTERS = 1 << 20
_MAX_PASSES = 16
_HARMLESS = re.compile(r"[A-Za-z_]{0,15}|[a-z_]{16,24}|[\W_]*")  # a word: most keys, many values
_STRENGTH: dict[Group, int] = {"contact": 0, "sensitive": 1, "secret": 2}


@dataclass(frozen=True, slots=True)
class Redacted:
    """A text without what had to go.

    Attributes:
        text: With placeholders such as ``[REDACTED:email]``.
        counts: How many placeholders were put in, by label.
    """

    text: str
    counts: Mapping[str, int]


class Span(NamedTuple):
    """A part of a text that has to go."""

    start: int
    end: int
    label: str
    group: Group


def redact_text(text: str, *, level: "PrivacyLevel" = "private") -> Redacted:
    """Take out what must not be kept or shared at a level.

    Secrets and sensitive numbers go at every level; what reaches a person or a machine (e-mail,
    phone, IP, MAC, home path) stays at ``private`` alone.

    Raises:
        RedactionError: ``too_large`` above 1,048,576 characters: redact the parts.

    >>> redact_text("password=hunter2 for anna@example.org", level="aggregated").text
    'password=[REDACTED:password] for [REDACTED:email]'
    """
    cleaned, gone = take_out(text, level)
    return Redacted(cleaned, Counter(span.label for span in gone))


def take_out(text: str, level: "PrivacyLevel", *, cue: str = "") -> tuple[str, list[Span]]:
    """The text with placeholders, and what they replaced, each counted in the text as it then was.

    Args:
        text: What to clean.
        level: What may stay.
        cue: What stands before the text, such as the key of a value; read, not cleaned.

    Raises:
        RedactionError: ``too_large``, or ``redactor_error`` if no end is found.
    """
    gone: list[Span] = []
    for _ in range(_MAX_PASSES):  # what is gone can uncover the edge of something else
        spans = find(text, level, cue=cue)
        if not spans:
            return text, gone
        gone += spans
        text = _replaced(text, spans)
    raise RedactionError("redactor_error")


def find(text: str, level: "PrivacyLevel", *, cue: str = "") -> list[Span]:
    """The parts of a text that have to go, in order, not overlapping; placeholders stay.

    Raises:
        RedactionError: ``too_large``.
    """
    if len(text) > MAX_CHARACTERS:
        raise RedactionError("too_large")
    if _HARMLESS.fullmatch(text):
        return []
    page = Page(cue + text)
    found = (span for rule in _rules_for(page, level) for span in _spans(rule, page))
    parts = (part for span in _united(found) for part in _outside_placeholders(page.text, span))
    moved = (
        part._replace(
            start=max(0, page.origin(part.start) - len(cue)),
            end=page.origin(part.end - 1) + 1 - len(cue),
        )
        for part in parts
    )
    return [span for span in moved if span.end > span.start]


def _rules_for(page: Page, level: "PrivacyLevel") -> list[Rule]:
    """The rules that can find something on this page: few, of all that there are."""
    anywhere, by_start = _index(level)
    started = {rule for word, rules in by_start.items() if page.holds(word) for rule in rules}
    return [*anywhere, *started]


@cache
def _index(level: "PrivacyLevel") -> tuple[list[Rule], dict[str, list[Rule]]]:
    """The rules of a level that can begin anywhere, and the others by how they begin."""
    rules = [rule for rule in RULES if rule.group != "contact" or level != "private"]
    by_start: dict[str, list[Rule]] = {}
    for rule in rules:
        for word in rule.starts:
            by_start.setdefault(word, []).append(rule)
    return [rule for rule in rules if not rule.starts], by_start


def _spans(rule: Rule, page: Page) -> Iterator[Span]:
    for match in page.matches(rule):
        if rule.check is None or rule.check(match):
            yield Span(*matched_value(match), rule.label, rule.group)


def _united(spans: Iterable[Span]) -> Iterator[Span]:
    """Overlapping spans become one, named by the strongest group, then by the longest span."""
    together: list[Span] = []
    reached = 0
    for span in sorted(spans):
        if together and span.start >= reached:
            yield _union(together)
            together = []
        together.append(span)
        reached = max(reached, span.end)
    if together:
        yield _union(together)


def _union(spans: list[Span]) -> Span:
    namer = max(spans, key=lambda span: (_STRENGTH[span.group], span.end - span.start))
    return namer._replace(start=spans[0].start, end=max(span.end for span in spans))


def _outside_placeholders(text: str, span: Span) -> Iterator[Span]:
    if HIDDEN not in text[span.start : span.end]:
        yield span
        return
    for hidden, run in groupby(range(span.start, span.end), lambda place: text[place] == HIDDEN):
        part = list(run)
        if not hidden and any(text[place].isalnum() for place in part):
            yield span._replace(start=part[0], end=part[-1] + 1)


def _replaced(text: str, spans: list[Span]) -> str:
    parts, reached = [], 0
    for span in spans:
        parts += [text[reached : span.start], f"[REDACTED:{span.label}]"]
        reached = span.end
    return "".join([*parts, text[reached:]])
