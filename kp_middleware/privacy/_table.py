"""All rules there are, and the name under which a document says that they were applied."""

import hashlib

from kp_middleware.privacy._assignment_rules import ASSIGNMENT_RULES
from kp_middleware.privacy._contact_rules import CONTACT_RULES
from kp_middleware.privacy._credential_rules import CREDENTIAL_RULES
from kp_middleware.privacy._rules import Rule
from kp_middleware.privacy._sensitive_rules import SENSITIVE_RULES
from kp_middleware.privacy._token_rules import TOKEN_RULES

RULES: tuple[Rule, ...] = (
    *TOKEN_RULES,
    *CREDENTIAL_RULES,
    *ASSIGNMENT_RULES,
    *SENSITIVE_RULES,
    *CONTACT_RULES,
)
_PATTERNS = repr(
    [
        (
            *(rule.label, rule.group, rule.pattern, rule.starts, rule.needs),
            rule.check and rule.check.__qualname__,
        )
        for rule in RULES
    ]
)

REDACTOR = f"kp-redactor/1+{hashlib.sha256(_PATTERNS.encode()).hexdigest()[:12]}"
"""Name, version of the code, digest of the rules without the code of their checks."""
