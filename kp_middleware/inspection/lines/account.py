"""An account as a person reads it."""

from collections.abc import Iterator
from typing import Final

from kp_middleware.inspection.explanation.account import Account
from kp_middleware.inspection.output.screen import broken
from kp_middleware.inspection.output.wording import one_line

_NAME: Final = 20
_SUM: Final = 21


def account_lines(account: Account, objective: str, width: int) -> Iterator[str]:
    """What the score is, why, and what would change the verdict; no line longer than the width."""
    yield from broken(one_line(objective), width, most=3)
    yield account.id
    yield ""
    yield from broken(_verdict(account), width)
    yield ""
    if account.score is None:
        yield from _known(account, width)
        return
    yield "Why"
    yield from _parts(account, width)
    yield ""
    yield from broken(_question(account), width)
    for one in account.signals:
        yield from _entry(one.signal, one.remedy, width)
    for rule in account.rules:
        yield from _entry(rule.rule, f"without this rule {rule.score_without:.3f}", width)


def _verdict(account: Account) -> str:
    if account.score is None or account.threshold is None or account.margin is None:
        return f"It has no score: {one_line(account.whereabouts)}."
    where = "reaches" if account.cleared else "is below"
    told = f"It scores {account.score:.3f}: that {where} {account.threshold:g}"
    told += f" by {abs(account.margin):.3f}."
    if (account.score, account.threshold) != (account.recorded_score, account.recorded_threshold):
        recorded = f"{account.recorded_score:.3f} against {account.recorded_threshold:g}"
        told += f" (As it was scored: {recorded}, which stays.)"
    return told


def _parts(account: Account, width: int) -> Iterator[str]:
    for one in account.signals:
        sum_ = f"{one.value:.3f} × {one.weight:.2f} = {one.amount:.3f}"
        yield from _entry(one.signal, f"{sum_:<{_SUM}}  {one.reason}", width, deeper=_SUM + 2)
    for rule in account.rules:
        delta = f"{rule.delta:>+{_SUM}.3f}"
        yield from _entry(rule.rule, f"{delta}  {rule.reason}", width, deeper=_SUM + 2)


def _question(account: Account) -> str:
    if account.cleared:
        return f"To stay below {account.threshold:g}, one of these alone would have to be"
    return f"To reach {account.threshold:g}, one of these alone would have to be"


def _known(account: Account, width: int) -> Iterator[str]:
    known = account.known
    kinds = f": {', '.join(known['kinds'])}" if known["kinds"] else ""
    how = "success" if known["success"] else "no success"
    yield "What is known of it"
    yield from _entry("steps", f"{known['steps']:,}{kinds}", width)
    yield from _entry("recoveries", f"{known['recoveries']:,} from errors", width)
    yield from _entry("tools", f"{known['tools']:,} different", width)
    yield from _entry("confidence", f"{known['confidence']:.3f}, {how}", width)


def _entry(name: str, told: str, width: int, *, deeper: int = 0) -> Iterator[str]:
    first = f"  {name.replace('_', ' '):<{_NAME}}"
    yield from broken(told, width, first=first, indent=" " * (len(first) + deeper))
