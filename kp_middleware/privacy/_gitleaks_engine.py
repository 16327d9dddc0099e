"""A user's own rules in gitleaks' TOML; none of that project's text is shipped."""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from kp_middleware.patterns import Match, Pattern, compiled
from kp_middleware.privacy._engine import Finder
from kp_middleware.privacy._strength import entropy


@dataclass(frozen=True, slots=True)
class _Rule:
    """One rule of the file.

    Attributes:
        pattern: What to find.
        group: Which group is the secret; 0 means the first that holds something, else all.
        keywords: One of them is in a text, in any case, or the rule is not tried.
        entropy: What the secret must exceed, in bits for each character.
    """

    pattern: Pattern
    group: int
    keywords: tuple[str, ...]
    entropy: float

    @classmethod
    def of(cls, table: dict[str, Any]) -> Self:
        """From a table of the file."""
        return cls(
            compiled(table["regex"]),
            int(table.get("secretGroup", 0)),
            tuple(str(word).lower() for word in table.get("keywords", ())),
            float(table.get("entropy", 0)),
        )

    def find(self, text: str, lowered: str) -> Iterator[tuple[int, int]]:
        """The places of its secrets."""
        if self.keywords and not any(word in lowered for word in self.keywords):
            return
        for match in self.pattern.finditer(text):
            start, end = self._secret(match)
            if not self.entropy or entropy(text[start:end]) > self.entropy:
                yield start, end

    def _secret(self, match: Match) -> tuple[int, int]:
        groups = [self.group] if self.group else range(1, self.pattern.groups + 1)
        spans = (match.span(group) for group in groups)
        return next((span for span in spans if span[0] < span[1]), match.span())


def gitleaks_finder(path: str) -> Finder:
    """Finds with the rules of a file; its allowlists are not read, ``redact_allow`` is.

    Raises:
        MissingExtraError: If RE2 is not installed.
        OSError, ValueError: If the file cannot be read or used; the message says why.
    """
    rules = _read(Path(path).expanduser())

    def find(text: str) -> Iterator[tuple[int, int, str]]:
        lowered = text.lower()
        for rule in rules:
            for start, end in rule.find(text, lowered):
                yield start, end, "api_key"

    return find


def _read(path: Path) -> list[_Rule]:
    with path.open("rb") as file:
        tables = tomllib.load(file)
    if "extend" in tables:
        raise ValueError("it extends other rules: name a file that holds them all")
    rules = [table for table in tables.get("rules", ()) if "regex" in table]  # others are of paths
    if not rules:
        raise ValueError("it holds no rules")
    try:
        return [_Rule.of(table) for table in rules]
    except TypeError as error:
        raise ValueError(str(error)) from error
