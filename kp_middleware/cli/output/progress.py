"""How far something has come, for whoever waits for it."""

import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Self, TypeVar

import click

from kp_middleware.cli.output.manners import is_terminal, manners

T = TypeVar("T")

_PATIENCE_S: Final = 0.5
_REDRAW_S: Final = 0.1
_RETELL_S: Final = 5.0
_BAR: Final = 24
_CLEAR: Final = "\r\x1b[K"


def progress(
    items: Iterable[T],
    *,
    total: int | None,
    what: str,
    size: Callable[[T], int] = lambda _: 1,
    timer: Callable[[], float] = time.monotonic,
) -> Iterator[T]:
    """The same items; on a terminal, a bar tells how many are done once it takes half a second.

    For whatever may take longer than that::

        for seq in progress(seqs, total=len(seqs), what="traces exported"):
            export(seq)

    It is drawn on standard error, and wiped at the end. Elsewhere than on a terminal nothing is
    told, or with ``--verbose`` a plain line now and then; with ``--no-progress`` and ``--quiet``
    nothing anywhere.

    Args:
        items: An item is done when the next one is asked for.
        total: How many there are, by their sizes; None if that is not known.
        what: What is counted and done: ``traces removed``.
        size: How many an item stands for.
        timer: Seconds, of a clock that nobody sets.
    """
    done = 0
    with Progress(what, timer=timer) as shown:
        for item in items:
            yield item
            done += size(item)
            shown.reach(done, total)


class Progress:
    """The same for what is no loop, such as a callback: ``with Progress(what) as shown``."""

    def __init__(self, what: str, *, timer: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._timer = timer
        said = manners()
        self._draws = said.progress and not said.quiet and is_terminal(sys.stderr)
        self._tells = said.progress and not said.quiet and said.verbose and not self._draws
        self._drawn = False

    def __enter__(self) -> Self:
        self._started = self._timer()
        self._next = self._started + _PATIENCE_S
        context = click.get_current_context(silent=True)
        if context and self._draws:
            context.call_on_close(self._wipe)  # an error's message finds an empty line
        return self

    def __exit__(self, *_: object) -> None:
        self._wipe()

    def reach(self, done: int, total: int | None = None) -> None:
        """So many are done, of so many; None if that is not known."""
        if not self._draws and not self._tells:
            return
        now = self._timer()
        if now < self._next:
            return
        rate = done / (now - self._started)
        if self._draws:
            columns = shutil.get_terminal_size().columns
            line = _line(self._what, done, total, rate)[: columns - 1]
            click.echo(f"{_CLEAR}{line}", nl=False, err=True)
            self._drawn, self._next = True, now + _REDRAW_S
        else:
            click.echo(f"{_count(done, total)} {self._what}", err=True)
            self._next = now + _RETELL_S

    def _wipe(self) -> None:
        if self._drawn:
            click.echo(_CLEAR, nl=False, err=True)
            self._drawn = False


def _line(what: str, done: int, total: int | None, rate: float) -> str:
    """A bar, the count and the rate.

    >>> _line("traces", 1200, 4800, 812.3)
    '██████░░░░░░░░░░░░░░░░░░  1,200 of 4,800 traces, 812 a second'
    >>> _line("traces", 1200, None, 0.5)
    '1,200 traces, 0.5 a second'
    """
    pace = f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"
    told = f"{_count(done, total)} {what}, {pace} a second"
    if not total:
        return told
    full = min(_BAR, _BAR * done // total)
    return f"{'█' * full}{'░' * (_BAR - full)}  {told}"


def _count(done: int, total: int | None) -> str:
    return f"{done:,}" if total is None else f"{done:,} of {total:,}"
