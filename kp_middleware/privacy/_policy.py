"""The user's redaction policy, and its engines, which only add findings."""

import hashlib
import math
import re
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

from kp_middleware.errors import MissingExtraError, RedactionError, describe_os_error
from kp_middleware.patterns import compile_pattern, is_pattern
from kp_middleware.privacy._rules import REDACTOR
from kp_middleware.privacy._values import Group, LabeledSpan, entropy

if TYPE_CHECKING:
    from kp_middleware.settings import Settings


@dataclass(frozen=True, slots=True)
class Policy:
    """A user's own redaction rules and exemptions; by default there are none.

    Attributes:
        allow: Exempt findings that are exactly one of these texts. ``/patterns/`` exempt findings
            that they match whole, but never a secret.
        deny: Redact these at every level: a text in any case, or what a ``/pattern/`` matches.
        keys_allow: Fields whose name does not make their values secret.
        keys_deny: Fields whose values are always redacted.
        phone_regions: Regions of national phone numbers and ids, such as ``DE``.
        engines: Further detectors, such as ``kingfisher`` or ``gitleaks:rules.toml``.
        numbered: ``[REDACTED:email#1]``: number equal contacts equally within a document.
    """

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    keys_allow: tuple[str, ...] = ()
    keys_deny: tuple[str, ...] = ()
    phone_regions: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    numbered: bool = False

    @classmethod
    def from_settings(cls, settings: "Settings") -> Self:
        return cls(**{rule.name: getattr(settings, f"redact_{rule.name}") for rule in fields(cls)})

    @property
    def redactor(self) -> str:
        """The name and digest of the redaction rules, stored with each document."""
        if self == Policy():
            return REDACTOR
        added = repr((self, [*map(_version, self.engine_names)]))
        return f"{REDACTOR}+{hashlib.sha256(added.encode()).hexdigest()[:12]}"

    @property
    def engine_names(self) -> tuple[str, ...]:
        """The engines in use; phone regions imply ``phonenumbers``."""
        regions = ("phonenumbers",) if self.phone_regions else ()
        return tuple(dict.fromkeys((*regions, *self.engines)))

    def built_in(self) -> Self:
        """Return the built-in rules with the user's exemptions."""
        return replace(self, deny=(), keys_deny=(), phone_regions=(), engines=())

    def without_packages(self) -> Self:
        """Return the part that works without an extra: no engines, no patterns."""
        allow, deny = (tuple(literals(entries)) for entries in (self.allow, self.deny))
        return replace(self, allow=allow, deny=deny, phone_regions=(), engines=())


def literals(entries: Iterable[str]) -> list[str]:
    return [entry for entry in entries if not is_pattern(entry)]


@cache
def _version(engine: str) -> str:
    from importlib import metadata  # slow, and needed only with an engine

    kind, _, argument = engine.partition(":")
    try:
        if kind == "gitleaks":
            content = Path(argument).expanduser().read_bytes()
            return hashlib.sha256(content).hexdigest()[:12]
        package = _KINDS[kind].package if kind in _KINDS else kind
        return " ".join(map(metadata.version, filter(None, (package, argument))))
    except (OSError, ValueError, ModuleNotFoundError):  # also of a package
        return ""


TIME_LIMIT_S = 60.0
"""The time limit of all engines: about twice what a spaCy model takes for a trace of 1 MiB."""

_ends_at: ContextVar[float] = ContextVar("_ends_at", default=math.inf)


@contextmanager
def engine_time_limit() -> Iterator[None]:
    """Apply one time limit to the engines in the whole block."""
    token = _ends_at.set(time.monotonic() + TIME_LIMIT_S)
    try:
        yield
    finally:
        _ends_at.reset(token)


ENGINE_TROUBLE = frozenset(("engine_missing", "engine_failed", "redactor_timeout"))
"""The reasons of a RedactionError that an engine causes, not the text."""

