"""Interpretation of HTTP responses, from the registry or from any proxy in between."""

import math
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from pydantic_core import from_json

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

_KINDS: Final = {
    **dict.fromkeys((404, 405, 410), ProblemKind.WRONG_PATH),
    **dict.fromkeys((502, 503, 504), ProblemKind.GATEWAY),
    **dict.fromkeys((401, 403, 407, 451), ProblemKind.BARRED),
}


class RegistryResponse(NamedTuple):
    """One HTTP response; header names are case-insensitive."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        try:
            return from_json(self.body)
        except ValueError:
            return None


def receipt_of(answer: RegistryResponse) -> Receipt:
    """Return the receipt for a posted document, or raise the RegistryError that says what to do."""
    match answer.status, answer.json:
        case 201, {"data": {"id": str(remote_id)}}:
            return Receipt(remote_id, answer.status, allowance_of(answer.headers))
        case 201, _:
            raise _unexpected_answer(answer)
    raise _refusal(answer)


def check_search(answer: RegistryResponse) -> None:
    match answer.status, answer.json:
        case 200, {"data": [*_]}:
            return
        case 429, _ if "X-RateLimit-Limit" in answer.headers:
            return
    raise _unexpected_answer(answer)


def expect_error(answer: RegistryResponse, status: int) -> None:
    """Check that a registry answered with this error, as it does to a valid key."""
    if answer.status != status or _error_message(answer) is None:
        raise _refusal(answer)


def exported_ids(answer: RegistryResponse) -> frozenset[str]:
    match answer.status, answer.json:
        case 200, {"data": {"knowledge_units": [*units]}}:
            ids = [unit["id"] for unit in units if isinstance(unit, dict) and "id" in unit]
            if len(ids) == len(units):
                return frozenset(map(str, ids))
    raise _unexpected_answer(answer) if answer.status == 200 else _refusal(answer)


def allowance_of(headers: Mapping[str, str]) -> Allowance:
    """Parse ``X-RateLimit-Limit`` and ``-Remaining``; a limit of 0 becomes None."""
    counts = [headers.get(f"X-RateLimit-{name}", "").strip() for name in ("Limit", "Remaining")]
    limit, remaining = (
        int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else None
        for text in counts
    )
    return Allowance(limit or None, remaining)


def wait_asked_s(headers: Mapping[str, str]) -> float:
    """Return the seconds that ``Retry-After`` asks for, at most a day; 60 if it is invalid."""
    text = headers.get("Retry-After", "")
    try:
        wait_s = float(text)
    except ValueError:
        answered_at = _instant(headers.get("Date", ""))  # our clock may be wrong
        wait_s = _instant(text) - (time.time() if math.isnan(answered_at) else answered_at)
    return min(wait_s, 86_400.0) if 0 <= wait_s < math.inf else 60.0  # a day, a minute


def _instant(text: str) -> float:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return math.nan


def _refusal(answer: RegistryResponse) -> RegistryError:
    status, message = answer.status, _error_message(answer)
    match status:
        case 413:
            return RegistryRejectedError(413, message or "the document is too large")
        case 429 if answer.headers.get("X-RateLimit-Limit", "").strip() == "0":
            problem = Problem(ProblemKind.DEAD_KEY)
        case 429:
            return RegistryUnavailableError(
                "the registry's rate limit is exceeded (429)",
                status=429,
                retry_after_s=wait_asked_s(answer.headers),
                problem=Problem(ProblemKind.LIMIT),
            )
        case 400 | 409 | 422 if message is not None:  # else the page of a proxy or firewall
            return RegistryRejectedError(status, message)
        case 401 if message is not None:
            problem = Problem(ProblemKind.DEAD_KEY)
        case 403 if message is not None and "scope" in message.casefold():
            problem = Problem(ProblemKind.READ_ONLY_KEY)
        case 403 if message is not None:
            problem = Problem(ProblemKind.FORBIDDEN, message)
        case _:
            return _unexpected_answer(answer)
    return RegistryForbiddenError(status, problem.description, problem.remedy, problem=problem)


def _unexpected_answer(answer: RegistryResponse) -> RegistryUnavailableError:
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
    return f", to {_in_one_line(where)[:120]}" if where else ""


def _error_message(answer: RegistryResponse) -> str | None:
    """Return the registry's error and issues in one line; None if the registry did not answer."""
    match answer.json:
        case {"error": str(words), "issues": [*issues]}:
            issues = [issue for issue in issues if isinstance(issue, dict)]
            details = "; ".join(f"{issue.get('path')}: {issue.get('message')}" for issue in issues)
            words = f"{words}: {details}" if details else words
        case {"error": str(words)}:
            pass
        case _:
            return None
    return _in_one_line(words)[:2000]


def _in_one_line(words: str) -> str:
    printable = "".join(letter if letter.isprintable() else " " for letter in words)
    return " ".join(printable.split())
