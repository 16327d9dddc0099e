"""What each setting of the gate would have let through, as a person reads it on a terminal."""

from collections.abc import Iterator
from typing import Final

from kp_middleware.cli.lines.bars import bar, sparkline
from kp_middleware.cli.output.screen import broken, padded
from kp_middleware.core.formula import DEFAULT_THRESHOLD
from kp_middleware.core.gates import exact
from kp_middleware.storage import Row
from kp_middleware.views.thresholds import never_leave
from kp_middleware.views.wording import one_line, percent

_SPECIFIED: Final = f"{DEFAULT_THRESHOLD:g}"
_NAME: Final = 18
_BAR: Final = 20
_WIDE: Final = 80  # room for bars


def calibration_lines(found: Row, width: int) -> Iterator[str]:
    """The domains, the settings and the advice; lines of 60 signs have room for all but bars."""
    draws = width >= _WIDE
    limit = "" if found["max_per_day"] is None else f", at most {found['max_per_day']} a day"
    yield f"{found['runs']:,} scored runs in {found['days']:,.1f} days"
    if found["private"]:
        yield from broken(never_leave(found["private"]), width)
    yield ""
    yield f"{'domain':<{_NAME}}{'runs':>8}{'median':>8}{'top 10%':>9}{'best':>7}" + (
        f"  0 {'score':^{_BAR}} 1" if draws else ""
    )
    yield from (_domain(domain, draws=draws) for domain in found["domains"])
    yield ""
    yield f"Of them would have been let through, by setting{limit}:"
    yield ""
    yield f"{'threshold':<{_NAME}}{'runs':>8}{'share':>8}{'a day':>9}  succeeded"
    runs, now = found["runs"], found["now"]
    yield from (_setting(row, runs, now, draws=draws) for row in found["settings"])
    yield ""
    needed = found["runs_needed"]
    yield from broken(
        f"A share is told of {needed} runs of a domain; before, {_SPECIFIED} holds.", width
    )
    yield ""
    yield from broken(advice(found), width)
    if found["recommended"] not in {None, found["now"]}:
        yield ""
        yield f"  kp-middleware calibrate --set {_typed(found['recommended'])}"


def advice(found: Row) -> str:
    """Which setting is recommended and why, in one sentence."""
    best, runs = found["recommended"], found["runs"]
    if best is None:
        most = max((domain["runs"] for domain in found["domains"]), default=0)
        return (
            f"Too few runs to recommend a setting: a domain needs {found['runs_needed']} scored"
            f" runs, the largest here has {most}."
        )
    passing = {row["setting"]: row for row in found["settings"]}
    row, kept = passing[best], " It is what you have." if best == found["now"] else ""
    how = f"{row['let_through']:,} of {runs:,} runs, {row['a_day']:,.1f} a day"
    if isinstance(best, float):
        return f"Recommended: {best:g}, which the protocol specifies: {how}, reach it.{kept}"
    few = passing[DEFAULT_THRESHOLD]["let_through"]
    why = f"{few:,} reach" if few else "none reaches"
    return (
        f"Recommended: {_typed(best)}: it would have let through {how}; {why} {_SPECIFIED}.{kept}"
    )


def _domain(domain: Row, *, draws: bool) -> str:
    most = max(domain["bins"])
    drawn = sparkline([runs / most if runs else None for runs in domain["bins"]])
    return (
        f"{padded(one_line(domain['domain']), _NAME)}{domain['runs']:>8,}{domain['median']:>8.3f}"
        f"{domain['top_tenth']:>9.3f}{domain['best']:>7.3f}" + (f"    {drawn}" if draws else "")
    ).rstrip()


def _setting(row: Row, runs: int, now: float | str, *, draws: bool) -> str:
    name = exact(row["setting"]) if isinstance(row["setting"], float) else row["setting"]
    if row["setting"] == now:
        name += " (now)"
    succeeded = f"{row['succeeded']:,}"
    if row["let_through"]:
        succeeded += f" ({percent(row['succeeded'], row['let_through'])})"
    share = percent(row["let_through"], runs)
    told = f"{name:<{_NAME}}{row['let_through']:>8,}{share:>8}{row['a_day']:>9,.1f}"
    return f"{told}  {succeeded:<16}{bar(row['share'], _BAR) if draws else ''}".rstrip()


def _typed(setting: float | str) -> str:
    """As a shell takes it."""
    return exact(setting) if isinstance(setting, float) else f'"{setting}"'
