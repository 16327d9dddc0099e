"""All redaction rules, those of ``rules.toml`` and the user's, and the digest of ours."""

import hashlib
import re
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from unicodedata import normalize

from kp_middleware.errors import MissingExtraError, RedactionError
from kp_middleware.patterns import Pattern, is_pattern
from kp_middleware.patterns import compiled as compiled_pattern
from kp_middleware.privacy import _checks, _values
from kp_middleware.privacy._escapes import HIDDEN, PLACEHOLDER, seen
from kp_middleware.privacy._indexed_text import Index, IndexedText, lowered, occurrences, words_of
from kp_middleware.privacy._names import ANY_NAME, NAME, NAME_STARTS, PART_OF_NAME, names_a_secret
from kp_middleware.privacy._nested_secrets import (
    DESCRIBING,
    Decoded,
    readings_of_cut,
    spans_at_cuts,
    spans_below_keys,
    spans_in_columns,
)
from kp_middleware.privacy._plugins import engine
from kp_middleware.privacy._rules import (
    TABLE,
    Check,
    Group,
    Rule,
    Span,
    compiled,
    in_any_case,
    matched_value,
    spelled,
    value_of,
    words,
)

if TYPE_CHECKING:
    from kp_middleware.privacy._policy import Policy
    from kp_middleware.traces import PrivacyLevel

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
    check = vars(_values).get(name)
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

    def announced(match: re.Match[str]) -> bool:
        around = match.string[max(0, match.start() - 100) : match.end() + 40]
        return _compiled_cues(cues).search(around) is not None and (check is None or check(match))

    return announced


@cache
def _compiled_cues(cues: str) -> re.Pattern[str]:
    return re.compile(rf"(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))(?i:{cues})(?![a-z])")


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


DENIED = "denied"
"""The label for the findings of a user's own rules."""

_VALUES = frozenset(
    words(
        "value|val|text|values|default|defaultvalue|parametervalue|stringvalue|"
        "currentvalue|resolvedvalue|newvalue|oldvalue"
    )
)
_ROLES = dict.fromkeys(DESCRIBING, "describing") | {
    "content": "content",
    "data": "content",
    "token": "token",
}
_GROUPS: Final[tuple[Group, ...]] = ("secret", "sensitive", "identity", "contact")
_GLUED_SIZE = 512
_REMEMBERED = 1 << 20  # characters of texts
_KEYS = 2048  # remembered: documents have the same few


class Member(NamedTuple):
    """What a key says of its value.

    Attributes:
        name: The name that it gives to its value.
        blank: The label for all below it, or an empty string.
        role: What it may be beside its siblings: a ``value`` that another one names, the
            ``content`` of something, a ``token``, or ``describing`` a value.
        stays: Whether the key itself holds nothing to redact.
    """

    name: str
    blank: str
    role: str
    stays: bool


