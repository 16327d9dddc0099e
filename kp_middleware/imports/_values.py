"""The JSON values of a file: one a line, the elements of an array, or a document."""

import gzip
import json
import zlib
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Final, cast

from kp_middleware.imports._run import Book
from kp_middleware.recording import jsonable

MOST_LINE_BYTES: Final = 16 << 20
"""Longer lines are skipped and counted."""

_MOST_DOCUMENT: Final = 128 << 20
_HEAD_BYTES: Final = 64 << 10
_CHUNK: Final = 1 << 20
_MOST_CUT_BYTES: Final = 1 << 20
_MESSAGE_KEYS: Final = {"role", "content", "type"}  # one of them begins a message


def values_in(path: Path, book: Book) -> Iterator[object]:
    """Yield the values of a file: one a line, the elements of an array, or one document.

    What is no JSON, too long, too deeply nested or unreadable is skipped, and counted in the book.
    """
    try:
        with _opened(path) as file:
            is_lines = _is_lines(file.read(_HEAD_BYTES))
            file.seek(0)
            yield from (_lines if is_lines else _document)(file, book)
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


def _is_lines(head: bytes) -> bool:
    """Return whether each line is a value; else the whole file is one."""
    first, _, more = head.decode("utf-8-sig", "replace").lstrip().partition("\n")
    if first.startswith("["):
        return bool(more.strip()) and _is_json(first)
    return not (first.startswith("{") and more.strip() and first.rstrip()[-1:] in "{[,")


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
    """Yield a value, or the elements of an array that is no list of messages."""
    try:
        value = json.loads(content)
    except RecursionError:
        book.skip("too_deep")
    except ValueError:
        book.skip("not_json")
    else:
        first = value[0] if isinstance(value, list) and value else value
        is_history = isinstance(first, dict) and next(iter(first), "") in _MESSAGE_KEYS
        yield from value if isinstance(value, list) and not is_history else [value]
