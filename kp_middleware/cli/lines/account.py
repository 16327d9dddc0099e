"""An account as a person reads it."""

from collections.abc import Iterator
from typing import Final

from kp_middleware.cli.output.screen import broken
from kp_middleware.views.explanation import Explanation
from kp_middleware.views.wording import distance, one_line, short_bar

_NAME: Final = 20
_SUM: Final = 21
_ROOMY: Final = 80


def account_lines(account: Explanation, objective: str, width: int) -> Iterator[str]:
    """What the score is, why, and what would change the verdict; no line longer than the width."""
    yield from broken(one_line(objective), width, most=3)
    yield account.id
    yield ""
    yield from broken(_verdict(account), width)
    if account.gate is not None:
        yield from broken(f"Its gate: {one_line(account.gate)}.", width)
    for told in account.feedback:
        yield from broken(f"Feedback at {told}", width)
    yield ""
    if account.score is None:
        yield from _known(account, width)
        return
    yield "Why"
    yield from _parts(account, width)
    yield ""
    if account.threshold is None or account.other_reason is not None:
        why = one_line(account.other_reason or "")
        yield from broken(f"It was not the bar that decided: {why}.", width)
        return
    yield from broken(_question(account, account.threshold), width)
    for one in account.signals:
        yield from _entry(one.signal, one.remedy, width)
    for rule in account.rules:
        yield from _entry(rule.rule, f"without this rule {rule.score_without:.3f}", width)


def _verdict(account: Explanation) -> str:
    if account.score is None:
        return f"It has no score: {one_line(account.delivery_status)}."
    if account.threshold is None or account.margin is None:
        return f"It scores {account.score:.3f}, and was held against nothing."
    beside = _beside(account.threshold, account.margin, cleared=account.cleared)
    told = f"It scores {account.score:.3f}: that {beside}."
    score, bar = account.recorded_score, account.recorded_threshold
    if bar is not None and (account.score, account.threshold) != (score, bar):
        told += f" (As it was scored: {score:.3f} against {short_bar(bar)}, which stays.)"
    return told


def _beside(bar: float, margin: float, *, cleared: bool | None) -> str:
    if margin >= 0 and not cleared:
        return f"is no more than {short_bar(bar)}, and those just as good had gone"
    return f"{'reaches' if margin >= 0 else 'is below'} {short_bar(bar)} by {distance(margin)}"


def _parts(account: Explanation, width: int) -> Iterator[str]:
    for one in account.signals:
        sum_ = f"{one.value:.3f} × {one.weight:.2f} = {one.amount:.3f}"
        yield from _part(one.signal, sum_, one.reason, width)
    for rule in account.rules:
        yield from _part(rule.rule, f"{rule.delta:>+{_SUM}.3f}", rule.reason, width)


def _part(name: str, sum_: str, reason: str, width: int) -> Iterator[str]:
    """The reason beside the sum, or below it where there is no room."""
    if width >= _ROOMY:
        yield from _entry(name, f"{sum_:<{_SUM}}  {reason}", width, deeper=_SUM + 2)
    else:
        yield from _entry(name, sum_, width)
        yield from _entry("", reason, width)


def _question(account: Explanation, threshold: float) -> str:
    if account.cleared:
        aim = f"stay below {short_bar(threshold)}"
    else:
        verb = "reach" if account.enough == threshold else "score more than"
        aim = f"{verb} {short_bar(threshold)}"
    return f"To {aim}, one of these alone would have to be"


def _known(account: Explanation, width: int) -> Iterator[str]:
    known = account.known
    kinds = f": {', '.join(known.kinds)}" if known.kinds else ""
    how = "success" if known.success else "no success"
    yield "What is known of it"
    yield from _entry("steps", f"{known.steps:,}{kinds}", width)
    yield from _entry("recoveries", f"{known.recoveries:,} from errors", width)
    yield from _entry("tools", f"{known.tools:,} different", width)
    told = f"{known.confidence:.3f} ({known.confidence_source}), {how} ({known.success_source})"
    yield from _entry("confidence", told, width)


def _entry(name: str, told: str, width: int, *, deeper: int = 0) -> Iterator[str]:
    first = f"  {name.replace('_', ' '):<{_NAME}}"
    yield from broken(told, width, first=first, indent=" " * (len(first) + deeper))