_REMEMBERED = 10_000  # texts: each is searched twice

Finder: TypeAlias = Callable[[str], Iterable[tuple[int, int, str]]]
"""A function that returns the start, end and label of each finding; they may overlap."""


@dataclass(eq=False)
class Engine:
    """A finder that searches ``piece_size`` characters at a time; None means all."""

    name: str
    group: Group
    finder: Finder
    piece_size: int | None
    _found: dict[bytes, list[LabeledSpan]] = field(default_factory=dict)

    def spans(self, text: str) -> list[LabeledSpan]:
        """Return the spans to redact; they are kept by a digest, as a text is long or secret."""
        key = blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
        found = self._found.get(key)
        if found is None:
            try:
                found = [*self._search(text)]
            except TimeoutError:
                where = f"{self.name} ({len(text)} chars)"
                raise RedactionError("redactor_timeout", where) from None
            except Exception:  # noqa: BLE001  # fail closed, whatever it is
                raise RedactionError("engine_failed", self.name) from None  # the cause may quote
            if len(self._found) >= _REMEMBERED:
                self._found.clear()
            self._found[key] = found
        return found

    def _search(self, text: str) -> Iterator[LabeledSpan]:
        """Search the text in pieces, each overlapping the previous one by an eighth."""
        size = self.piece_size or max(1, len(text))
        step = size - size // 8
        for offset in range(0, max(1, len(text) - size + step), step):
            if time.monotonic() > _ends_at.get():
                raise TimeoutError
            piece = text[offset : offset + size]
            for start, end, label in self.finder(piece):
                if not 0 <= start <= end <= len(piece):
                    raise ValueError("no part of the text")
                yield LabeledSpan(offset + start, offset + end, label, self.group)


def _gitleaks(path: str, _: tuple[str, ...]) -> Finder:
    """Return a finder with a file's rules, without their allowlists; ``redact_allow`` applies."""
    with Path(path).expanduser().open("rb") as file:
        tables = tomllib.load(file)
    if "extend" in tables:
        raise ValueError("uses extend: name one file with all the rules")
    found = [rule for rule in tables.get("rules", ()) if "regex" in rule]
    rules = [(compile_pattern(rule["regex"]), rule) for rule in found]
    if not rules:  # rules without a pattern match paths
        raise ValueError("it has no rules")

    def find(text: str) -> Iterator[tuple[int, int, str]]:
        lowered = text.lower()
        for pattern, rule in rules:
            words = rule.get("keywords")
            if words and not any(word.lower() in lowered for word in words):
                continue
            group, minimum = rule.get("secretGroup"), rule.get("entropy") or -1
            groups = [group] if group else range(1, pattern.groups + 1)  # the first non-empty one
            for match in pattern.finditer(text):
                spans = map(match.span, groups)
                start, end = next((span for span in spans if span[0] < span[1]), match.span())
                if entropy(text[start:end]) > minimum:
                    yield start, end, "api_key"

    return find


_TIMEOUT_S = 10.0
_OFFSETS = ("start_offset", "end_offset")


def _kingfisher(_: str, __: tuple[str, ...]) -> Finder:
    """Return a finder of many vendors' tokens; nothing is validated online."""
    from kingfisher_sdk import Rules, Scanner

    from kp_middleware.locations import cache_folder

    scanner = Scanner(Rules(cache_dir=cache_folder() / "kingfisher"))

    def find(text: str) -> Iterator[tuple[int, int, str]]:
        encoded = text.encode(errors="replace")
        for finding in scanner.scan(encoded, timeout=_TIMEOUT_S):
            location = finding.location
            start, end = (len(encoded[: location[name]].decode()) for name in _OFFSETS)
            yield start, end, "api_key"

    return find


_LONG_RUN = re.compile(r"\d{25,}")  # 17 digits, 3 of a country code, 4 of a prefix
_JOINT = r"(?:/|\s-\s?|-\s|[\u2012-\u2015\uff0d])"  # retried with all that follows
_NUMBER_LIST = re.compile(rf"\d{{1,24}}(?:{_JOINT}\d{{1,24}}){{8,}}")


