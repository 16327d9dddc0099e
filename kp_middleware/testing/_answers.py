"""What a registry says, and what stands before it."""

from http import HTTPStatus
from typing import Final

from kp_middleware.testing._wire import Answer

TROUBLE: Final = Answer(500, b"Internal Server Error", {"Content-Type": "text/plain"})
TOO_LARGE: Final = Answer(413)
NO_SCOPE: Final = Answer.of(403, {"error": "Write scope required"})
NO_KEY: Final = Answer.of(401, {"error": "Authentication required"})
NOT_FOUND: Final = Answer.of(404, {"error": "Knowledge unit not found"})
NOT_YOURS: Final = Answer.of(403, {"error": "Forbidden: can only delete your own contributions"})
NOT_YOUR_DATA: Final = Answer.of(403, {"error": "Forbidden: can only export your own data"})
NO_REPUTATION: Final = Answer.of(403, {"error": "Minimum KP-REP score of 0.1 required"})


def canned(status: int) -> Answer:
    """The registry's own words for a status; from 502 on, a page of the proxy before it."""
    match status:
        case 400:
            return invalid({"path": "steps.0.type", "message": "Invalid enum value"})
        case 403:
            return NO_SCOPE
        case 413:
            return TOO_LARGE
        case 500:
            return TROUBLE
        case _ if status > 500:
            return page(status)
        case _:
            return Answer.of(status, {"error": HTTPStatus(status).phrase})


def invalid(*issues: dict[str, str]) -> Answer:
    """A 400 with what is wrong, and where."""
    return Answer.of(400, {"error": "Invalid KnowledgeUnit", "issues": issues})


def page(status: int) -> Answer:
    """What a proxy shows to people."""
    heading = f"<html><h1>{status} {HTTPStatus(status).phrase}</h1></html>"
    return Answer(status, heading.encode(), {"Content-Type": "text/html"})
