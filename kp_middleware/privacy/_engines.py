"""Other programs' finders, which a user may add: they find more, and take nothing away."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from typing import TypeAlias

from kp_middleware.errors import MissingExtraError, RedactionError
from kp_middleware.privacy._rules import Group, Span

ENGINE_TROUBLE = frozenset(("engine_missing", "engine_failed"))
"""The reasons of a RedactionError that are an engine's, not the text's."""

_REMEMBERED = 10_000

Finder: TypeAlias = Callable[[str], Iterable[tuple[int, int, str]]]
"""The starts, ends and labels of what has to go in a text; they may overlap."""


@dataclass(frozen=True, slots=True)
class Engine:
    """One finder.

    Attributes:
        name: As in the settings.
        group: Decides at which levels its findings go.
        finder: Asked for each text.
    """

    name: str
    group: Group
    finder: Finder

    def spans(self, text: str) -> list[Span]:
        """What has to go.

        Raises:
            RedactionError: ``engine_failed``, whatever went wrong; also if what it found is no
                part of the text.
        """
        try:
            found = [Span(*places, self.group) for places in self.finder(text)]
            fits = all(0 <= span.start <= span.end <= len(text) for span in found)
        except Exception:  # noqa: BLE001  # fail closed, whatever it is
            raise RedactionError("engine_failed", self.name) from None  # the cause may quote
        if not fits:
            raise RedactionError("engine_failed", self.name)
        return found


@cache
def engine(name: str, regions: tuple[str, ...]) -> Engine:
    """The engine that is meant by ``phonenumbers``, ``gitleaks:rules.toml`` and so on.

    Raises:
        RedactionError: ``engine_missing``, with what to install or to mend.
    """
    kind, _, argument = name.partition(":")
    try:
        group, finder = _made(kind, argument, regions)
    except (MissingExtraError, OSError, ValueError) as error:
        raise RedactionError("engine_missing", f"{name}: {error}") from error
    return Engine(name, group, _remembering(finder))


def _remembering(finder: Finder) -> Finder:
    """A text is looked at to be cleaned and to be checked; the answer is kept, not the text."""
    known: dict[bytes, list[tuple[int, int, str]]] = {}

    def find(text: str) -> list[tuple[int, int, str]]:
        key = blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
        found = known.get(key)
        if found is None:
            found = [*finder(text)]
            if len(known) >= _REMEMBERED:
                known.clear()
            known[key] = found
        return found

    return find


def _made(kind: str, argument: str, regions: tuple[str, ...]) -> tuple[Group, Finder]:
    match kind:
        case "phonenumbers":
            from kp_middleware.privacy._phone_engine import phone_finder

            return "contact", phone_finder(regions)
        case "kingfisher":
            from kp_middleware.privacy._kingfisher_engine import kingfisher_finder

            return "secret", kingfisher_finder()
        case "gitleaks":
            from kp_middleware.privacy._gitleaks_engine import gitleaks_finder

            return "secret", gitleaks_finder(argument)
        case "presidio":
            from kp_middleware.privacy._presidio_engine import presidio_finder

            return "contact", presidio_finder(argument)
        case _:
            raise ValueError("there is no such engine")
