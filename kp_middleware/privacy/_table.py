"""All rules there are, and the name under which a document says that they were applied."""

import hashlib

from kp_middleware.privacy._armour_rules import ARMOUR_RULES
from kp_middleware.privacy._assignment_rules import ASSIGNMENT_RULES
from kp_middleware.privacy._command_rules import COMMAND_RULES
from kp_middleware.privacy._contact_rules import CONTACT_RULES
from kp_middleware.privacy._credential_rules import CREDENTIAL_RULES
from kp_middleware.privacy._form_rules import FORM_RULES
from kp_middleware.privacy._rules import Rule
from kp_middleware.privacy._sensitive_rules import SENSITIVE_RULES
from kp_middleware.privacy._service_token_rules import SERVICE_TOKEN_RULES
from kp_middleware.privacy._token_rules import TOKEN_RULES
from kp_middleware.privacy._told_rules import TOLD_RULES
from kp_middleware.privacy._vendor_rules import VENDOR_RULES

RULES: tuple[Rule, ...] = (
    *TOKEN_RULES,
    *SERVICE_TOKEN_RULES,
    *ARMOUR_RULES,
    *VENDOR_RULES,
    *CREDENTIAL_RULES,
    *ASSIGNMENT_RULES,
    *COMMAND_RULES,
    *FORM_RULES,
    *TOLD_RULES,
    *SENSITIVE_RULES,
    *CONTACT_RULES,
)
_PATTERNS = repr(
    [
        (
            *(rule.label, rule.group, rule.pattern, rule.starts, rule.needs, rule.region),
            rule.check and rule.check.__qualname__,
        )
        for rule in RULES
    ]
)

REDACTOR = f"kp-redactor/1+{hashlib.sha256(_PATTERNS.encode()).hexdigest()[:12]}"
"""Name, version of the code, digest of the rules without the code of their checks."""
