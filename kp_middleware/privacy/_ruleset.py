"""Redaction of a text by the rules of a privacy level and a policy; findings omit the value."""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from unicodedata import normalize

from kp_middleware.errors import MissingExtraError, RedactionError
from kp_middleware.patterns import Pattern, compile_pattern, is_pattern
from kp_middleware.privacy._decoding import (
    ESCAPED,
    HIDDEN,
    PLACEHOLDER,
    DecodedText,
    PlaceholderNumbers,
    displayed,
    names_a_secret,
    readings,
)
from kp_middleware.privacy._detectors import (
    DESCRIBING,
    readings_of_cut,
    spans_before_cuts,
    spans_below_headings,
    spans_below_keys,
    spans_in_arguments,
    spans_in_base64,
    spans_in_columns,
)
from kp_middleware.privacy._known_secrets import KnownSecrets
from kp_middleware.privacy._policy import Policy, engine, engine_time_limit, literals
from kp_middleware.privacy._rules import (
    DIVIDERS,
    RULES,
    Index,
    IndexedText,
    Rule,
    lowered,
    occurrences,
)
from kp_middleware.privacy._values import TABLE, Group, LabeledSpan, compiled, matched_value, words

if TYPE_CHECKING:
    from kp_middleware.traces import PrivacyLevel, ReasoningTrace

DENIED = "denied"
"""The label for the findings of a user's own rules."""

_VALUE_FIELDS = frozenset(words(TABLE["names"]["value_fields"]))
_ROLES = dict.fromkeys(DESCRIBING, "describing")
_ROLES |= {"content": "content", "data": "content", "token": "token"}
_ROLES |= dict.fromkeys(("params", "parameters", "variables", "bindings"), "parameters")
_ROLES |= dict.fromkeys(("output", "output_summary", "stdout", "result"), "output")
_GROUPS: Final[tuple[Group, ...]] = ("secret", "sensitive", "identity", "contact")
_JOINED_SIZE = 512
_CACHE_SIZE = 1 << 20  # characters of texts
_KEYS = 2048  # remembered: documents have the same few


class KeyInfo(NamedTuple):
    name: str
    label: str  # redacts everything below the key
    role: str  # ``value`` (a sibling names it) or one of `_ROLES`
    is_clean: bool  # there is nothing to redact in the key itself


