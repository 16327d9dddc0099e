"""Interpretation of HTTP responses, from the registry or from any proxy in between."""

import math
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

from pydantic import AliasPath, BaseModel, Field, ValidationError

from kp_middleware.errors import (
    Problem,
    ProblemKind,
    RegistryError,
    RegistryForbiddenError,
    RegistryRejectedError,
    RegistryUnavailableError,
)
from kp_middleware.outbox_items import Receipt
from kp_middleware.rate_limit import Allowance

M = TypeVar("M", bound=BaseModel)

_DEFAULT_WAIT_S: Final = 60.0
_LONGEST_WAIT_S: Final = 86_400.0
_LONGEST_REASON: Final = 2000
_LONGEST_PLACE: Final = 120
_KINDS: Final = {
    **dict.fromkeys((404, 405, 410), ProblemKind.WRONG_PATH),
    **dict.fromkeys((502, 503, 504), ProblemKind.GATEWAY),
    **dict.fromkeys((401, 403, 407, 451), ProblemKind.BARRED),
}
_LIMITS: Final = ("Limit", "Remaining")
_MOST_DIGITS: Final = 9


class Answer(NamedTuple):
    """One HTTP response; header names are case-insensitive."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _Unit(BaseModel):
    id: str


class _Stored(BaseModel):
    data: _Unit


class _Issue(BaseModel):
    path: str
    message: str


class _Complaint(BaseModel):
    error: str
    issues: tuple[_Issue, ...] = ()


class _Found(BaseModel):
    data: list[object]


class _Exported(BaseModel):
    units: tuple[_Unit, ...] = Field(validation_alias=AliasPath("data", "knowledge_units"))


def receipt_of(answer: Answer) -> Receipt:
    """Return the receipt for a posted document, or raise the RegistryError that says what to do."""
    if answer.status != 201:
        raise _refusal(answer)
    stored = _read(_Stored, answer)
    return Receipt(stored.data.id, answer.status, allowance_of(answer.headers))


def check_search(answer: Answer) -> None:
    """Check that a registry gave this answer to a search; a 429 with its rate limit also counts."""
    if answer.status == 429 and "X-RateLimit-Limit" in answer.headers:
        return
    if answer.status != 200:
        raise _nonsense(answer)
    _read(_Found, answer)


def check_complaint(answer: Answer, status: int) -> None:
    """Check that a registry complained with this status, as it does of a request by a valid key."""
    if answer.status != status or _complaint(answer) is None:
        raise _refusal(answer)


def exported_ids(answer: Answer) -> frozenset[str]:
    """Return the ids of all units in an agent's export."""
    if answer.status != 200:
        raise _refusal(answer)
    return frozenset(unit.id for unit in _read(_Exported, answer).units)


def _read(kind: type[M], answer: Answer) -> M:
    try:
        return kind.model_validate_json(answer.body)
    except ValidationError as exc:
        raise _nonsense(answer) from exc


def allowance_of(headers: Mapping[str, str]) -> Allowance:
    """Parse ``X-RateLimit-Limit`` and ``-Remaining``; a limit of 0 becomes None.

    >>> allowance_of({"X-RateLimit-Limit": "30", "X-RateLimit-Remaining": "soon"})
    Allowance(per_minute=30, remaining=None)
    """
    limit, remaining = (_count(headers.get(f"X-RateLimit-{name}", "")) for name in _LIMITS)
    return Allowance(limit or None, remaining)


def _count(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None


def wait_asked_s(headers: Mapping[str, str]) -> float:
    """Return the seconds that ``Retry-After`` asks for, at most a day; 60 if it is invalid.

    A date is relative to the registry's own ``Date``: our clock may be wrong.
    """
    text = headers.get("Retry-After", "")
    try:
        wait_s = float(text)
    except ValueError:
        wait_s = _instant(text) - _instant(headers.get("Date", ""))
    return min(wait_s, _LONGEST_WAIT_S) if 0 <= wait_s < math.inf else _DEFAULT_WAIT_S


def _instant(text: str) -> float:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return math.nan


def _refusal(answer: Answer) -> RegistryError:
    complaint = _complaint(answer)
    match answer.status:
        case 413:
            return RegistryRejectedError(413, complaint or "the document is too large")
        case 429 if answer.headers.get("X-RateLimit-Limit", "").strip() == "0":
            return _forbidden(429, Problem(ProblemKind.DEAD_KEY))
        case 429:
            return RegistryUnavailableError(
                "the registry asks for patience (429)",
                status=429,
                retry_after_s=wait_asked_s(answer.headers),
                problem=Problem(ProblemKind.LIMIT),
            )
        case 400 if complaint is not None:  # else the page of a proxy or firewall
            return RegistryRejectedError(400, complaint)
        case 401 if complaint is not None:
            return _forbidden(401, Problem(ProblemKind.DEAD_KEY))
        case 403 if complaint is not None:
            if "scope" in complaint.casefold():
                return _forbidden(403, Problem(ProblemKind.READ_ONLY_KEY))
            return _forbidden(403, Problem(ProblemKind.FORBIDDEN, complaint))
        case _:
            return _nonsense(answer)


def _forbidden(status: int, problem: Problem) -> RegistryForbiddenError:
    return RegistryForbiddenError(status, problem.what, problem.remedy, problem=problem)


def _nonsense(answer: Answer) -> RegistryUnavailableError:
    status, asked = answer.status, "Retry-After" in answer.headers
    other = ProblemKind.TROUBLE if status >= 500 else ProblemKind.NO_REGISTRY
    problem = Problem(_KINDS.get(status, other), f"{status}")
    if 300 <= status < 400:
        problem = Problem(ProblemKind.REDIRECT, f"{status}{_place(answer.headers)}")
    return RegistryUnavailableError(
        str(problem),
        status=status,
        retry_after_s=wait_asked_s(answer.headers) if asked else None,
        problem=problem,
    )


def _place(headers: Mapping[str, str]) -> str:
    """Return a redirect's target without path and query, which may contain secrets."""
    try:
        scheme, host, *_ = urlsplit(headers.get("Location", ""))
    except ValueError:
        return ""
    where = f"{scheme}://{host.rpartition('@')[2]}" if host else ""
    return f", to {_in_one_line(where)[:_LONGEST_PLACE]}" if where else ""


def _complaint(answer: Answer) -> str | None:
    """Return the registry's error and issues in one line; None if the registry did not answer."""
    try:
        complaint = _Complaint.model_validate_json(answer.body)
    except ValidationError:
        return None
    issues = "; ".join(f"{issue.path}: {issue.message}" for issue in complaint.issues)
    words = f"{complaint.error}: {issues}" if issues else complaint.error
    return _in_one_line(words)[:_LONGEST_REASON]


def _in_one_line(words: str) -> str:
    printable = "".join(letter if letter.isprintable() else " " for letter in words)
    return " ".join(printable.split())
