"""What each setting of the gate would have let through, and which to take, as `calibrate` says."""

from collections.abc import Callable, Sequence
from typing import Final

from kp_middleware.core.formula import DEFAULT_THRESHOLD
from kp_middleware.core.gates import fewest_runs, top_share
from kp_middleware.storage import GateTrial, Outcome, Row

COLUMNS: Final = ("setting", "let_through", "share", "a_day", "succeeded")
"""What text has of a setting."""

BEST_TENTH: Final = "top 10%"

_TRIED: Final[Sequence[float | str]] = (
    *(DEFAULT_THRESHOLD, 0.7, 0.65, 0.6, 0.55, 0.5, 0.45, 0.4),
    *("top 5%", BEST_TENTH, "top 20%"),
)
_PLENTY: Final = 0.05  # of all runs: half of what the best tenth would be


def calibration(
    trial: GateTrial,
    *,
    now: float | str,
    most: int | None,
    reach: Callable[[int, int], None] = lambda *_: None,
) -> Row:
    """The scores of each domain, what each setting would have let through, and which to take.

    Args:
        trial: The scored runs.
        now: What the threshold is set to.
        most: How many may leave in 24 hours; None means any number.
        reach: Is told, after each setting, how many of how many were tried.
    """
    domains = trial.domains()
    tried = _TRIED if now in _TRIED else (now, *_TRIED)
    rows = []
    for setting in tried:
        rows.append(_row(setting, _outcome(trial, setting, most), trial))
        reach(len(rows), len(tried))
    of_specified = next(row["share"] for row in rows if row["setting"] == DEFAULT_THRESHOLD)
    needed = fewest_runs(top_share(BEST_TENTH) or 1)
    enough = any(domain.runs >= needed for domain in domains)
    best = DEFAULT_THRESHOLD if of_specified >= _PLENTY else BEST_TENTH
    return {
        "runs": trial.runs,
        "private": trial.private,
        "days": round(trial.days, 1),
        "runs_needed": needed,
        "now": now,
        "max_per_day": most,
        "recommended": best if enough else None,
        "domains": [domain._asdict() for domain in domains],
        "settings": rows,
    }


def _outcome(trial: GateTrial, setting: float | str, most: int | None) -> Outcome:
    share = top_share(setting) if isinstance(setting, str) else None
    if share is None:
        return trial.threshold(float(setting), most=most)
    fewest = fewest_runs(share)
    return trial.top_share(share, fewest=fewest, until_then=DEFAULT_THRESHOLD, most=most)


def _row(setting: float | str, outcome: Outcome, trial: GateTrial) -> Row:
    return {
        "setting": setting,
        "let_through": outcome.let_through,
        "share": round(outcome.let_through / trial.runs, 4) if trial.runs else 0.0,
        "a_day": round(outcome.let_through / trial.days, 2),
        "succeeded": outcome.succeeded,
        "domains": outcome.domains,
    }
