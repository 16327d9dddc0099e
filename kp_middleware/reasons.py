"""Sentences for the reasons that are stored as codes."""

import json
from collections.abc import Mapping
from typing import Any

from kp_middleware.core.gates import ReasonCode, exact, format_share

__all__ = ["outbox_reason_text", "reason_text"]

DELIVERY = {
    "private": "not queued: its visibility is private",
    "no_key": "not queued: there is no API key",
    "wrong_setting": "not queued: a setting is invalid, see kp-middleware doctor",
    "unconfirmed": "awaiting confirmation that it succeeded: kp-middleware review",
    "not_done": "not queued: its task is known to have failed",
    "too_late": "not queued: it was confirmed too late",
    "sent": "it was already sent",
    "sending": "it was already being sent",
}
"""Why a run is not queued, by the argument ``delivery``."""

FAILURES = {
    "not_redacted": "its texts could not be redacted: {error}",
    "not_scored": "could not be scored: {error}",
    "damaged": "its document was lost in a damaged file",
    "not_resumed": "the paused run cannot be read: {error}",
    "not_continued": "it was not resumed",
    "asks": "passed locally, awaiting the shared log",
}
"""Why a run has no score."""

OUTBOX = {
    "by hand": "by you",
    "may_have_been_sent": "it may have been sent already: its state was lost in a damaged file; to"
    " send it, perhaps a second time: kp-middleware outbox retry ID",
}
"""Why an outbox item is cancelled or blocked; other reasons are stored in words."""


def outbox_reason_text(reason: str | None) -> str | None:
    """Return the stored reason of an outbox item in words."""
    return OUTBOX.get(reason or "", reason)


def reason_text(code: str | None, args: Mapping[str, Any] | str | None) -> str | None:
    """Return a stored reason in words, given its code and its arguments or their JSON."""
    if code is None:
        return None
    read: Mapping[str, Any] = json.loads(args) if isinstance(args, str) else args or {}
    delivery = DELIVERY.get(read.get("delivery", ""))
    try:
        words = _reason(code, read)
    except (KeyError, TypeError, ValueError):  # from a newer version, or a custom gate
        words = code.replace("_", " ")
    return "; ".join(filter(None, (words, delivery)))


def _reason(code: str, args: Mapping[str, Any]) -> str:
    if "words" in args:
        return str(args["words"])
    if code in FAILURES:
        return FAILURES[code].format(error=args.get("error", "unknown"))
    match ReasonCode(code):
        case ReasonCode.ABOVE_THRESHOLD | ReasonCode.BELOW_THRESHOLD | ReasonCode.WARMING_UP:
            return _against_threshold(args)
        case ReasonCode.IN_SHARE | ReasonCode.BELOW_SHARE | ReasonCode.TIED_WITH_SHARE:
            return _against_share(code, args)
        case ReasonCode.DAILY_LIMIT:
            base = _against_share("in_share", args) if "share" in args else _against_threshold(args)
            return f"{base}, but max_per_day = {args['limit']} were forwarded in the last 24 hours"
        case ReasonCode.GATE_FAILED:
            return f"the gate failed: {args.get('error', 'unknown')}"
        case ReasonCode.CUSTOM:
            return ""


def _against_threshold(args: Mapping[str, Any]) -> str:
    if "score" not in args:
        return "another gate forwarded it"
    score, threshold = args["score"], args["threshold"]
    reaches = "is at least" if score >= threshold else "is below"
    text = f"score {_format_against(score, threshold)} {reaches} {exact(threshold)}"
    if "needed" not in args:
        return text
    return f"{text}, used until the domain has {args['needed']} runs (it had {args['runs']})"


def _against_share(code: str, args: Mapping[str, Any]) -> str:
    runs, share, level = args["runs"], args["share"], args["level"]
    key, bar = _format_against(args["key"], args["bar"]), _format_against(args["bar"], args["key"])
    best = f"the best {level * 100:.3g}% of the domain's last {runs} runs"
    counts = (
        f"{args['gone']} of the {runs} were chosen; {format_share(share)} means {share * runs:.3g}"
    )
    if code == ReasonCode.TIED_WITH_SHARE:
        text = f"rank {key} ties with the last of {best}, and earlier runs come first"
    elif code == ReasonCode.BELOW_SHARE:
        text = f"rank {key} is below {bar}, where {best} begin"
    else:
        text = f"rank {key} is among {best}, which begin at {bar}"
    return f"{text}: {counts}"


def _format_against(number: float, other: float) -> str:
    """Format a number with three digits, or as many as show if it is above or below another.

    >>> _format_against(0.61, 0.7), _format_against(0.60999, 0.61), _format_against(0.61, 0.60999)
    ('0.610', '0.60999', '0.610')
    """
    for digits in range(3, 16):
        text = f"{number:.{digits}f}"
        if (float(text) >= other) == (number >= other):
            return text
    return repr(number)
