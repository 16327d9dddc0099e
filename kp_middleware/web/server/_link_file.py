"""The one-time link in a file that its user alone can read, for a browser to open."""

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

_PREFIX: Final = "kp-middleware-ui-"
_PAGE: Final = (
    '<!DOCTYPE html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
    '<title>kp-middleware</title><meta http-equiv="refresh" content="0; url={0}">'
    '<a href="{0}">Open</a>'
)


class LinkFile:
    """A page that leads on to the link.

    Every user of a machine can read with which words a browser was started, so they name this file
    and not the link.
    """

    def __init__(self) -> None:
        self._folder: TemporaryDirectory[str] | None = None

    def write(self, link: str) -> str:
        """The address of the file, which leads there until it is removed."""
        self._folder = _private_folder()
        page = Path(self._folder.name) / "open.html"
        page.touch(mode=0o600)
        page.write_text(_PAGE.format(link), encoding="utf-8")
        return page.as_uri()

    def remove(self) -> None:
        """If there is one."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def _private_folder() -> "TemporaryDirectory[str]":
    """In the home folder, and not hidden there: a browser in a sandbox sees nothing else."""
    with suppress(OSError, RuntimeError):
        return TemporaryDirectory(prefix=_PREFIX, dir=Path.home())
    return TemporaryDirectory(prefix=_PREFIX)
