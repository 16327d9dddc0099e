"""Detectors for secrets that no pattern finds: below keys, in columns, in base64, cut, known.

Valid JSON is walked instead. These cover the rest: JSON after a log prefix, JSON lines, truncated
JSON, ``NaN``, duplicate keys, a Python ``repr``.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cache
from itertools import accumulate, chain, repeat
from string import ascii_letters, digits

from kp_middleware.privacy._checks import PRINTS_SECRET
from kp_middleware.privacy._decoding import (
    HIDDEN,
    describes,
    is_counter,
    is_probable,
)
from kp_middleware.privacy._rules import IndexedText, occurrences
from kp_middleware.privacy._values import (
    LabeledSpan,
    decoded_text,
    is_common_word,
    is_description,
    is_dummy,
    is_flag_token,
    is_harmless,
    is_message,
    is_strong,
    is_strong_mix,
    is_words,
    pattern,
)

_OPENS = re.compile(r"(?::|=>)\s{0,16}(?=[\[{(])")
_KEY_BEFORE = re.compile(r"""["']([^"'\\\n]{2,120})\\{0,7}["']\s{0,16}\Z""")
_KEY_SIZE = 160
_TOKEN = pattern("TOKEN")
JSON_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
DESCRIBING = frozenset({"$ref", "description", "format", "required", "title", "type"})
"""Keys of a JSON Schema that describe a value."""

_VALUE_KINDS = frozenset(("double", "single", "escaped", "bare"))
_ENDS_BARE = re.compile(r"\s{0,64}(?:[,:=\]})]|\Z)")
_ENDS_KEY = re.compile(r"\s{0,16}(?::|=>)")


def spans_below_keys(
    indexed: IndexedText, key_label: Callable[[str], str]
) -> Iterator[LabeledSpan]:
    """Yield the values in brackets after each key for which ``key_label`` returns a label."""
    text, reached = indexed.text, 0
    label_of = cache(key_label)
    for opening in _OPENS.finditer(text):
        if opening.start() < reached:
            continue
        key = _KEY_BEFORE.search(text[max(0, opening.start() - _KEY_SIZE) : opening.start()])
        if key and (label := label_of(key[1])):
            spans, reached = _values_at(text, opening.end(), holder=key[1])
            yield from (LabeledSpan(start, end, label, "secret") for start, end in spans)


def _values_at(text: str, start: int, *, holder: str) -> tuple[list[tuple[int, int]], int]:
    """Return the values in brackets, and where the brackets close or the JSON becomes invalid."""
    spans: list[tuple[int, int]] = []
    name = ""
    depth, after_value, is_schema = 0, False, False
    for token in _TOKEN.finditer(text, start):
        kind = token.lastgroup or ""
        if kind in _VALUE_KINDS:
            if after_value or (kind == "bare" and not _ENDS_BARE.match(text, token.end())):
                return spans, token.end()
            value = token[kind]
            if _ENDS_KEY.match(text, token.end()):
                name = value
                continue
            after_value = True
            is_schema |= name == "type" and value in JSON_TYPES
            if not ((is_schema and name in DESCRIBING) or _is_harmless(name, value, holder)):
                spans.append(token.span(kind))
            continue
        if kind == "open" and after_value:
            return spans, token.end()
        depth += {"open": 1, "close": -1}.get(kind, 0)
        after_value = kind == "close" or (after_value and kind != "joint")
        if depth <= 0:
            return spans, token.end()
    return spans, len(text)


def _is_harmless(name: str, value: str, holder: str) -> bool:
    if (
        is_harmless(value)
        or is_description(value)
        or is_message(value)
        or describes(holder, name, value)
    ):
        return True
    return value.replace(".", "").isdecimal() and (len(value) < 4 or is_counter(name))


_HEADING_OF_LINES, _NAMED_LINE = pattern("HEADING_OF_LINES"), pattern("NAMED_LINE")
_ENDS_OF_HEADINGS = (":\n", "{\n", "]\n", ":\r\n", "{\r\n", "]\r\n")
_MAX_LINES = 200


def spans_below_headings(
    indexed: IndexedText, key_label: Callable[[str], str]
) -> Iterator[LabeledSpan]:
    """Yield random values in the lines below ``secrets:``, ``secrets = {`` or ``[secrets]``."""
    text, label_of = indexed.text, cache(key_label)
    for last in (place + 1 for end in _ENDS_OF_HEADINGS for place in occurrences(end, text)):
        first = text.rfind("\n", 0, last) + 1
        heading = _HEADING_OF_LINES.fullmatch(text[first:last]) if last - first < 200 else None
        if heading is None:
            continue
        keys = [heading["key"]] if heading["key"] else heading["table"].split(".")
        label = next(filter(None, map(label_of, keys)), "")
        start = text.index("\n", last) + 1
        for _ in range(_MAX_LINES if label else 0):
            end = text.find("\n", start)
            whole = text[start : end if end >= 0 else len(text)]
            indent = len(whole) - len(whole.lstrip(" \t"))
            if (
                not whole
                or whole[0] == "["
                or (heading["key"] and indent <= len(heading["indent"]))
            ):
                break
            line = _NAMED_LINE.fullmatch(whole[:1000])
            kind = line.lastgroup or 0 if line else 0
            if line and is_probable(f"{line['name']}_") and is_strong_mix(line[kind]):
                yield LabeledSpan(start + line.start(kind), start + line.end(kind), label, "secret")
            start += len(whole) + 1


_RULED, _DELIMITED, _ALIGNED = map(pattern, ("RULED", "DELIMITED", "ALIGNED"))
_INSERT, _ROW, _CELL = map(pattern, ("INSERT", "ROW", "CELL"))
_SELECT = re.compile(r"(?i)\bselect\s{1,4}(?P<names>[\w.`,\s]{1,400}?)\sfrom\b")
_NAMES = ("pass", "pw", "secret", "token", "key", "cred")
_RULER = re.compile(r"[\s|:+=-]+")
_HEADING = re.compile(r"[\w .-]{1,60}")
_ALIGNED_CELL = re.compile(r"\S+(?: \S+)*")
_MAX_ROWS = 1000
_VALUE_COLUMNS = frozenset(("data", "hash", "key", "val", "value"))  # of a table of secrets
_BOX = str.maketrans("│┃║─━═┼┿╇╈╪╬├┤┡┩┣┫╞╡╠╣", "|||---" + "+" * 16)


def spans_in_columns(
    indexed: IndexedText, key_label: Callable[[str], str]
) -> Iterator[LabeledSpan]:
    """Yield the cells of columns for which ``key_label`` returns a label, except words."""
    if not any(name in indexed.lowered for name in _NAMES):
        return
    text = indexed.text
    if "│" in text or "┃" in text:
        text = text.translate(_BOX)

    def label_of(name: str) -> str:
        return key_label(name) if _HEADING.fullmatch(name) else ""

    tables = ((_RULED, "|", ["|"]), (_DELIMITED, "", [",", ";", "\t"]), (_ALIGNED, "  ", ["  "]))
    for headings, divider, signs in tables:
        if any(sign in text for sign in signs):
            yield from _below_headings(text, headings, divider, label_of)
    if any(word in indexed.lowered for word in ("values", "from stdin")):
        yield from _in_inserts(text, label_of)


def _below_headings(
    text: str, pattern: re.Pattern[str], divider: str, label_of: Callable[[str], str]
) -> Iterator[LabeledSpan]:
    reached = 0
    for heading in pattern.finditer(text):
        line = heading["heading"]
        if heading.start() < reached or not any(name in line.lower() for name in _NAMES):
            continue
        sign = divider or heading["sign"]
        labels = [label_of(cell.strip(" *`\"'")) for _, cell in _cells(line, sign)]
        if any(labels):
            first = text.find("\n", heading.end("heading")) + 1 or len(text)
            found, reached = _in_rows(text, first, sign, labels)
            yield from found


def _cells(line: str, sign: str) -> Iterator[tuple[int, str]]:
    """Yield each cell with its start; two spaces as ``sign`` mean any number of them."""
    if sign == "  ":
        yield from ((cell.start(), cell[0]) for cell in _ALIGNED_CELL.finditer(line))
        return
    start = 0
    for cell in line.split(sign):
        yield start, cell
        start += len(cell) + 1


def _in_rows(text: str, start: int, sign: str, labels: list[str]) -> tuple[list[LabeledSpan], int]:
    """Return the findings in the rows below a heading, and where the rows end."""
    found: list[LabeledSpan] = []
    for _ in range(_MAX_ROWS):
        end = text.find("\n", start)
        line = text[start : end if end >= 0 else len(text)]
        if not line or len(line) > 4000 or start > len(text):
            break
        if not _RULER.fullmatch(line):
            cells = [*_cells(line, sign)]
            if sign == "  " and len(cells) == len(labels) + 1:
                del cells[0]  # the number of a row in a data frame
            if len(cells) != len(labels):
                break
            for label, (begin, cell) in zip(labels, cells, strict=True):
                value = cell.strip(" \t\r*`\"'")
                is_doubtful = sign == "  " and not is_strong(value)  # prose may be aligned
                if label and not is_doubtful and not _is_harmless_cell(value):
                    place = start + begin + cell.index(value)
                    found.append(LabeledSpan(place, place + len(value), label, "secret"))
        start += len(line) + 1
    return found, start


def _in_inserts(text: str, label_of: Callable[[str], str]) -> Iterator[LabeledSpan]:
    for insert in _INSERT.finditer(text):
        held = label_of(insert["table"].strip('`"[]').rpartition(".")[2].rstrip("s"))
        names = [name.strip(' `"[]\n\t').lower() for name in (insert["names"] or "").split(",")]
        labels = [label_of(name) or (held if name in _VALUE_COLUMNS else "") for name in names]
        place, count = insert.end(), 0
        if insert["lines"] and any(labels):
            yield from _in_rows(text, place, "\t", labels)[0]
        while any([held, *labels]) and count < _MAX_ROWS and (row := _ROW.match(text, place)):
            start = row.start("cells")
            for named, cell in zip(chain(labels, repeat("")), _CELL.finditer(row["cells"])):  # noqa: B905
                kind = cell.lastgroup or "bare"
                label = named or (held if is_flag_token(cell[kind]) else "")
                if label and kind != "bare" and not _is_harmless_cell(cell[kind]):
                    first, last = cell.span(kind)
                    yield LabeledSpan(start + first, start + last, label, "secret")
            place, count = row.end(), count + 1


def secrets_printed(command: str, output: str, label_of: Callable[[str], str]) -> Iterator[str]:
    """Yield the secrets in what a command prints: tokens, or selected columns."""
    if PRINTS_SECRET.search(command):
        yield from filter(is_flag_token, output[:4096].split())
    select = _SELECT.search(command)
    labels = [label_of(name.strip()) for name in select["names"].split(",")] if select else []
    for sign in ("|", "\t", ",") if any(labels) else ():  # rows without a heading
        yield from (output[at.start : at.end] for at in _in_rows(output, 0, sign, labels)[0])


def _is_harmless_cell(value: str) -> bool:
    """Return whether a cell is empty, a phrase, a dummy or a short word, thus no secret."""
    if not value or is_common_word(value) or is_dummy(value):
        return True
    return " " in value or (is_words(value) and value.isalpha() and len(value) < 5)


_CHARACTER = r"[\w+/-]"  # of both alphabets
_LINES = "|".join(  # as programs break them
    rf"(?:{_CHARACTER}{{{size}}}\r?\n[ \t]{{0,12}}){{1,20000}}+{_CHARACTER}+"
    for size in (76, 64, 60)
)
_RUN = re.compile(rf"(?<!{_CHARACTER})(?:{_LINES}|{_CHARACTER}{{18,}}+)={{0,2}}", re.ASCII)
_LINE = re.compile(rf"{_CHARACTER}{{18,}}+={{0,2}}", re.ASCII)
_PART = re.compile(r"[\w+-]{18,}={0,2}", re.ASCII)
_BETWEEN = f"\n{HIDDEN}\n"


def spans_in_base64(
    text: str, find: Callable[[str], Iterator[LabeledSpan]]
) -> Iterator[LabeledSpan]:
    """Yield base64 with findings; the pieces are decoded into one text, with dividers between."""
    pieces = [*_pieces(text)]
    decoded = _BETWEEN.join(content for _, content in pieces)
    starts = [*accumulate((len(content) + len(_BETWEEN) for _, content in pieces), initial=0)]
    for span in find(decoded) if decoded else ():
        first, last = bisect_right(starts, span.start) - 1, bisect_right(starts, span.end - 1)
        for at, ((start, end), _) in enumerate(pieces[first:last], first):
            found = decoded[max(span.start, starts[at]) : span.end]
            if any(map(str.isalnum, found.partition(HIDDEN)[0])):
                yield span._replace(start=start, end=end)


def _pieces(text: str) -> Iterator[tuple[tuple[int, int], str]]:
    """Yield the span and content of base64: a whole block, a line, or a part of a path."""
    for run in _RUN.finditer(text):
        if content := decoded_text(run[0]):
            yield run.span(), content
            continue
        for line in _LINE.finditer(text, *run.span()):
            for part in [line] if decoded_text(line[0]) else _PART.finditer(text, *line.span()):
                if content := decoded_text(part[0]):
                    yield part.span(), content


_ARGUMENT = (
    r"""(?:[bfru]?(?:"(?P<double>(?:[^"\\\n]|\\.){0,512}+)"|'(?P<single>(?:[^'\\\n]|\\.){0,512}+)')"""
    r"""|[\w.]{1,60}(?:\([\w.]{0,40}\))?)"""
)
_NEXT = rf"""(?:{re.sub("P<[a-z]+>", ":", _ARGUMENT)})"""
_ARGUMENTS = re.compile(
    rf"[\[(]\s{{0,16}}(?:{_NEXT}\s{{0,16}},\s{{0,16}}\[?\s{{0,16}}){{1,64}}+{_NEXT}?"
)
_ARGUMENT_IN_LIST = re.compile(_ARGUMENT)


