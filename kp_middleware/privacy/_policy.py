"""The user's redaction policy: additional rules and exemptions."""

import hashlib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Self

from kp_middleware.patterns import is_pattern
from kp_middleware.privacy._ruleset import REDACTOR

if TYPE_CHECKING:
    from kp_middleware.settings import Settings

_PACKAGES = {
    "kingfisher": "kingfisher-secret-scanner",
    "phonenumbers": "phonenumbers",
    "presidio": "presidio-analyzer",
}


@dataclass(frozen=True, slots=True)
class Policy:
    """A user's own redaction rules and exemptions; by default there are none.

    Attributes:
        allow: A finding that is exactly one of these texts stays. ``/patterns/`` exempt what
            matches them whole, but never a secret.
        deny: Goes at every level: a text in any case, or what a ``/pattern/`` finds.
        keys_allow: Fields whose name does not make their values secret.
        keys_deny: Fields whose values always go.
        phone_regions: Where national phone numbers and ids are at home, such as ``DE``.
        engines: What else looks, such as ``kingfisher`` or ``gitleaks:rules.toml``.
        numbered: ``[REDACTED:email#1]``: equal contacts have equal numbers within one document.
    """

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    keys_allow: tuple[str, ...] = ()
    keys_deny: tuple[str, ...] = ()
    phone_regions: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    numbered: bool = False

    @classmethod
    def of(cls, settings: "Settings") -> Self:
        """Return the policy of the settings."""
        return cls(
            allow=settings.redact_allow,
            deny=settings.redact_deny,
            keys_allow=settings.redact_keys_allow,
            keys_deny=settings.redact_keys_deny,
            phone_regions=settings.redact_phone_regions,
            engines=settings.redact_engines,
            numbered=settings.redact_numbered,
        )

    @property
    def redactor(self) -> str:
        """The name and digest of the redaction rules, stored with each document."""
        if self == Policy():
            return REDACTOR
        added = repr((self, [_version(name) for name in self.engine_names]))
        return f"{REDACTOR}+{hashlib.sha256(added.encode()).hexdigest()[:12]}"

    @property
    def engine_names(self) -> tuple[str, ...]:
        """The engines in use; phone regions imply ``phonenumbers``."""
        regions = ("phonenumbers",) if self.phone_regions else ()
        return tuple(dict.fromkeys((*regions, *self.engines)))

    def built_in(self) -> Self:
        """Return the built-in rules with the user's exemptions."""
        return replace(self, deny=(), keys_deny=(), phone_regions=(), engines=())

    def without_packages(self) -> Self:
        """Return the part that works without an extra: no engines, no patterns."""
        allow, deny = (
            tuple(entry for entry in entries if not is_pattern(entry))
            for entries in (self.allow, self.deny)
        )
        return replace(self, allow=allow, deny=deny, phone_regions=(), engines=())


def _version(engine: str) -> str:
    """Return the package version or the file digest of an engine, or an empty string."""
    try:
        return _version_found(engine)
    except (OSError, ValueError, ModuleNotFoundError):  # the last of a package, too
        return ""


@cache
def _version_found(engine: str) -> str:
    kind, _, argument = engine.partition(":")
    if kind == "gitleaks":  # its rules are read once, too
        content = Path(argument).expanduser().read_bytes()
        return hashlib.sha256(content).hexdigest()[:12]
    from importlib import metadata  # here: without an engine it is not needed, and slow

    packages = [_PACKAGES.get(kind, kind), *filter(None, [argument])]
    return " ".join(map(metadata.version, packages))