def _phonenumbers(_: str, regions: tuple[str, ...]) -> Finder:
    """Return a finder of phone numbers in these regions, and of those that begin with ``+``."""
    from phonenumbers import SUPPORTED_REGIONS, PhoneNumberMatcher

    if unknown := {*regions} - {*SUPPORTED_REGIONS}:
        raise ValueError(f"{min(unknown)} is not a region of ISO 3166, such as GB")

    def find(text: str) -> Iterator[tuple[int, int, str]]:
        text = _LONG_RUN.sub(lambda digits: "\0" * len(digits[0]), text)
        text = _NUMBER_LIST.sub(lambda joined: re.sub(r"\D", "\0", joined[0]), text)
        for region in regions or (None,):
            for match in PhoneNumberMatcher(text, region, max_tries=sys.maxsize):
                yield match.start, match.end, "phone"

    return find


_LABELS = {"PERSON": "name", "LOCATION": "location"}
_UNUSED_PIPES = ("tagger", "parser", "lemmatizer", "attribute_ruler")


def _presidio(model: str, _: tuple[str, ...]) -> Finder:
    """Return a finder of people and places, by a spaCy model such as ``en_core_web_sm``.

    Only the model is used, and never downloaded: Presidio's own patterns repeat ours, and one of
    them opens a connection.
    """
    import spacy
    from presidio_analyzer import AnalyzerEngine, RecognizerRegistry
    from presidio_analyzer.nlp_engine import SpacyNlpEngine
    from presidio_analyzer.predefined_recognizers import SpacyRecognizer

    loaded: Any = spacy.load(model, exclude=_UNUSED_PIPES)
    language = str(loaded.lang)
    engine: Any = SpacyNlpEngine(models=[{"lang_code": language, "model_name": model}])
    engine.nlp = {language: loaded}  # its own way to load a model would download it
    recognizer = SpacyRecognizer(supported_language=language)
    registry = RecognizerRegistry([recognizer], supported_languages=[language])
    analyzer = AnalyzerEngine(registry, engine, supported_languages=[language])

    def find(text: str) -> Iterator[tuple[int, int, str]]:
        for result in analyzer.analyze(text, language, entities=[*_LABELS]):
            yield result.start, result.end, _LABELS[result.entity_type]

    return find


class _Kind(NamedTuple):
    make: Callable[[str, tuple[str, ...]], Finder]
    group: Group
    package: str
    extra: str
    piece_size: int | None = None  # of those in Python; Kingfisher has its own time limit


_KINDS = {
    "gitleaks": _Kind(_gitleaks, "secret", "google-re2", "patterns"),
    "kingfisher": _Kind(_kingfisher, "secret", "kingfisher-secret-scanner", "secrets"),
    "phonenumbers": _Kind(_phonenumbers, "contact", "phonenumbers", "phones", 4096),
    "presidio": _Kind(_presidio, "contact", "presidio-analyzer", "names", 8192),
}


@cache
def engine(name: str, regions: tuple[str, ...]) -> Engine:
    """Return the engine of a setting such as ``phonenumbers`` or ``gitleaks:rules.toml``."""
    kind_name, _, argument = name.partition(":")
    if (kind := _KINDS.get(kind_name)) is None:
        raise RedactionError("engine_missing", f"{name}: unknown engine")
    try:
        return Engine(name, kind.group, kind.make(argument, regions), kind.piece_size)
    except (MissingExtraError, OSError, TypeError, ValueError) as error:
        raise RedactionError("engine_missing", f"{name}: {describe_os_error(error)}") from error
    except ModuleNotFoundError as error:
        reason = MissingExtraError(kind.extra)
        raise RedactionError("engine_missing", f"{name}: {reason}") from error
