r"""Patterns that users write, such as ``/ACME-\d+/``, in the syntax of RE2.

RE2 takes time in proportion to the text, whatever the pattern: no pattern can hang the agent.
"""

from collections.abc import Iterator
from functools import cache
from typing import Protocol

from kp_middleware.errors import MissingExtraError


class Match(Protocol):
    """Where a pattern was found."""

    def span(self, group: int = 0, /) -> tuple[int, int]:
        """Its start and end; -1 for a group that took no part."""


class Pattern(Protocol):
    """A compiled pattern."""

    @property
    def groups(self) -> int:
        """How many groups it has."""

    def finditer(self, text: str, /) -> Iterator[Match]:
        """Where it is found, from left to right."""

    def search(self, text: str, /) -> Match | None:
        """Where it is found first."""

    def fullmatch(self, text: str, /) -> Match | None:
        """Whether it is the whole text."""


def is_pattern(text: str) -> bool:
    r"""Whether a text is meant as a pattern.

    >>> is_pattern(r"/ACME-\d+/"), is_pattern("/srv/app"), is_pattern("ACME")
    (True, False, False)
    """
    return len(text) > 2 and text[0] == text[-1] == "/"


@cache
def compiled(pattern: str) -> Pattern:
    """Make a pattern, without the slashes round it, ready.

    Raises:
        MissingExtraError: If RE2 is not installed.
        ValueError: If it is none: what is wrong with it is in the message.
    """
    try:
        import re2
    except ModuleNotFoundError as error:
        raise MissingExtraError("patterns") from error
    options = re2.Options()
    options.log_errors = False  # or it writes to standard error
    try:
        made: Pattern = re2.compile(pattern, options)
    except re2.error as error:
        problem = error.args[0]
        words = problem.decode(errors="replace") if isinstance(problem, bytes) else problem
        raise ValueError(f"/{pattern}/ is no pattern of RE2: {words}") from error
    return made