class Ruleset:
    """The built-in rules, the user's own, and the engines in the settings."""

    def __init__(self, level: "PrivacyLevel", policy: "Policy") -> None:
        groups = _GROUPS if level != "private" else _GROUPS[:2]
        rules = (rule for rule in RULES if rule.group in groups)
        regions = ("", *policy.phone_regions)
        self.index = Index([rule for rule in rules if rule.region in regions])
        self._clean: set[str] = set()
        self._clean_size = 0
        self._denied_texts = [
            lowered(seen(form)) for entry in _texts(policy.deny) for form in _spellings(entry)
        ]
        self._denied_patterns = _patterns(policy.deny)
        self._allowed_texts = frozenset(_texts(policy.allow))
        self._allowed_patterns = _patterns(policy.allow)
        self._denied_keys = frozenset(map(_plain, policy.keys_deny))
        self._allowed_keys = frozenset(map(_plain, policy.keys_allow))
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

    def spans(self, indexed: IndexedText) -> Iterator[Span]:
        """Yield the spans to redact; they may overlap."""
        yield from self._plain(indexed)
        for looks in self._engines:
            yield from self._exempting(indexed, iter(looks.spans(indexed.text)))
        if "BASE64" in indexed.signs:  # whose decoded text has findings
            decoded = Decoded(indexed.text)
            if decoded.text:
                found = decoded.origins(self._plain(IndexedText(decoded.text, self.index)))
                yield from self._exempting(indexed, found)
        if "[cut: " in indexed.text:
            yield from spans_at_cuts(indexed)
            yield from self._left_open(indexed)

    def learn_clean(self, text: str) -> None:
        """Remember that nothing was found in a text."""
        if self._clean_size > _REMEMBERED:
            self._clean, self._clean_size = set(), 0
        self._clean.add(text)
        self._clean_size += len(text)

    def blanks(self, key: str) -> str:
        """Return the label for everything below a key, or an empty string."""
        plain = _plain(key)
        if plain in self._denied_keys:
            return DENIED
        return "password" if plain not in self._allowed_keys and names_a_secret(key) else ""

    def _member(self, key: str) -> Member:
        name = "" if _plain(key) in self._allowed_keys else PLACEHOLDER.sub("|", key)
        role = _ROLES.get(key, "value" if plainly(key) in _VALUES else "")
        return Member(name, self.blanks(key), role, self.indexed(key) is None)

    def is_plain(self, text: str) -> bool:
        """Return whether no word of a text is one in which anything can begin."""
        return not self._looks_at_all and self.index.boring.issuperset(words_of(text))

    def _plain(self, indexed: IndexedText) -> Iterator[Span]:
        """Yield the findings of the rules, and of what the user denies."""
        yield from self._exempting(indexed, self._by_rules(indexed))
        if "NAME" in indexed.signs or self._denied_keys:
            yield from self._exempting(indexed, spans_below_keys(indexed, self.blanks))
            yield from self._exempting(indexed, spans_in_columns(indexed, self.blanks))
        for text in self._denied_texts:
            for start in occurrences(text, indexed.lowered):
                yield Span(start, start + len(text), DENIED, "sensitive")
        for pattern in self._denied_patterns:
            for match in pattern.finditer(indexed.text):
                yield Span(*match.span(), DENIED, "sensitive")

    def _by_rules(self, indexed: IndexedText, *, beyond: int = 0) -> Iterator[Span]:
        """Yield the findings of the built-in rules that end at ``beyond`` or later."""
        for rule, starts in indexed.rules:
            glued_to = 0
            for match in indexed.matches(rule, starts):
                start, end = matched_value(match)
                if end < beyond or indexed.text[start:end] == HIDDEN:
                    continue
                if indexed.accepts(rule, match):
                    yield Span(start, end, rule.label, rule.group)
                    if rule.pattern.startswith("(?<") and match.end() > glued_to:
                        for span in _glued(rule, indexed.text, match.end()):
                            glued_to = span.end
                            yield span

    def _left_open(self, indexed: IndexedText) -> Iterator[Span]:
        """Yield values whose closing quote was cut off."""
        for start, before, closing in readings_of_cut(indexed.text):
            read = IndexedText(before + closing, self.index)
            for span in self._by_rules(read, beyond=len(before)):
                end = start + len(before)
                yield span._replace(start=min(start + span.start, end), end=end)

    def _exempting(self, indexed: IndexedText, spans: Iterator[Span]) -> Iterator[Span]:
        if not self._exempts:
            return spans
        allows = cache(self.allows)  # a text full of one value asks once
        return (
            span for span in spans if not allows(indexed.text[span.start : span.end], span.group)
        )

    def allows_secret(self, text: str) -> bool:
        """Return whether the user exempts this exact text as a secret."""
        return self.allows(text, "secret")

    def allows(self, text: str, group: Group) -> bool:
        """Return whether the user exempts a finding with this exact text."""
        if text in self._allowed_texts:
            return True
        return group != "secret" and any(
            pattern.fullmatch(text) for pattern in self._allowed_patterns
        )


@cache
def ruleset(level: "PrivacyLevel", policy: "Policy") -> Ruleset:
    """Return the ruleset of a level and a policy, created on first use."""
    return Ruleset(level, policy)


def _glued(rule: Rule, text: str, place: int) -> Iterator[Span]:
    """Yield further matches directly after one, where no word boundary separates them."""
    while text[place : place + 1].strip():
        ahead = HIDDEN + text[place : place + _GLUED_SIZE]
        match = compiled(rule.pattern).match(ahead, 1)
        if match is None or match.end() == len(ahead) > _GLUED_SIZE:
            return
        if rule.check and not rule.check(match):
            return
        start, end = matched_value(match)
        yield Span(place + start - 1, place + end - 1, rule.label, rule.group)
        place += match.end() - 1


def _patterns(entries: tuple[str, ...]) -> list[Pattern]:
    try:
        return [compiled_pattern(entry[1:-1]) for entry in entries if is_pattern(entry)]
    except MissingExtraError as error:
        raise RedactionError("engine_missing", f"a /pattern/: {error}") from error


def _spellings(entry: str) -> set[str]:
    """Return both Unicode normal forms, with ß and ss interchanged."""
    forms = {entry, entry.replace("ß", "ss"), entry.replace("ss", "ß")}
    return {normalize(name, form) for form in forms for name in ("NFC", "NFD")} | forms


def plainly(key: str) -> str:
    """Return a key in one spelling: ``ParameterKey`` and ``parameter-key`` give the same."""
    return key.lower().replace("_", "").replace("-", "")


def _plain(key: str) -> str:
    """Return a key without case and separators: ``apiKey`` and ``API_KEY`` are one name."""
    return "".join(filter(str.isalnum, key)).casefold()


def _texts(entries: tuple[str, ...]) -> list[str]:
    return [entry for entry in entries if not is_pattern(entry)]
