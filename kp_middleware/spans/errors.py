"""Parse errors that spans report as text."""

import re
from ast import literal_eval
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from kp_middleware.spans.messages import Json, as_dict, as_name, as_text

_REPR: Final = re.compile(r"([^\W\d]\w*)(?:\((.*)\)|: (.*))", re.DOTALL)


class SpanError(NamedTuple):
    """An error as text: its type, its message, and the message of its root cause."""

    type: str
    message: str = ""
    cause: str = ""


def span_error(
    attributes: Mapping[str, Any], raised: Sequence[Mapping[str, Any]], description: object
) -> SpanError:
    """Return the error of a span whose status is an error; ``raised`` are its exceptions.

    >>> span_error({}, (), "Error in run: {'error': 'it is gone'}")
    SpanError(type='Error in run', message="{'error': 'it is gone'}", cause='it is gone')
    """
    if raised:
        kind = as_text(raised[-1].get("exception.type")).rpartition(".")[2]
        message = as_text(raised[-1].get("exception.message"))
        return SpanError(kind or "Error", message, message)
    message = as_text(description)
    kind = as_text(attributes.get("error.type")).rpartition(".")[2]
    literal = _parse_literal(message)
    if "message" in literal:
        return parse_error(literal)
    head, colon, rest = message.partition(": ")
    if colon and len(head) <= 80 and head.isprintable() and not head.startswith(("{", "'")):
        return SpanError(head, rest, as_text(_parse_literal(rest).get("error")) or rest)
    return SpanError(kind or "Error", *(() if message == kind else (message, message)))


def parse_error(error: Mapping[str, object]) -> SpanError:
    """Parse an error of the form ``{"message": …, "data": {"error": …}}``."""
    message, data = as_text(error.get("message")), error.get("data")
    details = as_text(str(data)) if data else ""
    return SpanError(message or "Error", details, as_text(as_dict(data).get("error")) or details)


def parse_repr(error: object) -> SpanError | None:
    """Parse an error of the form ``ValueError('…')Traceback …``; return None for an empty one."""
    if not (text := as_text(as_name(error))):
        return None
    head = text.partition("Traceback (most recent call last)")[0].strip() or "Error"
    match = _REPR.fullmatch(head)
    if match is None:
        return SpanError("Error", head, head)
    message = (match[2] or "").strip("'\"") or match[3] or ""
    return SpanError(match[1], message, message)


def _parse_literal(text: str) -> Json:
    """Parse the repr of a Python dictionary; return an empty one for any other text."""
    if not text.startswith("{") or len(text) > 4096:  # characters
        return {}
    try:
        return as_dict(literal_eval(text))
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return {}
