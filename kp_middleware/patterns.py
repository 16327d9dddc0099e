r"""Users' patterns, such as ``/ACME-\d+/``, in RE2 syntax.

RE2 runs in linear time: no pattern can hang the agent.
"""

import re
from functools import cache
from typing import TypeAlias

from kp_middleware.errors import MissingExtraError

Pattern: TypeAlias = re.Pattern[str]
"""RE2's type has the same methods."""


def is_pattern(text: str) -> bool:
    """Return whether a text is written as a ``/pattern/``."""
    return len(text) > 2 and text[0] == text[-1] == "/"


@cache
def compile_pattern(pattern: str) -> Pattern:
    """Compile a pattern without its slashes, or raise ValueError if it is not valid RE2."""
    try:
        import re2
    except ModuleNotFoundError as error:
        raise MissingExtraError("patterns") from error
    options = re2.Options()
    options.log_errors = False  # or it writes to standard error
    try:
        compiled: Pattern = re2.compile(pattern, options)
    except re2.error as error:
        problem = error.args[0]
        words = problem.decode(errors="replace") if isinstance(problem, bytes) else problem
        raise ValueError(f"/{pattern}/ is not valid RE2: {words}") from error
    return compiled
