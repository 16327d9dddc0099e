"""The pages, and the blocks of code in them."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


class Block(NamedTuple):
    """A block of code, and on which line of its page it begins."""

    code: str
    line: int


def name(page: Path) -> str:
    """As a reader calls it: ``docs/privacy.md``."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str) -> Iterator[Block]:
    """Those of a page that are in this language, in order."""
    text = page.read_text("utf-8")
    for found in re.finditer(rf"(?ms)^```{language}\n(.*?)^```", text):
        yield Block(found[1], text.count("\n", 0, found.start(1)) + 1)
