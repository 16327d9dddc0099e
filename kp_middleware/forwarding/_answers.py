"""What the registry's answers mean. What stands between us and it may answer anything."""

import math
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple

from pydantic import BaseModel, ValidationError

from kp_middleware.errors import (
    RegistryError,
    RegistryForbiddenError,
    RegistryRejectedError,
    RegistryUnavailableError,
)
from kp_middleware.parcels import Receipt

_DEFAULT_WAIT_S: Final = 60.0
_LONGEST_WAIT_S: Final = 86_400.0
_LONGEST_REASON: Final = 2000
_NEW_KEY: Final = "wait an hour, then set KP_API_KEY to a new key"
_KEY_THAT_MAY_WRITE: Final = (
    "set KP_API_KEY to a key with scope write, of an agent in good standing"
)


class Answer(NamedTuple):
    """One HTTP answer; header names are found in any case."""

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


def receipt_of(answer: Answer) -> Receipt:
    """The receipt for what was posted.

    Raises:
        RegistryError: Of the class that says what to do.
    """
    if answer.status != 201:
        raise _refusal(answer)
    try:
        stored = _Stored.model_validate_json(answer.body)
    except ValidationError as exc:
        raise _nonsense(answer) from exc
    return Receipt(remote_id=stored.data.id, status=answer.status)


def check_search(answer: Answer) -> None:
    """Return if this is how a registry answers a search, even if only to ask for patience.

    Raises:
        RegistryUnavailableError: If it is not.
    """
    if answer.status == 429 and "X-RateLimit-Limit" in answer.headers:
        return
    if answer.status != 200:
        raise _nonsense(answer)
    try:
        _Found.model_validate_json(answer.body)
    except ValidationError as exc:
        raise _nonsense(answer) from exc


def wait_asked_s(headers: Mapping[str, str]) -> float:
    """What ``Retry-After`` asks for, in seconds, at most a day; a minute where it makes no sense.

    A date counts from the registry's own ``Date``: our clock may be wrong.

    >>> wait_asked_s({"Retry-After": "2"}), wait_asked_s({"Retry-After": "soon"})
    (2.0, 60.0)
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
    match answer.status:
        case 413:
            return RegistryRejectedError(413, _complaint(answer) or "the document is too large")
        case 429:
            return _limited(answer)
        case 400 | 401 | 403:
            return _complained(answer)
        case _:
            return _nonsense(answer)


def _complained(answer: Answer) -> RegistryError:
    complaint = _complaint(answer)
    if complaint is None:
        return _nonsense(answer)  # a proxy's or a firewall's page, not the registry's words
    match answer.status:
        case 400:
            return RegistryRejectedError(400, complaint)
        case 401:
            return RegistryForbiddenError(401, complaint, _NEW_KEY)
        case status:
            return RegistryForbiddenError(status, complaint, _KEY_THAT_MAY_WRITE)


def _limited(answer: Answer) -> RegistryError:
    if answer.headers.get("X-RateLimit-Limit", "").strip() == "0":
        return RegistryForbiddenError(429, "the API key is unknown or revoked", _NEW_KEY)
    return RegistryUnavailableError(
        "the registry answered 429: over the rate limit",
        status=429,
        retry_after_s=wait_asked_s(answer.headers),
    )


def _nonsense(answer: Answer) -> RegistryUnavailableError:
    asked = "Retry-After" in answer.headers
    return RegistryUnavailableError(
        f"the registry answered {answer.status}, with nothing that makes sense of it",
        status=answer.status,
        retry_after_s=wait_asked_s(answer.headers) if asked else None,
    )


def _complaint(answer: Answer) -> str | None:
    """The registry's words in one line with the path of each issue, or None if they are not its."""
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
