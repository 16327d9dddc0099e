"""How rules for tokens are written: by how they begin, or by what is in them."""

import re

from kp_middleware.privacy._rules import Check, Rule, value_of
from kp_middleware.privacy._strength import entropy

EDGE = "(?<![A-Za-z0-9])"
END = "(?![A-Za-z0-9])"
UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


def key(pattern: str, *starts: str, check: Check | None = None) -> Rule:
    """A token that begins with one of these."""
    return Rule("api_key", "secret", pattern, starts, check=check)


def key_with(pattern: str, *needs: str, check: Check | None = None) -> Rule:
    """A token that has one of these somewhere in it."""
    return Rule("api_key", "secret", pattern, needs=needs, check=check)


def is_issued(match: re.Match[str]) -> bool:
    """After a prefix that words have, too: a long run of letters with digits among them."""
    runs = re.findall("[A-Za-z0-9]+", value_of(match))
    longest = max(runs, key=len)
    digits = sum(map(str.isdigit, longest))
    if _is_mixed(longest):
        return len(longest) >= (16 if len(runs) < 3 else 12) and digits >= 2
    return len(longest) >= 16 and digits >= 5 and entropy(longest) > 3


def _is_mixed(text: str) -> bool:
    return any(map(str.isupper, text)) and any(map(str.islower, text))
