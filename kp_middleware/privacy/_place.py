"""Where in a document a value stands."""

from typing import NamedTuple


class Place(NamedTuple):
    """Where in a document a value stands, and what that says of it.

    Attributes:
        path: As a person reads it: ``steps[3].input.url``.
        pattern: The path of all values like it: ``steps[].input.url``.
        name: The nearest key, which may announce what the value is.
        blank: The label under which the value goes, whatever it is; empty if it may stay.
        depth: How many values this one is inside of.
    """

    path: str = ""
    pattern: str = ""
    name: str = ""
    blank: str = ""
    depth: int = 0

    def under(self, key: str, *, name: str, blank: str) -> "Place":
        """The place of a member; ``name`` is its key, or what a sibling says that it is."""
        dot = "." if self.path else ""
        return Place(
            f"{self.path}{dot}{key[:40]}",
            f"{self.pattern}{dot}{key}",
            name,
            self.blank or blank,
            self.depth + 1,
        )

    def at(self, index: int, *, name: str, blank: str) -> "Place":
        """The place of an item; ``name`` is the flag before it, if that says what it is."""
        return Place(
            f"{self.path}[{index}]",
            f"{self.pattern}[]",
            name or self.name,
            self.blank or blank,
            self.depth + 1,
        )
