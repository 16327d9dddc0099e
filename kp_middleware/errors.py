"""Errors that callers can act on; wrong arguments stay ``ValueError`` and ``TypeError``.

KnowledgePulseError
├── MissingExtraError            install the extra it names
├── SettingsFileError            correct the file it names
├── DatabaseError                the file cannot be used: the message has its path and a remedy
│   └── SharedLogError           the shared log is unavailable: runs wait in the file
├── TraceNotFoundError           no stored trace has this id, or several begin with it
├── RedactionError               not safe to send: the message has the reason and path
├── EmbedderError
│   ├── EmbedderUnavailableError this process has no model: novelty is 0.5
│   └── EmbedderNotReadyError    the model is being downloaded: retry later
└── RegistryError
    ├── RegistryUnavailableError retry later
    ├── RegistryRejectedError    the document will never be accepted
    └── RegistryForbiddenError   nothing will be accepted until the user acts
"""

from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple, Self

__all__ = ["DatabaseError", "EmbedderError", "EmbedderNotReadyError", "EmbedderUnavailableError",
           "KnowledgePulseError", "MissingExtraError", "Problem", "ProblemKind", "RedactionError",
           "RegistryError", "RegistryForbiddenError", "RegistryRejectedError",
           "RegistryUnavailableError", "SettingsFileError", "SharedLogError",
           "TraceNotFoundError"]  # fmt: skip


class KnowledgePulseError(Exception):
    """Any error of this library."""


class MissingExtraError(KnowledgePulseError):
    """A feature needs packages that are not installed.

    >>> print(MissingExtraError("langchain"))
    this needs more packages: pip install "kp-middleware[langchain]"
    """

    def __init__(self, extra: str) -> None:
        super().__init__(f'this needs more packages: pip install "kp-middleware[{extra}]"')
        self.extra = extra


def describe_os_error(error: BaseException) -> str:
    """Return the text of an error, of the system's as ``permission denied: PATH``."""
    if not (isinstance(error, OSError) and error.strerror):
        return str(error)
    return error.strerror.lower() + ("" if error.filename is None else f": {error.filename}")


class SettingsFileError(KnowledgePulseError):
    """The settings file cannot be read.

    Attributes:
        path: The path of the file.
        problem: The problem and its remedy.
    """

    def __init__(self, path: Path, problem: str) -> None:
        self.problem = f"{problem}; correct the file or remove it"
        super().__init__(f"{path}: {self.problem}")
        self.path = path


class DatabaseError(KnowledgePulseError):
    """The database file cannot be opened, read or written."""

    def __init__(self, path: str | Path, problem: str, remedy: str) -> None:
        super().__init__(f"{path}: {problem}; {remedy}")
        self.path = Path(path)
        self.remedy = remedy


class SharedLogError(DatabaseError):
    """The shared log in PostgreSQL is unavailable; the message has no password.

    Attributes:
        sqlstate: The server's error code, or None.
    """

    sqlstate: str | None = None


class TraceNotFoundError(KnowledgePulseError):
    """An id matches no stored trace, or more than one."""


class RedactionError(KnowledgePulseError):
    """A document may not be clean, so it must not leave this machine.

    Attributes:
        reason: A code: ``redactor_error``, ``too_deep``, ``too_large``, ``residual_secret``, …
        where: The path of the value, without the value.
    """

    def __init__(self, reason: str, where: str = "") -> None:
        super().__init__(f"{reason} at {where}" if where else reason)
        self.reason = reason
        self.where = where


class EmbedderError(KnowledgePulseError):
    """A text could not be embedded."""


class EmbedderUnavailableError(EmbedderError):
    """This process has no model, and a retry will not help."""


class EmbedderNotReadyError(EmbedderError):
    """The model is being downloaded; retry later."""


_ASK: Final = "it is retried automatically; if it persists, ask the registry's operator"
_OR_IT: Final = "or retry this one with kp-middleware outbox retry --failed"
_OR_NO_PROXY: Final = "correct or unset {first}, or add the registry's host to NO_PROXY"


