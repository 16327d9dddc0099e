"""A stream of the JSON values of a file: one a line, the elements of an array, or a document."""

import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Final, Literal, TypeAlias, cast

from kp_middleware.imports._run import Book
from kp_middleware.recording import jsonable

MOST_LINE_BYTES: Final = 16 << 20
"""Longer lines are skipped and counted."""

_MOST_DOCUMENT: Final = 32 << 20
_HEAD_BYTES: Final = 64 << 10
_CHUNK: Final = 1 << 20
_MOST_CUT_BYTES: Final = 1 << 20
_BETWEEN: Final = frozenset(" \t\r\n,")
_MESSAGE: Final = re.compile(r'\[\s*\{\s*"(?:role|content|type)"\s*:')

Layout: TypeAlias = Literal["lines", "elements", "document"]


def values_in(path: Path, book: Book) -> Iterator[object]:
    """Yield the values of a file, with at most one of them in memory.

    What is no JSON, too long, too deeply nested or unreadable is skipped, and counted in the book.
    """
    try:
        with _opened(path) as file:
            layout = _layout(file.read(_HEAD_BYTES))
            file.seek(0)
            read = {"elements": _elements, "lines": _lines, "document": _document}[layout]
            yield from read(file, book)
    except (OSError, UnicodeError, EOFError, zlib.error):
        book.skip("unreadable")


def _opened(path: Path) -> BinaryIO:
    """Open a file to read it; one of gzip as what is in it."""
    with path.open("rb") as file:
        is_packed = file.read(2) == b"\x1f\x8b"
    return cast("BinaryIO", gzip.open(path)) if is_packed else path.open("rb")


def written(value: object) -> str:
    """Return a value as JSON; what is too deep for that is cut."""
    try:
        return json.dumps(value, sort_keys=True)
    except RecursionError:
        return json.dumps(jsonable(value, _MOST_CUT_BYTES), sort_keys=True)


def digest(value: object) -> str:
    """Return a fingerprint of a document that has no id of its own."""
    return sha256(written(value).encode()).hexdigest()[:32]


def _layout(head: bytes) -> Layout:
    beginning = head.decode("utf-8-sig", "replace").lstrip()
    first, newline, more = beginning.partition("\n")
    is_whole = not newline or not more.strip() or _is_json(first)
    if beginning.startswith("["):
        if _MESSAGE.match(beginning):  # a bare list of messages, one a line or one a file
            return "lines" if is_whole else "document"
        return "lines" if first.startswith("[[") and _is_json(first) else "elements"
    looks_cut = beginning.startswith("{") and not is_whole and first.rstrip()[-1:] in "{[,"
    return "document" if looks_cut else "lines"


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except RecursionError:
        return True
    except ValueError:
        return False
    return True


def _lines(file: BinaryIO, book: Book) -> Iterator[object]:
    while line := file.readline(MOST_LINE_BYTES + 1):
        if len(line) > MOST_LINE_BYTES:
            book.skip("too_long")
            while line and not line.endswith(b"\n"):
                line = file.readline(_CHUNK)
        elif line.strip():
            yield from _value(line, book)


def _document(file: BinaryIO, book: Book) -> Iterator[object]:
    content = file.read(_MOST_DOCUMENT + 1)
    if len(content) > _MOST_DOCUMENT:
        book.skip("too_long")
    else:
        yield from _value(content, book)


def _value(content: bytes, book: Book) -> Iterator[object]:
    try:
        yield json.loads(content)
    except RecursionError:
        book.skip("too_deep")
    except ValueError:
        book.skip("not_json")


def _elements(file: BinaryIO, book: Book) -> Iterator[object]:
    source = io.TextIOWrapper(file, "utf-8-sig", errors="replace")
    decode = json.JSONDecoder().raw_decode
    left = source.read(_CHUNK).lstrip()[1:]
    at = 0
    while True:
        while left[at : at + 1] in _BETWEEN:
            at += 1
        if left.startswith("]", at):
            break
        try:
            value, at = decode(left, at)
        except RecursionError:
            book.skip("too_deep")
            break
        except ValueError:
            more = source.read(max(_CHUNK, len(left) - at))
            if not more or len(left) - at + len(more) > _MOST_DOCUMENT:
                book.skip("too_long" if more else "not_json")
                break
            left, at = left[at:] + more, 0
        else:
            yield value
    source.detach()
