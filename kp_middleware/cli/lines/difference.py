"""How what leaves differs from what is kept here, line by line."""

import difflib
import json
from collections.abc import Iterator

from kp_middleware.views.wording import printable


def difference_lines(document: str, body: bytes) -> Iterator[str]:
    """A unified diff of the local copy and of the bytes that go."""
    here, leaving = _lines(document), _lines(body)
    return map(printable, difflib.unified_diff(here, leaving, "kept here", "leaves", lineterm=""))


def _lines(document: str | bytes) -> list[str]:
    return json.dumps(json.loads(document), ensure_ascii=False, indent=2).splitlines()