class ProblemKind(Enum):
    """A kind of problem with the registry: its description and remedy.

    It is stored by its name, in lower case, with its ``{detail}``.
    """

    REFUSED = ("connection refused", "start the registry, or correct KP_REGISTRY_URL")
    UNKNOWN_HOST = (
        "there is no host named {detail}",
        "correct KP_REGISTRY_URL, or check this machine's network",
    )
    UNREACHABLE = (
        "the host is unreachable ({detail})",
        "check this machine's network and firewall",
    )
    NO_CONNECTION = (
        "no connection within {detail} s",
        "check KP_REGISTRY_URL, and whether a firewall is in between",
    )
    SILENCE = ("connected, but no response within {detail} s", _ASK)
    SLOW = ("the response was not complete within {detail} s", _ASK)
    BROKEN = ("the connection was lost ({detail})", _ASK)
    UNTRUSTED = (
        "its certificate is not trusted ({detail})",
        "set SSL_CERT_FILE to the certificate of the authority that signed it",
    )
    BAD_CERTIFICATE = (
        "its certificate is not valid ({detail})",
        "correct KP_REGISTRY_URL or this machine's clock, or ask the operator for a new one",
    )
    CERTIFICATE_FILE = (
        "{first} is {rest}, which has no readable certificates",
        "correct or unset {first}",
    )
    NO_TLS = (
        "the server does not speak TLS ({detail})",
        "correct the host or the port in KP_REGISTRY_URL",
    )
    PROXY = ("the proxy in {first} cannot be reached ({rest})", _OR_NO_PROXY)
    PROXY_REFUSES = (
        "the proxy in {first} refuses the connection (it answered {rest})",
        _OR_NO_PROXY,
    )
    PROXY_UNUSABLE = ("the proxy in {first} cannot be used ({rest})", "correct or unset {first}")
    WRONG_PATH = (
        "a server answers, but there is no registry at this address (it answered {detail})",
        "correct KP_REGISTRY_URL: leave out /v1/knowledge",
    )
    REDIRECT = (
        "the server redirects ({detail})",
        "set KP_REGISTRY_URL to the registry's own address: API keys are never sent to a redirect",
    )
    NO_REGISTRY = (
        "the response is not from a registry ({detail})",
        "correct KP_REGISTRY_URL, or check for a login page or proxy in between",
    )
    GATEWAY = ("a gateway cannot reach the registry (it answered {detail})", _ASK)
    TROUBLE = ("the registry failed (it answered {detail})", _ASK)
    BARRED = (
        "a firewall or login page blocks the registry (it answered {detail}, with a page)",
        "check for a firewall or login in between, or ask the registry's operator",
    )
    LIMIT = (
        "the rate limit is exceeded (429)",
        "sending resumes automatically; do not use this key elsewhere",
    )
    UNHEARD = (
        "two programs exited while waiting for an answer, and another 429 may cost the key",
        "sending resumes automatically; kp.close(timeout_s=…) waits longer for an answer",
    )
    DEAD_KEY = (
        "the registry refused the API key (unknown or revoked)",
        f"set KP_API_KEY to another key (wait an hour after three 429s), {_OR_IT}",
    )
    READ_ONLY_KEY = (
        "the API key is read-only",
        "register a key with the write scope, and set KP_API_KEY to it",
    )
    FORBIDDEN = (
        "the registry accepts nothing from this agent ({detail})",
        f"set KP_API_KEY to a key of an agent in good standing, {_OR_IT}",
    )
    OTHER = ("the registry failed", "if it persists, run kp-middleware doctor")

    def __str__(self) -> str:
        return self.name.lower()


class Problem(NamedTuple):
    """A problem that can be stored in a column; the kind determines what ``detail`` is."""

    kind: ProblemKind
    detail: str = ""

    @classmethod
    def parse(cls, stored: str) -> Self:
        """Parse a stored problem; a kind unknown to this version becomes ``OTHER``."""
        kind, _, detail = stored.partition(" ")
        if kind.upper() in ProblemKind.__members__:
            return cls(ProblemKind[kind.upper()], detail)
        return cls(ProblemKind.OTHER)

    @property
    def stored(self) -> str:
        """The stored form: one short line."""
        letters = "".join(letter if letter.isprintable() else " " for letter in self.detail)
        return f"{self.kind} {' '.join(letters.split())}"[:200].rstrip()

    @property
    def description(self) -> str:
        """The problem in words."""
        return self._fill(self.kind.value[0])

    @property
    def remedy(self) -> str:
        """The remedy in words."""
        return self._fill(self.kind.value[1])

    def __str__(self) -> str:
        return f"{self.description}; {self.remedy}"

    def _fill(self, template: str) -> str:
        first, _, rest = self.detail.partition(" ")
        return template.format(detail=self.detail, first=first, rest=rest)


class RegistryError(KnowledgePulseError):
    """The registry did not accept a trace.

    Attributes:
        status: The HTTP status, or None without an answer.
        problem: The problem in its stored form, as later reports show it.
    """

    status: int | None = None
    problem: Problem = Problem(ProblemKind.OTHER)

    def __init__(
        self, message: str, *, status: int | None = None, problem: Problem | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.problem = problem or self.problem

    @property
    def is_refusal(self) -> bool:
        """True after a 4xx answer, which the registry replays for the same key."""
        return self.status is not None and 400 <= self.status < 500

    @property
    def description(self) -> str:
        """The problem, without its remedy."""
        return str(self) if self.problem.kind is ProblemKind.OTHER else self.problem.description


class RegistryUnavailableError(RegistryError):
    """The registry could not be reached, failed, or limits the rate.

    Attributes:
        retry_after_s: The seconds that the registry asked to wait, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after_s: float | None = None,
        problem: Problem | None = None,
    ) -> None:
        super().__init__(message, status=status, problem=problem)
        self.retry_after_s = retry_after_s


class RegistryRejectedError(RegistryError):
    """The registry will never accept this document.

    Attributes:
        reason: The registry's message, with the path of each issue.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"the registry answered {status}: {reason}", status=status)
        self.reason = reason


class RegistryForbiddenError(RegistryError):
    """The key is dead or read-only: stop sending until the user fixes it.

    Attributes:
        remedy: What the user can do.
    """

    def __init__(
        self, status: int, message: str, remedy: str, *, problem: Problem | None = None
    ) -> None:
        super().__init__(f"{message}; {remedy}", status=status, problem=problem)
        self.remedy = remedy
