"""Take out what must not be written or shared, and make sure of it before anything leaves.

Secrets and payment cards go at every level; bank accounts, national ids, e-mail addresses, phone
numbers, IP and MAC addresses and home paths stay at ``private`` alone. Names, postal addresses and
birth dates are not found by rules. A `Policy` adds what a user knows better.
"""

from kp_middleware.privacy._documents import (
    RedactedTrace,
    RedactedValue,
    redact_jsonable,
    redact_trace,
    spread_in_jsonable,
    spread_in_trace,
)
from kp_middleware.privacy._engine import ENGINE_TROUBLE
from kp_middleware.privacy._find import Redacted, redact_text
from kp_middleware.privacy._found import Found, count_placeholders
from kp_middleware.privacy._json_text import document_in
from kp_middleware.privacy._known_secrets import KnownSecrets
from kp_middleware.privacy._policy import Policy
from kp_middleware.privacy._second_look import check_clean
from kp_middleware.privacy._table import REDACTOR

__all__ = [
    "ENGINE_TROUBLE",
    "REDACTOR",
    "Found",
    "KnownSecrets",
    "Policy",
    "Redacted",
    "RedactedTrace",
    "RedactedValue",
    "check_clean",
    "count_placeholders",
    "document_in",
    "redact_jsonable",
    "redact_text",
    "redact_trace",
    "spread_in_jsonable",
    "spread_in_trace",
]
