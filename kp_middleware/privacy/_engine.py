"""Another program's finder, asked with care: it finds more, and takes nothing away."""

import time
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import TypeAlias

from kp_middleware.errors import RedactionError
from kp_middleware.privacy._pieces import pieces
from kp_middleware.privacy._rules import Group, Span
from kp_middleware.privacy._time_limit import check_time

ENGINE_TROUBLE = frozenset(("engine_missing", "engine_failed", "timeout"))
"""The reasons of a RedactionError that are an engine's, not the text's."""

_REMEMBERED = 10_000

Finder: TypeAlias = Callable[[str], Iterable[tuple[int, int, str]]]
"""The starts, ends and labels of what has to go in a text; they may overlap."""


class Engine:
    """One finder, asked once for each text, and not again at once where it was slow to fail.

    Attributes:
        name: As in the settings.
        group: Decides at which levels its findings go.
    """

    def __init__(
        self,
        name: str,
        group: Group,
        finder: Finder,
        *,
        piece_size: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``finder`` is shown no more than ``piece_size`` characters at a time; None: all."""
        self.name = name
        self.group = group
        self._finder = finder
        self._piece_size = piece_size
        self._clock = clock
        self._known: dict[bytes, list[Span]] = {}
        self._reason = ""  # of the last failure,
        self._rests_until = clock()  # and how long none is asked for

    def spans(self, text: str) -> list[Span]:
        """What has to go. A text is looked at to be cleaned and to be checked; the answer is kept.

        Raises:
            RedactionError: ``timeout``, or ``engine_failed``, whatever went wrong; also if what it
                found is no part of the text. An engine that failed rests for as long as it took.
        """
        key = blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
        found = self._known.get(key)
        if found is None:
            found = self._asked(text)
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[key] = found
        return found

    def _asked(self, text: str) -> list[Span]:
        began = self._clock()
        if began < self._rests_until:
            raise self._refusal(text)
        try:
            return [*self._found(text)]
        except TimeoutError:
            self._reason = "timeout"
        except Exception:  # noqa: BLE001  # fail closed, whatever it is
            self._reason = "engine_failed"
        now = self._clock()
        self._rests_until = now + (now - began)
        raise self._refusal(text)  # not from the cause, which may quote

    def _found(self, text: str) -> Iterator[Span]:
        for place, piece in pieces(text, self._piece_size or len(text)):
            check_time()
            for start, end, label in self._finder(piece):
                if not 0 <= start <= end <= len(piece):
                    raise ValueError("no part of the text")
                yield Span(place + start, place + end, label, self.group)

    def _refusal(self, text: str) -> RedactionError:
        size = f" ({len(text)} chars)" if self._reason == "timeout" else ""
        return RedactionError(self._reason, self.name + size)
