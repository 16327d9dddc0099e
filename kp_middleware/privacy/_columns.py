"""What stands in a column whose heading names a secret: tables, CSV, rows that SQL inserts."""

import re
from collections.abc import Callable, Iterator

from kp_middleware.privacy._page import Page
from kp_middleware.privacy._rules import Span
from kp_middleware.privacy._strength import is_plain, is_stand_in, is_usual_word

_RULED = re.compile(r"(?m)^(?P<heading>[^\n]{0,80}\|[^\n]{0,400})\n[ \t|:+=-]*-[ \t|:+=-]*$")
_LISTED = re.compile(
    r"(?m)^(?P<heading>[\w\"][\w .\"-]{0,60}(?P<sign>[,;\t])[\w .,;\t\"-]{1,400})$", re.ASCII
)
_NAMES = ("pass", "pwd", "secret", "token", "key", "cred")
_INSERT = re.compile(
    r"(?i:insert|replace)\s{1,4}(?:(?i:ignore)\s{1,4})?(?i:into)\s{1,4}[\w.`\"\[\]]{1,120}\s{0,4}"
    r"\((?P<names>[^()]{1,1000})\)\s{0,8}(?i:values)\s{0,8}"
)
_ROW = re.compile(
    r"\s{0,8},?\s{0,8}\((?P<cells>(?:'(?:[^'\\]|''|\\.){0,512}+'|\"[^\"]{0,512}\"|[^()'\"]){0,4000}+)\)"
)
_CELL = re.compile(
    r"\s*(?:[NE]?'(?P<single>(?:[^'\\]|''|\\.)*+)'|\"(?P<double>[^\"]*+)\"|(?P<bare>[^,]*+))\s*(?:,|\Z)"
)
_RULE = re.compile(r"[\s|:+=-]+")
_NAME = re.compile(r"[\w .-]{1,60}")
_MAX_ROWS = 1000


def spans_in_columns(page: Page, blanks: Callable[[str], str]) -> Iterator[Span]:
    """The cells below headings for which ``blanks`` gives a label; words and stand-ins stay."""
    if not any(name in page.lowered for name in _NAMES):
        return
    if "|" in page.text and "--" in page.text:
        yield from _below_headings(page.text, _RULED, blanks)
    if "," in page.text or ";" in page.text or "\t" in page.text:
        yield from _below_headings(page.text, _LISTED, blanks)
    if "insert" in page.lowered or "replace" in page.lowered:
        yield from _inserted(page.text, blanks)


def _below_headings(
    text: str, pattern: re.Pattern[str], blanks: Callable[[str], str]
) -> Iterator[Span]:
    reached = 0
    for heading in pattern.finditer(text):
        told = heading["heading"]
        if heading.start() < reached or not any(name in told.lower() for name in _NAMES):
            continue
        sign = heading["sign"] if pattern is _LISTED else "|"
        names = [cell.strip(" *`\"'") for cell in told.split(sign)]
        labels = {at: label for at, name in enumerate(names) if (label := _label(name, blanks))}
        if labels:
            rows = _Rows(text, heading.end("heading") + 1, sign, len(names), labels)
            yield from rows.spans()
            reached = rows.end


def _label(name: str, blanks: Callable[[str], str]) -> str:
    return blanks(name) if _NAME.fullmatch(name) else ""


class _Rows:
    """The lines below a heading, as long as they have as many cells.

    Attributes:
        end: Where they end.
    """

    def __init__(
        self, text: str, start: int, sign: str, width: int, labels: dict[int, str]
    ) -> None:
        self._text = text
        self._sign = sign
        self._width = width
        self._labels = labels
        self.end = start

    def spans(self) -> Iterator[Span]:
        for _ in range(_MAX_ROWS):
            start = self.end
            end = self._text.find("\n", start)
            line = self._text[start : end if end >= 0 else len(self._text)]
            if not line or len(line) > 4000 or start > len(self._text):
                return
            if not _RULE.fullmatch(line):
                if line.count(self._sign) + 1 != self._width:
                    return
                yield from self._of_line(line, start)
            self.end = start + len(line) + 1

    def _of_line(self, line: str, start: int) -> Iterator[Span]:
        for at, cell in enumerate(line.split(self._sign)):
            value = cell.strip(" \t\r*`\"'")
            if at in self._labels and not _may_stay(value):
                place = start + cell.index(value)
                yield Span(place, place + len(value), self._labels[at], "secret")
            start += len(cell) + 1


def _inserted(text: str, blanks: Callable[[str], str]) -> Iterator[Span]:
    for insert in _INSERT.finditer(text):
        names = [name.strip(' `"[]\n\t') for name in insert["names"].split(",")]
        labels = [_label(name, blanks) for name in names]
        place, count = insert.end(), 0
        while any(labels) and count < _MAX_ROWS and (row := _ROW.match(text, place)):
            yield from _of_row(row, labels)
            place, count = row.end(), count + 1


def _of_row(row: re.Match[str], labels: list[str]) -> Iterator[Span]:
    for label, cell in zip(labels, _CELL.finditer(row["cells"]), strict=False):
        kind = cell.lastgroup
        if label and kind and kind != "bare" and not _may_stay(cell[kind]):
            start = row.start("cells")
            yield Span(start + cell.start(kind), start + cell.end(kind), label, "secret")


def _may_stay(value: str) -> bool:
    """What describes, or is missing: no secret has white space, and few are short words."""
    if not value or is_usual_word(value) or is_stand_in(value):
        return True
    return " " in value or (is_plain(value) and value.isalpha() and len(value) < 5)