class Ruleset:
    """The built-in rules, the user's own, and the engines in the settings."""

    def __init__(self, level: "PrivacyLevel", policy: "Policy") -> None:
        groups = _GROUPS if level != "private" else _GROUPS[:2]
        rules = (rule for rule in RULES if rule.group in groups)
        regions = ("", *policy.phone_regions)
        self.index = Index([rule for rule in rules if rule.region in regions])
        self._clean: set[str] = set()
        self._clean_size = 0
        denied = [form for entry in literals(policy.deny) for form in _spellings(entry)]
        self._denied_texts = [lowered(displayed(form)) for form in denied]
        self._denied_patterns = _patterns(policy.deny)
        self._allowed_texts = frozenset(literals(policy.allow))
        self._allowed_patterns = _patterns(policy.allow)
        self._denied_keys = frozenset(map(normalized_key, policy.keys_deny))
        self._allowed_keys = frozenset(map(normalized_key, policy.keys_allow))
        engines = [engine(name, policy.phone_regions) for name in policy.engine_names]
        self._engines = [one for one in engines if one.group in groups]
        self._has_exemptions = bool(policy.allow)
        self.has_own_rules = bool(policy.deny or self._engines)
        self._reads_every_text = self.has_own_rules or bool(self._denied_keys)
        self.key_info = lru_cache(_KEYS)(self._key_info)

    def indexed(self, text: str) -> IndexedText | None:
        """Return a text with its index, or None if it certainly has nothing to redact."""
        if text in self._clean:  # most texts repeat
            return None
        words = words_of(text)
        if self.index.irrelevant_words.issuperset(words) and not self._reads_every_text:
            return None
        indexed = IndexedText(text, self.index, words)
        return indexed if indexed.rules or indexed.signs or self._reads_every_text else None

    def read(self, text: str) -> IndexedText:
        return IndexedText(text, self.index, words_of(text))

    def spans(self, indexed: IndexedText) -> Iterator[LabeledSpan]:
        """Yield the spans to redact; they may overlap."""
        yield from self._basic_spans(indexed)
        for one in self._engines:
            yield from self._without_allowed(indexed, iter(one.spans(indexed.text)))
        if "BASE64" in indexed.signs:
            found = spans_in_base64(
                indexed.text, lambda decoded: self._basic_spans(self.read(decoded))
            )
            yield from self._without_allowed(indexed, found)
        if "[cut: " in indexed.text:
            yield from spans_before_cuts(indexed)
            for start, before, closing in readings_of_cut(indexed.text):
                end = start + len(before)
                for span in self._by_rules(self.read(before + closing), beyond=len(before)):
                    yield span._replace(start=min(start + span.start, end), end=end)

    def mark_clean(self, text: str) -> None:
        if self._clean_size > _CACHE_SIZE:
            self._clean, self._clean_size = set(), 0
        self._clean.add(text)
        self._clean_size += len(text)

    def key_label(self, key: str) -> str:
        """Return the label that redacts everything below a key, or an empty string."""
        name = normalized_key(key)
        if name in self._denied_keys:
            return DENIED
        return "password" if name not in self._allowed_keys and names_a_secret(key) else ""

    def _key_info(self, key: str) -> KeyInfo:
        name = "" if normalized_key(key) in self._allowed_keys else PLACEHOLDER.sub("|", key)
        role = _ROLES.get(key, "value" if normalized_key(key) in _VALUE_FIELDS else "")
        return KeyInfo(name, self.key_label(key), role, self.indexed(key) is None)

    def is_clean_word(self, text: str, cue: str) -> bool:
        """Return whether a text is a single word, or no rule can match in it after the cue."""
        if not self.has_own_rules and _CLEAN_WORD.fullmatch(text):
            return True
        whole = cue + text
        if whole in self._clean:
            return True
        return not self._reads_every_text and self.index.irrelevant_words.issuperset(
            words_of(whole)
        )

    def _basic_spans(self, indexed: IndexedText) -> Iterator[LabeledSpan]:
        yield from self._without_allowed(indexed, self._by_rules(indexed))
        if "NAME" in indexed.signs or self._denied_keys:
            yield from self._without_allowed(indexed, spans_below_keys(indexed, self.key_label))
            yield from self._without_allowed(indexed, spans_below_headings(indexed, self.key_label))
            yield from self._without_allowed(indexed, spans_in_columns(indexed, self.key_label))
        if "FLAG" in indexed.signs and ('"-' in indexed.text or "'-" in indexed.text):
            found = spans_in_arguments(indexed.text, lambda said: self._by_rules(self.read(said)))
            yield from self._without_allowed(indexed, found)
        for text in self._denied_texts:
            for start in occurrences(text, indexed.lowered):
                yield LabeledSpan(start, start + len(text), DENIED, "sensitive")
        for pattern in self._denied_patterns:
            for match in pattern.finditer(indexed.text):
                yield LabeledSpan(*match.span(), DENIED, "sensitive")

    def _without_allowed(
        self, indexed: IndexedText, spans: Iterator[LabeledSpan]
    ) -> Iterator[LabeledSpan]:
        if not self._has_exemptions:
            return spans
        text, is_allowed = indexed.text, cache(self.is_allowed)  # a value may fill the text
        return (span for span in spans if not is_allowed(text[span.start : span.end], span.group))

    def _by_rules(self, indexed: IndexedText, *, beyond: int = 0) -> Iterator[LabeledSpan]:
        """Yield the built-in rules' findings that end at ``beyond`` or later."""
        for rule, starts in indexed.rules:
            joined_to = 0
            for match in indexed.matches(rule, starts):
                start, end = matched_value(match)
                if end < beyond or indexed.text[start:end] == HIDDEN:
                    continue
                if indexed.accepts(rule, match):
                    yield LabeledSpan(start, end, rule.label, rule.group)
                    if rule.pattern.startswith("(?<") and match.end() > joined_to:
                        for span in _joined_matches(rule, indexed.text, match.end()):
                            joined_to = span.end
                            yield span

    def is_allowed(self, text: str, group: Group = "secret") -> bool:
        if text in self._allowed_texts:
            return True
        return group != "secret" and any(one.fullmatch(text) for one in self._allowed_patterns)


