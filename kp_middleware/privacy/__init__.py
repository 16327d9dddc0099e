"""Take out what must not be written or shared, and make sure of it before anything leaves.

Secrets and sensitive numbers (cards, bank accounts, national ids) go at every level; e-mail
addresses, phone numbers, IP and MAC addresses and home paths stay at ``private`` alone. Names,
postal addresses and birth dates are not found.
"""

from kp_middleware.privacy._documents import (
    RedactedTrace,
    RedactedValue,
    redact_jsonable,
    redact_trace,
)
from kp_middleware.privacy._find import Redacted, redact_text
from kp_middleware.privacy._gate import check_clean
from kp_middleware.privacy._table import REDACTOR

__all__ = [
    "REDACTOR",
    "Redacted",
    "RedactedTrace",
    "RedactedValue",
    "check_clean",
    "redact_jsonable",
    "redact_text",
    "redact_trace",
]
