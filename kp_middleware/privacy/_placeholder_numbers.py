"""Numbers that let a reader follow a value through a document without knowing it."""

import re
from collections import Counter
from typing import Self

from kp_middleware.privacy._rules import Span

_NUMBERED = re.compile(r"\[REDACTED:([a-z0-9_]{1,40})#(\d{1,9})\]")


class Numbers:
    """The numbers of the values of one document, by first sight.

    No key, no hash: they mean nothing outside of the document. Only contacts have one: secrets are
    gone before the file is written, and the parts of a run that paused are written one by one.
    """

    def __init__(self) -> None:
        self._last: Counter[str] = Counter()
        self._known: dict[tuple[str, str], str] = {}

    @classmethod
    def after(cls, document: object) -> Self:
        """Numbers that the document does not have already."""
        numbers = cls()
        for label, number in _NUMBERED.findall(str(document)):
            numbers._last[label] = max(numbers._last[label], int(number))
        return numbers

    def of(self, span: Span, value: str) -> str:
        """What follows the label in the placeholder: ``#1``, or nothing."""
        if span.group != "contact":
            return ""
        key = span.label, value.casefold()
        if key not in self._known:
            self._last[span.label] += 1
            self._known[key] = f"#{self._last[span.label]}"
        return self._known[key]
