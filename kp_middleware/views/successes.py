"""Tell what is known of success: what was estimated of a run, and how often runs succeeded."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kp_middleware.storage import RunEstimate, SuccessRecord, Unjudged
from kp_middleware.views.wording import counted

_SILENCE: Final = 50  # forwarded runs of which nobody has said anything
_REVIEW: Final = "kp-middleware review"
_FEATURES: Final[Mapping[str, str]] = {
    "steps": "steps",
    "failed_calls": "failed calls",
    "failed_last_steps": "failures at the end",
    "repeated_calls": "repeated calls",
    "transfer": "transfers",
    "words_per_thought": "words in a thought",
    "last_words": "words at the end",
    "last_inability": "words of inability at the end",
    "last_positive": "words of success at the end",
    "negative_words": "negative words",
    "tools": "tools",
    "thoughts": "thoughts",
}


def p_in_words(p: float, reasons: Sequence[tuple[str, float, float]]) -> str:
    """Word a probability of success with its reasons.

    >>> p_in_words(0.71, [("steps", -1.2, 0.8), ("likeness", 0.0, -0.5)])
    '0.71: fewer steps than usual (for it), like runs that failed (against it)'
    """
    told = ", ".join(_reason(*reason) for reason in reasons)
    return f"{p:.2f}{f': {told}' if told else ''}"


def estimate_in_words(estimate: RunEstimate) -> str:
    """Word what was estimated of a run, with how well estimates of its kind have done."""
    told = f"P(success) was estimated as {p_in_words(estimate.p, estimate.reasons)}."
    if not estimate.known:
        return told
    right = f"right on {estimate.right:,} of {estimate.known:,}"
    return f"{told} So far {right}; guessing the base rate: {estimate.base_right:,}."


def unjudged_in_words(found: Unjudged) -> str:
    """Say what a review would be about, and how to begin."""
    if not found.unjudged:
        return "nothing to review"
    if found.unjudged == found.forwarded:
        told = f"{counted(found.forwarded, 'run')} passed the gate and"
    else:
        told = f"{found.unjudged:,} of the last {found.forwarded:,} runs that passed the gate"
    return f"{told} {'is' if found.unjudged == 1 else 'are'} not reviewed yet: {_REVIEW}"


def successes_in_words(record: SuccessRecord, unjudged: Unjudged) -> tuple[str, ...]:
    """Say how often what was forwarded succeeded, beside all runs, and warn where that is bad."""
    return tuple(filter(None, (record_in_words(record), success_warning(record, unjudged))))


def successes_as_json(record: SuccessRecord, unjudged: Unjudged) -> dict[str, Any]:
    """Return the record as JSON shows it."""
    warning = success_warning(record, unjudged)
    counts = record._asdict()
    counts.pop("some_stay")
    return {**counts, "in_words": record_in_words(record), "warning": warning}


def success_warning(record: SuccessRecord, unjudged: Unjudged) -> str | None:
    """Warn where the gate chooses worse than chance, or where nobody can tell; else None."""
    if record.is_worse_than_chance:
        return (
            "the gate chooses worse than chance: less of what it forwarded succeeded than of all."
            ' A score rewards effort; a share such as threshold="top 20%" ranks by what was told of'
            f" earlier runs: {_REVIEW}"
        )
    if unjudged.unjudged == unjudged.forwarded >= _SILENCE:
        return f"nobody has said how any of {unjudged.forwarded:,} forwarded runs ended: {_REVIEW}"
    return None


def record_in_words(record: SuccessRecord) -> str | None:
    """Say how often what was forwarded succeeded, beside all runs; None if no end is known."""
    if not record.known:
        return None
    if not record.forwarded_known:
        return f"{record.succeeded:,} of {record.known:,} runs with a known end succeeded"
    chosen = "chosen by the gate" if record.some_stay else "forwarded"
    forwarded = f"of {record.forwarded_known:,} {chosen} with a known end"
    all_ = f"of all {record.known:,}: {record.succeeded:,}"
    return f"{forwarded} {record.forwarded_succeeded:,} succeeded; {all_}"


def _reason(feature: str, off: float, adds: float) -> str:
    side = "for it" if adds > 0 else "against it"
    if feature == "likeness":
        return f"like runs that {'succeeded' if adds > 0 else 'failed'} ({side})"
    amount = "more" if off > 0 else "fewer"
    return f"{amount} {_FEATURES.get(feature, feature)} than usual ({side})"
