"""The charts of states, tools, one score, novelty and removals."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from types import MappingProxyType
from typing import Any, Final

from kp_middleware.storage import Endings, Funnel, NoveltyDay, Overview, Period, Removal, ToolUse
from kp_middleware.views.timeline import Timeline
from kp_middleware.views.trace import TraceView
from kp_middleware.views.wording import (
    counted,
    day,
    distance,
    duration,
    part_of,
    share,
    short_bar,
    signed,
)
from kp_middleware.web.marks import (
    SIGNAL_COLOURS,
    WIDTH,
    Band,
    Bar,
    BarList,
    BarRow,
    Chart,
    Column,
    Dot,
    Group,
    Key,
    Label,
    Line,
    Links,
    Mark,
    Piece,
    Plot,
    Scale,
    Table,
    TableRow,
    stacked,
    straight,
)

_NO_RUNS: Final = "nothing recorded yet: decorate a function with @kp.capture, or try the demo"
_NO_TOOLS: Final = (
    "no tool calls yet: tools of LangChain are seen by themselves, others by @kp.tool"
)
_NO_NOVELTY: Final = "no novelty measured yet: it needs scored runs and an embedder"
_MOST_KINDS: Final = 8
_MOST_TOOLS: Final = 10
STATE_FILTERS: Final[Mapping[str, dict[str, str]]] = {
    "recorded": {},
    "cleared": {"cleared": "1"},
    "queued": {"queued": "1"},
}
"""The filters for the stages of a run that are no state."""
_NONE: Final[Mapping[Any, str]] = MappingProxyType({})
_CALL_COLOURS: Final = {"model": "purple", "tool": "blue", "error": "loss"}
_ENDS_KEYS: Final = tuple(
    Key(name, Bar(1, -5, 10, 10, colour))
    for name, colour in (("succeeded", "cleared"), ("not known", "below"), ("failed", "loss"))
)
_LEAST: Final = 0.5  # percent: one of 100,000 is still seen


def state_bars(found: Funnel, links: Links) -> Chart:
    """Draw how many runs came how far, and what was lost on the way."""
    if not found.recorded:
        return Chart(_NO_RUNS)
    codes: Counter[str] = Counter()
    for reason, number in found.reasons.items():
        codes[reason.partition(" at ")[0]] += number  # where it is, the run's own page says
    reasons = ", ".join(f"{code} {number:,}" for code, number in codes.most_common())
    stages = (
        ("recorded", found.recorded, "plain", ""),
        ("cleared", found.cleared, "cleared", ""),
        ("queued", found.queued, "cleared", ""),
        ("sent", found.sent, "cleared", ""),
        ("blocked", found.blocked, "loss", reasons),
        ("rejected", found.rejected, "loss", ""),
    )
    bars, rows, findings = [], [], []
    for name, number, colour, note in stages:
        if not number:
            continue
        href = links.runs(**STATE_FILTERS.get(name, {"state": name}))
        part = share(number, found.recorded)
        said = f"{name}: {note}" if note else name
        working = part if number != found.recorded else ""
        piece = Piece(0, max(_LEAST, 100 * number / found.recorded), colour)
        bars.append(BarRow(said, f"{number:,}", working, (piece,), href))
        named = f"{name} ({note})" if note else name
        rows.append(TableRow((named, f"{number:,}", part), href))
        findings.append(f"{number:,} {name}")
    table = Table(("State", "Traces", "Share of all"), (*rows,))
    return BarList(", ".join(findings), table, (*bars,))


def tool_bars(overview: Overview, links: Links) -> Chart:
    """Draw how often each of the most used tools was called, and what failed of it."""
    tools, calls = overview.tools[:_MOST_TOOLS], sum(tool.calls for tool in overview.tools)
    if not tools:
        return Chart(_NO_TOOLS)
    most = max(tools, key=lambda tool: tool.calls)
    finding = f"{most.tool} was called most: {part_of(most.calls, calls)} calls"
    failures = sum(tool.failures for tool in overview.tools)
    finding += f"; {failures:,} failed" if failures else "; none failed"
    if len(overview.tools) > len(tools):
        finding += f". The {len(tools):,} most used of {len(overview.tools):,}"
    longest = max(1, *(max(tool.calls, tool.failures) for tool in tools))
    bars = tuple(_tool_bar(tool, longest, links) for tool in tools)
    rows = tuple(
        TableRow((tool.tool, f"{tool.calls:,}", f"{tool.failures:,}", _mean(tool)), bar.href)
        for tool, bar in zip(tools, bars, strict=True)
    )
    return BarList(finding, Table(("Tool", "Calls", "Failed", "Mean time"), rows), bars)


def activity_bars(days: Sequence[Period], links: Links) -> Chart:
    """Draw the runs of each day, stacked by how they ended."""
    if not days:
        return Chart(_NO_RUNS)
    runs, known = sum(one.runs for one in days), sum(one.succeeded + one.failed for one in days)
    finding = f"{counted(runs, 'run')} in {counted(len(days), 'day')}"
    if known:
        succeeded = sum(one.succeeded for one in days)
        finding += f"; of {known:,} with a known end {succeeded:,} succeeded"
    first = date.fromisoformat(days[0].name)
    places = {(date.fromisoformat(one.name) - first).days: one for one in days}
    columns = [_day(places.get(at), links) for at in range(max(7, *places) + 1)]
    labels = [Label(day(days[0].name, year=False), 0, 0)]
    if len(days) > 1:
        labels.append(Label(day(days[-1].name, year=False), max(places) + 1, 0, "end"))
    marks, _ = stacked(columns, labels, height=162)
    return Plot(finding, period_table("Day", days, links), 162, (*marks,), _ENDS_KEYS)


def success_by_score(endings: Sequence[Endings], links: Links) -> Chart:
    """Draw how the runs of each score ended, and say how well the score tells the endings apart."""
    succeeded, failed = (sum(one[place] for one in endings) for place in (1, 2))
    if not succeeded or not failed:
        some = "failed" if failed else "succeeded"
        known = f"all {succeeded + failed:,} with a known end {some}"
        return Chart(f"nothing to tell apart yet: {known if endings else 'no ending is known'}")
    below, pairs = 0, 0.0
    for one in endings:  # the area below the ROC curve
        pairs += one.succeeded * (below + one.failed / 2)
        below += one.failed
    finding = (
        f"A run that succeeded scores higher than one that failed in"
        f" {100 * pairs / succeeded / failed:.0f}\u00a0% of all pairs; by chance it is 50\u00a0%"
    )
    columns, rows = [], []
    for tenth in range(10):
        inside = [one for one in endings if min(one.hundredth, 99) // 10 == tenth]
        good, bad = (sum(one[place] for one in inside) for place in (1, 2))
        name = f"{tenth / 10:.1f} to {(tenth + 1) / 10:.1f}"
        href = links.runs(**score_filter(tenth / 10, (tenth + 1) / 10))
        parts = {"cleared": good, "loss": bad} if inside else {}
        columns.append(Column(f"{name}: {good:,} succeeded, {bad:,} failed", parts, href))
        if inside:
            cells = (name, f"{good:,}", f"{bad:,}", share(good, good + bad))
            rows.append(TableRow(cells, href))
    labels = [Label(f"{at / 10:g}", at, 0, "middle") for at in range(0, 11, 2)]
    marks, _ = stacked(columns, labels, height=162)
    table = Table(("Score", "Succeeded", "Failed", "Share"), (*rows,))
    return Plot(finding, table, 162, (*marks,), _ENDS_KEYS[::2])


def _day(one: Period | None, links: Links) -> Column:
    if one is None:
        return Column("", {})
    unknown = one.runs - one.succeeded - one.failed
    said = f"{one.name}: {counted(one.runs, 'run')}, {one.succeeded:,} succeeded,"
    said += f" {one.failed:,} failed, {unknown:,} not known"
    parts = {"cleared": one.succeeded, "below": unknown, "loss": one.failed}
    return Column(said, parts, links.runs(**of_day(one.name)))


def timeline_bars(found: Timeline, costs: Mapping[int, str] = _NONE) -> Chart:
    """Draw when each model and tool call of each agent began, how long it took, and its cost."""
    if not found.calls or not found.total_ms:
        return Chart("no call was timed")
    took = ", ".join(
        f"{name} {duration(ms)}"
        for name, ms in (
            ("models", found.models_ms),
            ("tools", found.tools_ms),
            ("waiting", found.waiting_ms),
        )
        if ms
    )
    finding = f"{duration(found.total_ms)} in all{f': {took}' if took else ''}"
    if found.left_out:
        finding += f"; {found.left_out:,} more calls are not drawn"
    bars = []
    if found.gaps:
        waits = tuple(_piece(a, b, "below", found.total_ms) for a, b in found.gaps)
        bars.append(BarRow("waiting", duration(found.waiting_ms), "no call", waits))
    for agent in found.agents:
        calls = [call for call in found.calls if call.agent == agent]
        pieces = [
            _piece(call.start_ms, call.end_ms, _CALL_COLOURS[call.kind], found.total_ms)
            for call in calls
        ]
        if len(found.agents) > 1:  # a lane, and its calls below
            took = duration(max(call.end_ms for call in calls) - calls[0].start_ms)
            lane = tuple(piece._replace(colour="plain") for piece in pieces)
            bars.append(BarRow(agent or "the run's own agent", took, "agent", lane))
        for call, piece in zip(calls, pieces, strict=True):
            words = (counted(call.tokens, "token") if call.tokens else "", costs.get(call.step, ""))
            said, href = " · ".join(filter(None, words)), f"#step-{call.step}"
            bars.append(BarRow(call.name, duration(call.length_ms), said, (piece,), href))
    rows = tuple(
        TableRow((call.name, call.kind, duration(call.start_ms), duration(call.length_ms)))
        for call in found.calls
    )
    table = Table(("Call", "Kind", "After", "Took"), rows)
    return BarList(finding, table, (*bars,), axis=("0", duration(found.total_ms)))


def _piece(start_ms: float, end_ms: float, colour: str, total_ms: float) -> Piece:
    """Return a part of a time, wide enough to be seen."""
    start, width = 100 * start_ms / total_ms, 100 * (end_ms - start_ms) / total_ms
    return Piece(min(start, 100 - _LEAST), min(max(_LEAST, width), 100 - start), colour)


def period_table(
    name: str,
    periods: Sequence[Period],
    links: Links,
    costs: Mapping[str, str] = _NONE,
) -> Table:
    """Return how the runs of each day or model ended, their time, tokens, and costs in words."""
    columns = (name, "Runs", "Succeeded", "p50", "p99", "Tokens", "Cost")
    rows = [_period(name, one, links, costs) for one in periods]
    empty = [place for place in (3, 4, 5, 6) if not any(row.cells[place] for row in rows)]
    kept = [place for place in range(len(columns)) if place not in empty]
    return Table(
        tuple(columns[place] for place in kept),
        tuple(TableRow(tuple(row.cells[place] for place in kept), row.href) for row in rows),
    )


def _period(name: str, one: Period, links: Links, costs: Mapping[str, str]) -> TableRow:
    known = one.succeeded + one.failed
    cells = (
        day(one.name, year=False) if name == "Day" else one.name,
        f"{one.runs:,}",
        share(one.succeeded, known) if known else "",
        *("" if ms is None else duration(ms) for ms in (one.p50_ms, one.p99_ms)),
        f"{one.tokens:,}" if one.tokens else "",
        costs.get(one.name, ""),
    )
    return TableRow(cells, links.runs(**of_day(one.name) if name == "Day" else {"model": one.name}))


def of_day(name: str) -> dict[str, str]:
    """Return the filters for the runs of a day."""
    return {"since": name, "until": (date.fromisoformat(name) + timedelta(days=1)).isoformat()}


def score_filter(low: float, high: float) -> dict[str, str]:
    """Return the filters for the runs that score from ``low`` up to, without, ``high``."""
    upper = {"max_score": f"{high:g}"} if high < 1 else {}
    return {"min_score": f"{low:g}", **upper, "sort": "score"}


def waterfall(view: TraceView) -> Chart:
    """Draw what each signal and each rule adds to the score, and the score against its bar."""
    score, threshold, is_cleared = view.score, view.threshold, view.is_cleared
    if score is None:
        return Chart(f"no score yet: {view.delivery_status}")
    beside, finding = "", f"The score is {score:.3f}"
    if threshold is not None:
        beside = _beside(score, threshold, is_cleared=is_cleared)
        finding += f": {beside} the threshold of {short_bar(threshold)}"
    bars, reached = [], 0.0
    for line in view.sum:
        before, reached = reached, reached + line.amount
        colour = SIGNAL_COLOURS.get(line.part, "loss" if line.amount < 0 else "plain")
        low, high = sorted((100 * before, 100 * reached))
        pieces = (Piece(low, max(_LEAST, high - low), colour),) if line.amount else ()
        name = line.part.replace("_", " ")
        bars.append(BarRow(name, signed(line.amount), line.working, pieces))
    total = Piece(0, 100 * score, "cleared" if is_cleared else "below")
    bars.append(BarRow("score", f"{score:.3f}", beside, (total,)))
    rows = tuple(TableRow((bar.name, bar.working, bar.amount)) for bar in bars)
    table = Table(("Part", "Working", "Adds"), rows)
    if threshold is None:
        return BarList(finding, table, (*bars,), axis=("0", "0.5", "1"))
    name = f"threshold {short_bar(threshold)}"
    return BarList(finding, table, (*bars,), 100 * threshold, name, ("0", "0.5", "1"))


def novelty_band(days: Sequence[NoveltyDay]) -> Chart:
    """Draw the median of each day, and the band from 10 to 90 %."""
    if not days:
        return Chart(_NO_NOVELTY)
    begin, end = (f"{one.median:.2f} on {day(one.day)}" for one in (days[0], days[-1]))
    if len(days) == 1:
        return Chart(f"median novelty {begin}, the only day so far")
    finding = f"Median novelty went from {begin} to {end}"
    first, last = date.fromisoformat(days[0].day), date.fromisoformat(days[-1].day)
    across = Scale(first.toordinal(), last.toordinal(), 34, WIDTH - 6)
    up = Scale(0, 1, 176, 22)
    marks: list[Mark | Group] = []
    for value in (0.0, 0.5, 1.0):
        marks.append(straight(28, up(value), WIDTH, up(value), "grid" if value else "axis"))
        marks.append(Label(f"{value:g}", 22, up(value) + 4, "end"))
    at = {one: across(date.fromisoformat(one.day).toordinal()) for one in days}
    upper = [(at[one], up(one.high)) for one in days]
    lower = [(at[one], up(one.low)) for one in reversed(days)]
    middle = tuple((at[one], up(one.median)) for one in days)
    marks += [Band((*upper, *lower)), Line(middle, "kp-curve kp-line-orange")]
    for one in days:
        said = f"{one.day}: median {one.median:.2f}, most from {one.low:.2f} to {one.high:.2f}"
        dot = Dot(f"M{at[one]:.1f} {up(one.median):.1f}m-2 0a2 2 0 1 1 4 0 2 2 0 1 1-4 0z", "")
        target = straight(at[one], 22, at[one], 176, "point-at")
        marks.append(Group(said, (target, Dot(dot.path, "kp-orange"))))
    marks += [Label(day(days[0].day), 28, 193), Label(day(days[-1].day), WIDTH, 193, "end")]
    rows = tuple(
        TableRow((one.day, f"{one.low:.2f}", f"{one.median:.2f}", f"{one.high:.2f}"))
        for one in days
    )
    return Plot(finding, Table(("Day", "10 %", "Median", "90 %"), rows), 198, (*marks,))


def removal_bars(removed: Sequence[Removal]) -> Chart:
    """Draw what redaction removed in the twelve weeks up to the newest run, by kind."""
    amounts: Counter[str] = Counter()
    for one in removed:
        amounts[one.kind] += one.times
    (most, amount), *_ = drawn = amounts.most_common(_MOST_KINDS)
    finding = f"{amounts.total():,} removed in the 12 weeks up to the newest run;"
    finding += f" most often {most}, {amount:,} times"
    if len(amounts) > len(drawn):
        finding += f". The {len(drawn)} most frequent of {len(amounts)} kinds"
    bars = (
        BarRow(kind, f"{n:,}", pieces=(Piece(0, max(_LEAST, 100 * n / amount), "plain"),))
        for kind, n in drawn
    )
    rows = (TableRow((one.week, one.kind, f"{one.times:,}")) for one in removed)
    return BarList(finding, Table(("Week from", "Kind", "Removed"), (*rows,)), (*bars,))


def _tool_bar(tool: ToolUse, longest: int, links: Links) -> BarRow:
    whole = max(tool.calls, tool.failures)  # what failed may not have been noted as a call
    good, failed = (100 * part / longest for part in (whole - tool.failures, tool.failures))
    pieces = (Piece(0, good, "plain"), Piece(good, failed, "loss"))
    seen = tuple(piece for piece in pieces if piece.width)
    words = (f"{tool.failures:,} failed" if tool.failures else "", _mean(tool))
    working = " · ".join(filter(None, words))
    href = links.runs(tool=tool.tool) if tool.calls else None
    return BarRow(tool.tool, f"{tool.calls:,}", working, seen, href)


def _mean(tool: ToolUse) -> str:
    return "" if tool.mean_ms is None else duration(tool.mean_ms)


def _beside(score: float, threshold: float, *, is_cleared: bool) -> str:
    if score >= threshold and not is_cleared:
        return "not above"
    return f"{distance(score - threshold)} {'above' if score >= threshold else 'below'}"