def spans_in_arguments(
    text: str, find: Callable[[str], Iterator[LabeledSpan]]
) -> Iterator[LabeledSpan]:
    """Yield the findings in lists such as ``["mysql", "-p…"]``, each read as a command line."""
    lines: list[str] = []
    places: list[tuple[int, int]] = []  # of each argument in the lines and in the text
    size = 0
    for found in _ARGUMENTS.finditer(text):
        if '"-' not in found[0] and "'-" not in found[0]:
            continue
        words = []
        for argument in _ARGUMENT_IN_LIST.finditer(text, *found.span()):
            kind = argument.lastgroup or 0
            parts = argument[kind].split() if kind else []
            words.append(parts[0] if len(parts) == 1 else "_")
            places.append((size, argument.start(kind)))
            size += len(words[-1]) + 1
        lines.append(" ".join(words))
        size += len(_BETWEEN) - 1
    for span in find(_BETWEEN.join(lines)) if lines else ():
        first, start = places[bisect_right(places, (span.start, len(text))) - 1]
        last, _ = places[bisect_right(places, (span.end - 1, len(text))) - 1]
        if first == last:
            yield span._replace(start=start + span.start - first, end=start + span.end - first)


CUT_CONTEXT = 4096
"""The maximum number of characters examined before a cut."""