def words_of(text: str) -> set[str]:
    return {*text.translate(DIVIDERS).lower().split()}


@cache
def ruleset(level: "PrivacyLevel", policy: "Policy") -> Ruleset:
    return Ruleset(level, policy)


def _joined_matches(rule: Rule, text: str, place: int) -> Iterator[LabeledSpan]:
    """Yield the matches that follow a match without a word boundary between them."""
    while text[place : place + 1].strip():
        ahead = HIDDEN + text[place : place + _JOINED_SIZE]
        match = compiled(rule.pattern).match(ahead, 1)
        if match is None or match.end() == len(ahead) > _JOINED_SIZE:
            return
        if rule.check and not rule.check(match):
            return
        start, end = matched_value(match)
        yield LabeledSpan(place + start - 1, place + end - 1, rule.label, rule.group)
        place += match.end() - 1


def _spellings(entry: str) -> set[str]:
    """Return an entry in both Unicode normal forms, with ß and ss interchanged."""
    forms = {entry, entry.replace("ß", "ss"), entry.replace("ss", "ß")}
    return {normalize(name, form) for form in forms for name in ("NFC", "NFD")} | forms


def normalized_key(key: str) -> str:
    """Return a key without case and separators: ``apiKey`` and ``API_KEY`` are one name."""
    return "".join(filter(str.isalnum, key)).casefold()


def _patterns(entries: tuple[str, ...]) -> list[Pattern]:
    try:
        return [compile_pattern(entry[1:-1]) for entry in entries if is_pattern(entry)]
    except MissingExtraError as error:
        raise RedactionError("engine_missing", f"a /pattern/: {error}") from error


class Found(NamedTuple):
    """A redacted value: its path, label and length."""

    path: str
    label: str
    length: int


