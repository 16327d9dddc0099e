"""Redaction: remove private data from traces, and check documents before export.

Secrets and payment cards are redacted at every level; bank accounts, national ids, e-mail
addresses, phone numbers, IP and MAC addresses and home paths at every level except ``private``.
Names, postal addresses and birth dates are not found by rules. A `Policy` adds a user's own rules.
"""

from kp_middleware.privacy._decoding import count_placeholders, parse_json
from kp_middleware.privacy._known_secrets import KnownSecrets
from kp_middleware.privacy._policy import ENGINE_TROUBLE, Policy
from kp_middleware.privacy._redact import check_clean, redact_jsonable, redact_trace
from kp_middleware.privacy._rules import REDACTOR
from kp_middleware.privacy._ruleset import (
    Found,
    Redacted,
    RedactedTrace,
    RedactedValue,
    redact_text,
)

__all__ = ["ENGINE_TROUBLE", "REDACTOR", "Found", "KnownSecrets", "Policy", "Redacted",
           "RedactedTrace", "RedactedValue", "check_clean", "count_placeholders", "parse_json",
           "redact_jsonable", "redact_text", "redact_trace"]  # fmt: skip
