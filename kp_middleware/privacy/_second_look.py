"""The second look: nothing that had to go is in the very bytes that would be sent."""

import json
from typing import TYPE_CHECKING

from kp_middleware.errors import RedactionError
from kp_middleware.privacy._documents import KEPT
from kp_middleware.privacy._json_text import unique
from kp_middleware.privacy._policy import Policy
from kp_middleware.privacy._refusal import refusing
from kp_middleware.privacy._rulebook import rulebook
from kp_middleware.privacy._walk import Walk

if TYPE_CHECKING:
    from kp_middleware.traces import PrivacyLevel

_NO_POLICY = Policy()


def check_clean(body: bytes, *, level: "PrivacyLevel", policy: Policy = _NO_POLICY) -> None:
    """Let a JSON document pass, or say why it must not.

    Our own rules see every field; what a user adds sees those that can hold a text.

    Raises:
        RedactionError: ``residual_secret`` with the path, the rule and the length of what was
            found, never the value; ``invalid_after_redaction`` if it is not JSON, or a key comes
            twice.
    """
    try:
        document = json.loads(body.decode(), object_pairs_hook=unique)
    except (ValueError, RecursionError):
        raise RedactionError("invalid_after_redaction") from None  # the cause quotes the body
    with refusing():
        _look_through(document, Walk(rulebook(level, policy.built_in())))
        if policy != policy.built_in():
            _look_through(document, Walk(rulebook(level, policy), kept=KEPT))


def _look_through(document: object, walk: Walk) -> None:
    walk.clean(document)
    if walk.found:
        first = walk.found[0]
        where = f"{first.path} ({first.label}, {first.length} chars)"
        raise RedactionError("residual_secret", where)