class Findings:
    """The redacted values, by path or line."""

    __slots__ = ()
    found: tuple[Found, ...]

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of placeholders inserted, by label."""
        return Counter(one.label for one in self.found)


@dataclass(frozen=True, slots=True)
class Redacted(Findings):
    """A text with placeholders such as ``[REDACTED:email]``, and the findings by line."""

    text: str
    found: tuple[Found, ...]


@dataclass(frozen=True, slots=True)
class RedactedTrace(Findings):
    """A redacted and revalidated trace, and the findings by path."""

    trace: "ReasoningTrace"
    found: tuple[Found, ...]


@dataclass(frozen=True, slots=True)
class RedactedValue(Findings):
    """A redacted structure of the same shape, and the findings by path.

    A placeholder such as ``[REDACTED:email]`` can replace a number, too.
    """

    value: Any
    found: tuple[Found, ...]


MAX_CHARACTERS = 1 << 20
_MAX_PASSES = 16
_CLEAN_WORD = re.compile(r"[A-Za-z_]{0,15}|[a-z_]{16,24}|[\W_]*")  # a word: most keys, many values
_SHOWN = re.compile(f"[^{HIDDEN}]+")
_STRENGTH: dict[Group, int] = {"contact": 0, "identity": 1, "sensitive": 2, "secret": 3}
_NO_POLICY = Policy()
_NO_ESCAPE = (sys.maxsize, sys.maxsize)


def clean_text(
    text: str,
    rules: Ruleset,
    *,
    cue: str = "",
    numbers: PlaceholderNumbers | None = None,
    known: KnownSecrets | None = None,
    find_known: bool = False,
) -> tuple[str, list[LabeledSpan]]:
    """Return the redacted text and the replaced spans, each located in the text of its pass.

    The ``cue``, such as the value's key, is context only; ``known`` learns the secrets, and
    ``find_known`` also redacts those.
    """
    removed: list[LabeledSpan] = []
    looked_for = 0
    for _ in range(_MAX_PASSES):  # a removal can expose another match
        spans = _find(text, rules, cue, known)
        if find_known and known is not None and len(known.labels) > looked_for:
            looked_for = len(known.labels)
            spans = [*_merged([*spans, *known_in(text, known)])]
        if not spans:
            return text, removed
        removed += spans
        text = replace_spans(text, spans, numbers)
    last = removed[-1]
    raise RedactionError("redactor_error", f"({last.label}, {last.end - last.start} chars)")


def is_too_large(text: str) -> bool:
    """Return whether a text is too large, not counting its placeholders."""
    if len(text) <= MAX_CHARACTERS:
        return False
    return len(PLACEHOLDER.sub("", text)) > MAX_CHARACTERS


def _find(text: str, rules: Ruleset, cue: str, known: KnownSecrets | None) -> list[LabeledSpan]:
    """Return the spans to redact, in order and not overlapping; placeholders are left alone."""
    if is_too_large(text):
        raise RedactionError("too_large")
    if not rules.has_own_rules and _CLEAN_WORD.fullmatch(text):
        return []
    whole = cue + text
    indexed = rules.indexed(whole)
    if indexed is None:
        return []
    parts = rules.spans(indexed)
    if "ESCAPE" in indexed.signs:
        parts = (part for reading in readings(whole) for part in _parts(reading, rules, indexed))
    size = len(cue)
    moved = (part._replace(start=max(0, part.start - size), end=part.end - size) for part in parts)
    inside = [part for part in moved if part.end > part.start]
    if not inside:
        rules.mark_clean(whole)
        return []
    if known is not None:  # before merging: a merged span would match nowhere else
        secrets = (part for part in inside if part.group == "secret")
        for value, label in dict.fromkeys((text[at.start : at.end], at.label) for at in secrets):
            known.learn(value, label, rules.is_allowed)
    return [*_merged_by_escape(text, inside)]


def known_in(text: str, known: KnownSecrets) -> list[LabeledSpan]:
    return [*_merged_by_escape(text, known.spans(text))]


def _merged_by_escape(text: str, spans: Iterable[LabeledSpan]) -> Iterator[LabeledSpan]:
    """Yield the spans merged and extended to whole escapes: a split escape would break the JSON."""
    united = [*_merged(spans)]
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
        yield LabeledSpan(first, last, span.label, span.group)


def _parts(reading: DecodedText, rules: Ruleset, whole: IndexedText) -> Iterator[LabeledSpan]:
    """Yield the spans to redact in one reading, located in the original text."""
    text = reading.text
    for span in rules.spans(whole if text == whole.text else rules.read(text)):
        parts = [(span.start, span.end)]
        if HIDDEN in text[span.start : span.end]:
            shown = _SHOWN.finditer(text, span.start, span.end)
            parts = [part.span() for part in shown if any(map(str.isalnum, part[0]))]
        for start, end in parts:
            if end > start:
                yield LabeledSpan(*reading.origin(start, end), span.label, span.group)


def _merged(spans: Iterable[LabeledSpan]) -> Iterator[LabeledSpan]:
    """Merge overlapping spans; the strongest group, then the longest span, gives the label."""
    groups: list[list[LabeledSpan]] = []
    reached = 0
    for span in sorted({*spans}):  # two readings find most values twice
        if groups and span.start < reached:
            groups[-1].append(span)
        else:
            groups.append([span])
        reached = max(reached, span.end)
    for together in groups:
        namer = max(together, key=lambda span: (_STRENGTH[span.group], span.end - span.start))
        yield namer._replace(start=together[0].start, end=max(span.end for span in together))


def replace_spans(
    text: str, spans: list[LabeledSpan], numbers: PlaceholderNumbers | None = None
) -> str:
    parts, reached = [], 0
    for span in spans:
        number = numbers.suffix(span, text[span.start : span.end]) if numbers else ""
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
    numbers = PlaceholderNumbers(text) if policy.numbered else None
    with engine_time_limit():
        rules = ruleset(level, policy)
        known = KnownSecrets() if known is None else known
        cleaned, removed = clean_text(text, rules, numbers=numbers, known=known, find_known=True)
    found, line, counted_to = [], 1, 0
    for span in sorted(removed):
        line += text.count("\n", counted_to, span.start)
        counted_to = span.start
        found.append(Found(f"line {line}", span.label, span.end - span.start))
    return Redacted(cleaned, tuple(found))
