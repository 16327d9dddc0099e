"""What a trace is called: by what was asked."""

from typing import Final

NO_OBJECTIVE: Final = "(no objective)"


def titled(objective: str, most: int) -> str:
    """An objective cut after so many characters; never blank, or a link would have no name.

    >>> titled("Find the invoice", 8), titled(" ", 8)
    ('Find the', '(no objective)')
    """
    return objective[:most] if objective.strip() else NO_OBJECTIVE