_MARK = re.compile(r"…? ?\[cut: \d{1,12} characters in all\]")
_UNBROKEN = ascii_letters + digits + "!#$%&()*+,-./:;=?@[\\]^_{|}~"
_GROUPS = re.compile(r"(?:(?=[A-Za-z_+().-]{0,8}\d)[\w+().-]{1,17}+[ \u00a0]){1,10}+\Z", re.ASCII)
_MAX_GROUPS_SIZE = 180
_CLOSINGS = (
    *(('"', '"'), ("'", "'"), ("`", "`"), ('\\"', '\\"'), (">", "</")),
    (" ", "aa aa aa"),  # a phrase needs several words
)


def spans_before_cuts(indexed: IndexedText) -> Iterator[LabeledSpan]:
    for mark in _MARK.finditer(indexed.text):
        before = indexed.text[max(0, mark.start() - CUT_CONTEXT) : mark.start()]
        whole = before.rstrip(_UNBROKEN)
        groups = _GROUPS.search(whole[-_MAX_GROUPS_SIZE:])
        size = len(before) - len(whole) + (len(groups[0]) if groups else 0)
        if size:
            yield LabeledSpan(mark.start() - size, mark.start(), "cut", "secret")


def readings_of_cut(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield a start, the text from there to a cut, and a closing for its open quote or tag."""
    for mark in _MARK.finditer(text, max(0, len(text) - 48)):
        start = max(0, mark.start() - CUT_CONTEXT)
        before = text[start : mark.start()]
        if before.endswith(HIDDEN):  # the cut value was redacted in an earlier pass
            return
        for opening, closing in _CLOSINGS:
            if opening in before:
                yield start, before, closing
