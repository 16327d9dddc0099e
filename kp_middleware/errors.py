"""Errors that callers can act on; wrong arguments stay ``ValueError`` and ``TypeError``.

KnowledgePulseError
├── MissingExtraError            install the extra it names
├── SettingsFileError            correct the file it names
├── DatabaseError                the file cannot be used: its path and remedy are in the message
│   └── SharedLogError           the shared log cannot be used now: runs wait in the file
├── TraceNotFoundError           no stored trace has this id, or several begin with it
├── RedactionError               this must not leave: its path and reason are in the message
├── EmbedderError
│   ├── EmbedderUnavailableError this process has no model: novelty is 0.5
│   └── EmbedderNotReadyError    the model is still on its way: ask again later
└── RegistryError
    ├── RegistryUnavailableError worth trying again later
    ├── RegistryRejectedError    this document will never be accepted
    └── RegistryForbiddenError   nothing will be accepted until the user acts
"""

from pathlib import Path

from kp_middleware.problems import Problem, ProblemKind

__all__ = [
    "DatabaseError",
    "EmbedderError",
    "EmbedderNotReadyError",
    "EmbedderUnavailableError",
    "KnowledgePulseError",
    "MissingExtraError",
    "RedactionError",
    "RegistryError",
    "RegistryForbiddenError",
    "RegistryRejectedError",
    "RegistryUnavailableError",
    "SettingsFileError",
    "SharedLogError",
    "TraceNotFoundError",
]


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


class SettingsFileError(KnowledgePulseError):
    """The file of settings cannot be read.

    Attributes:
        path: Of the file.
        problem: What is wrong with it, and what to do.
    """

    def __init__(self, path: Path, problem: str) -> None:
        self.problem = f"{problem}; correct the file or remove it"
        super().__init__(f"{path}: {self.problem}")
        self.path = path


class DatabaseError(KnowledgePulseError):
    """The file of traces cannot be opened, read or written."""

    def __init__(self, path: str | Path, problem: str, remedy: str) -> None:
        super().__init__(f"{path}: {problem}; {remedy}")
        self.path = Path(path)
        self.remedy = remedy


class SharedLogError(DatabaseError):
    """The shared log in PostgreSQL cannot be used now; the message has no password.

    Attributes:
        sqlstate: The server's code; None where it said none.
    """

    sqlstate: str | None = None


class TraceNotFoundError(KnowledgePulseError):
    """No stored trace is meant by this id, or more than one is."""


class RedactionError(KnowledgePulseError):
    """It is not certain that a document is clean, so it must not leave this machine.

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
    """There is no model in this process, and asking again will not help."""


class EmbedderNotReadyError(EmbedderError):
    """The model is being downloaded; ask again later."""


class RegistryError(KnowledgePulseError):
    """The registry did not take a trace.

    Attributes:
        status: The HTTP status, or None where no answer came.
        problem: What it was, as it is kept and told later.
    """

    status: int | None = None
    problem: Problem = Problem(ProblemKind.OTHER)

    def __init__(
        self, words: str, *, status: int | None = None, problem: Problem | None = None
    ) -> None:
        super().__init__(words)
        self.status = status
        self.problem = problem or self.problem

    @property
    def is_refusal(self) -> bool:
        """True after a 4xx answer, which the registry would give again to the same key."""
        return self.status is not None and 400 <= self.status < 500

    @property
    def what(self) -> str:
        """The problem, without its remedy."""
        return str(self) if self.problem.kind is ProblemKind.OTHER else self.problem.what


class RegistryUnavailableError(RegistryError):
    """The registry could not be reached, is in trouble, or asks for patience.

    Attributes:
        retry_after_s: How long the registry asked us to wait, in seconds, or None.
    """

    def __init__(
        self,
        words: str,
        *,
        status: int | None = None,
        retry_after_s: float | None = None,
        problem: Problem | None = None,
    ) -> None:
        super().__init__(words, status=status, problem=problem)
        self.retry_after_s = retry_after_s


class RegistryRejectedError(RegistryError):
    """The registry will never accept this document.

    Attributes:
        reason: The registry's words, with the path of each issue.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"the registry answered {status}: {reason}", status=status)
        self.reason = reason


class RegistryForbiddenError(RegistryError):
    """The key is dead, or may not write: stop sending until the user acts.

    Attributes:
        remedy: What the user can do about it.
    """

    def __init__(
        self, status: int, words: str, remedy: str, *, problem: Problem | None = None
    ) -> None:
        super().__init__(f"{words}; {remedy}", status=status, problem=problem)
        self.remedy = remedy
