r"""Patterns that users write, such as ``/ACME-\d+/``, in the syntax of RE2.

RE2 takes time in proportion to the text, whatever the pattern: no pattern can hang the agent.
"""

import re
from functools import cache
from typing import TypeAlias

from kp_middleware.errors import MissingExtraError

Pattern: TypeAlias = re.Pattern[str]
"""RE2's own has the same methods."""


def is_pattern(text: str) -> bool:
    r"""Return whether a text is written as a pattern.

    >>> is_pattern(r"/ACME-\d+/"), is_pattern("/srv/app"), is_pattern("ACME")
    (True, False, False)
    """
    return len(text) > 2 and text[0] == text[-1] == "/"


@cache
def compiled(pattern: str) -> Pattern:
    """Compile a pattern, given without its slashes; what is not RE2 is a ValueError."""
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
        raise ValueError(f"/{pattern}/ is not valid RE2: {words}") from error
    return made
