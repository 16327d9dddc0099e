"""Charts of states, tools, days, scores, novelty and removals; a run's timeline and score."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date, timedelta
from itertools import compress
from typing import Final

from kp_middleware import storage
from kp_middleware.core.gates import exact
from kp_middleware.views.trace import Call, ScoreLine, idle_times
from kp_middleware.views.wording import counted, day, distance, duration, percent, short_bar, signed
from kp_middleware.web.marks import (
    SIGNAL_COLOURS,
    WIDTH,
    BarRow,
    BarSegment,
    Chart,
    Column,
    Key,
    Links,
    Table,
    TableRow,
    bar,
    colours_of,
    dot,
    grid,
    group,
    label,
    line,
    polyline,
    scale,
    stacked,
    threshold_line,
)

__all__ = ["activity_bars", "novelty_band", "period_table", "removal_bars", "score_histogram",
           "state_bars", "success_by_score", "threshold_curve", "timeline_bars", "tool_bars",
           "waterfall"]  # fmt: skip

_NO_SCORES: Final = "no scored runs yet: record a run, and its score appears after it ends"
_NO_RUNS: Final = "nothing recorded yet: record a run, or import some with kp-middleware import"
_IF_NOT_PRIVATE: Final = "If not private"
_PASSED: Final = "passed the threshold at the time"
_MAX_CALLS: Final = 100
_MAX_CURVES: Final = 7
_SWATCH_WIDTH: Final = 28.0  # more than one dash
_CALL_COLOURS: Final = {"model": "purple", "tool": "blue", "error": "loss"}
_STATES: Final = {
    "recorded": ("plain", {}),
    "cleared": ("cleared", {"cleared": "1"}),
    "queued": ("cleared", {"queued": "1"}),
    "sent": ("cleared", {"state": "sent"}),
    "blocked": ("loss", {"state": "blocked"}),
    "rejected": ("loss", {"state": "rejected"}),
}
"""The color and the run filters of each state."""

_ENDS_KEYS: Final = tuple(
    Key(name, bar((1, -5), 10, 10, colour))
    for name, colour in (("succeeded", "cleared"), ("not known", "below"), ("failed", "loss"))
)
_MIN_WIDTH: Final = 0.5  # percent: 1 of 100,000 stays visible


def state_bars(found: storage.Funnel, links: Links) -> Chart:
    if not found.recorded:
        return Chart(_NO_RUNS)
    codes: Counter[str] = Counter()
    for reason, times in found.reasons.items():
        codes[reason.partition(" at ")[0]] += times  # the run's page shows the step
    why = ", ".join(f"{code} {times:,}" for code, times in codes.most_common())
    bars = []
    for name, (colour, filters) in _STATES.items():
        if number := getattr(found, name):
            label = f"{name}: {why}" if name == "blocked" and why else name
            working = percent(number, found.recorded) if number != found.recorded else ""
            segments = (_segment(number, found.recorded, colour),)
            bars.append(BarRow(label, f"{number:,}", working, segments, links.runs(**filters)))
    findings = (f"{bar.amount} {bar.name.partition(':')[0]}" for bar in bars)
    return Chart(", ".join(findings), bars=bars)


def tool_bars(overview: storage.Overview, links: Links) -> Chart:
    tools, calls = overview.tools[:10], sum(tool.calls for tool in overview.tools)
    failures = sum(tool.failures for tool in overview.tools)
    if not tools:
        return Chart("no tool calls yet: record them with LangChain or @kp.tool")
    most = max(tools, key=lambda tool: tool.calls)
    caption = f"{most.tool} was called most: {most.calls:,} of {calls:,} calls"
    caption += f"; {failures:,} failed" if failures else "; none failed"
    if len(overview.tools) > len(tools):
        caption += f". The {len(tools):,} most used of {len(overview.tools):,}"
    longest = max(1, *(max(tool.calls, tool.failures) for tool in tools))
    bars = []
    for tool in tools:
        # a failure may lack a recorded call
        parts = max(tool.calls - tool.failures, 0), tool.failures
        good, failed = (100 * part / longest for part in parts)
        segments = BarSegment(0, good, "plain"), BarSegment(good, failed, "loss")
        facts = [f"{tool.failures:,} failed"] if failed else []
        facts += [] if tool.mean_ms is None else [duration(tool.mean_ms)]
        href = links.runs(tool=tool.tool) if tool.calls else None
        bars.append(BarRow(tool.tool, f"{tool.calls:,}", " · ".join(facts), segments, href))
    return Chart(caption, bars=bars)


def activity_bars(days: Sequence[storage.Period], links: Links) -> Chart:
    if not days:
        return Chart(_NO_RUNS)
    totals = ((period.runs, period.succeeded, period.failed) for period in days)
    runs, succeeded, failed = map(sum, zip(*totals, strict=True))
    caption = f"{counted(runs, 'run')} in {counted(len(days), 'day')}"
    if known := succeeded + failed:
        caption += f"; of {known:,} with a known outcome, {succeeded:,} succeeded"
    first = date.fromisoformat(days[0].name)
    places = [(date.fromisoformat(period.name) - first).days for period in days]
    columns = [Column("", {})] * max(8, places[-1] + 1)
    for place, period in zip(places, days, strict=True):
        unknown = period.runs - period.succeeded - period.failed
        title = f"{period.name}: {counted(period.runs, 'run')}, {period.succeeded:,} succeeded,"
        title += f" {period.failed:,} failed, {unknown:,} not known"
        parts = {"cleared": period.succeeded, "below": unknown, "loss": period.failed}
        columns[place] = Column(title, parts, links.runs(**_day_filters(period.name)))
    labels = {0: day(days[0].name, year=False)}
    if len(days) > 1:
        labels[places[-1] + 1] = day(days[-1].name, year=False)
    marks, _ = stacked(columns, labels, height=162)
    table = period_table("Day", days, links)
    return Chart(caption, table, marks=marks, height=162, legend=_ENDS_KEYS)


def success_by_score(endings: Sequence[storage.Endings], links: Links) -> Chart:
    """Draw the outcomes by score; the caption has the area under the ROC curve."""
    succeeded, failed = (sum(ending[place] for ending in endings) for place in (1, 2))
    if not succeeded or not failed:
        outcome = "failed" if failed else "succeeded"
        known = f"all {succeeded + failed:,} runs with a known outcome {outcome}"
        return Chart(f"nothing to compare yet: {known if endings else 'no outcome is known'}")
    below, pairs = 0, 0.0
    for ending in endings:  # the area under the ROC curve
        pairs += ending.succeeded * (below + ending.failed / 2)
        below += ending.failed
    caption = "In 30 days, a successful run scores higher than a failed one in"
    caption += f" {100 * pairs / succeeded / failed:.0f}% of all pairs; chance is 50%"
    columns, rows = [], []
    for name, good, bad, href in _score_bins(endings, 10, links):
        parts = {"cleared": good, "loss": bad}
        columns.append(Column(f"{name}: {good:,} succeeded, {bad:,} failed", parts, href))
        if good or bad:
            rows.append(TableRow((name, f"{good:,}", f"{bad:,}", percent(good, good + bad)), href))
    marks, _ = stacked(columns, {at: f"{at / 10:g}" for at in range(0, 11, 2)}, height=162)
    table = Table(("Score", "Succeeded", "Failed", "Share"), rows)
    return Chart(caption, table, marks=marks, height=162, legend=_ENDS_KEYS[::2])


def _score_bins(
    amounts: Sequence[tuple[int, int, int]], width: int, links: Links
) -> Iterator[tuple[str, int, int, str | None]]:
    """Yield bins, ``width`` hundredths wide: name, the sum of each amount, link to the runs."""
    for start in range(0, 100, width):
        inside = [row for row in amounts if start <= min(row[0], 99) < start + width]
        low, high = start / 100, (start + width) / 100
        upper = {"max_score": f"{high:g}"} if high < 1 else {}
        href = links.runs(min_score=f"{low:g}", **upper, sort="score")
        name = f"{low:.2f} to {high:.2f}"
        yield name, sum(row[1] for row in inside), sum(row[2] for row in inside), href


def period_table(
    name: str,
    periods: Sequence[storage.Period],
    links: Links,
    costs: Mapping[str, str] | None = None,
) -> Table:
    columns = (name, "Runs", "Succeeded", "p50", "p99", "Tokens", "Cost")
    rows = []
    for period in periods:
        known = period.succeeded + period.failed
        cells = (
            day(period.name, year=False) if name == "Day" else period.name,
            f"{period.runs:,}",
            percent(period.succeeded, known) if known else "",
            *("" if ms is None else duration(ms) for ms in (period.p50_ms, period.p99_ms)),
            f"{period.tokens:,}" if period.tokens else "",
            (costs or {}).get(period.name, ""),
        )
        filters = _day_filters(period.name) if name == "Day" else {"model": period.name}
        rows.append(TableRow(cells, links.runs(**filters)))
    kept = [at < 3 or any(row.cells[at] for row in rows) for at in range(len(columns))]
    filled = [row._replace(cells=(*compress(row.cells, kept),)) for row in rows]
    return Table([*compress(columns, kept)], filled)


def _day_filters(name: str) -> dict[str, str]:
    return {"since": name, "until": (date.fromisoformat(name) + timedelta(days=1)).isoformat()}


def timeline_bars(calls: Sequence[Call], took_ms: float, costs: Mapping[int, str]) -> Chart:
    """Draw the model and tool calls of each agent over time, with duration and cost."""
    total_ms = max([took_ms, *(call.end_ms for call in calls)])
    if not calls or not total_ms:
        return Chart("no timed calls")
    models = [call for call in calls if call.kind == "model"]
    tools = [call for call in calls if call.kind != "model"]
    idle = [[*idle_times(group, total_ms)] for group in (models, tools, calls)]
    *busy_ms, idle_ms = (sum(end - start for start, end in times) for times in idle)
    times = {"models": total_ms - busy_ms[0], "tools": total_ms - busy_ms[1], "waiting": idle_ms}
    took = ", ".join(f"{name} {duration(ms)}" for name, ms in times.items() if ms)
    caption = f"{duration(total_ms)} in all{f': {took}' if took else ''}"
    if len(calls) > _MAX_CALLS:
        caption += f"; {len(calls) - _MAX_CALLS:,} more calls are not shown"
    bars = []
    if idle_ms:
        gaps = tuple(_segment(end - start, total_ms, "below", start) for start, end in idle[-1])
        bars.append(BarRow("waiting", duration(idle_ms), "no call", gaps))
    shown = calls[:_MAX_CALLS]
    agents = dict.fromkeys(call.agent for call in shown)
    for agent in agents:
        agent_calls = [call for call in shown if call.agent == agent]
        if len(agents) > 1:  # a lane with its calls below
            took = duration(max(call.end_ms for call in agent_calls) - agent_calls[0].start_ms)
            lane = (
                _segment(call.length_ms, total_ms, "plain", call.start_ms) for call in agent_calls
            )
            bars.append(BarRow(agent or "main agent", took, "agent", (*lane,)))
        for call in agent_calls:
            facts = (counted(call.tokens, "token") if call.tokens else "", costs.get(call.step, ""))
            words, href = " · ".join(filter(None, facts)), f"#step-{call.step}"
            segment = _segment(call.length_ms, total_ms, _CALL_COLOURS[call.kind], call.start_ms)
            bars.append(BarRow(call.name, duration(call.length_ms), words, (segment,), href))
    return Chart(caption, bars=bars, axis=("0", duration(total_ms)))


def _segment(amount: float, of: float, colour: str, start: float = 0.0) -> BarSegment:
    left, width = 100 * start / of, 100 * amount / of
    return BarSegment(min(left, 100 - _MIN_WIDTH), min(max(_MIN_WIDTH, width), 100 - left), colour)


def waterfall(lines: Sequence[ScoreLine], threshold: float | None, delivery_status: str) -> Chart:
    if not lines:
        return Chart(f"no score yet: {delivery_status}")
    *parts, (_, _, score) = lines
    margin, caption, is_cleared = "", f"The score is {score:.3f}", False
    if threshold is not None:
        is_cleared = score >= threshold
        margin = f"{distance(score - threshold)} {'above' if is_cleared else 'below'}"
        caption += f": {margin} the threshold of {short_bar(threshold)}"
    bars, reached = [], 0.0
    for part, working, amount in parts:
        before, reached = reached, reached + amount
        colour = SIGNAL_COLOURS.get(part, "loss" if amount < 0 else "plain")
        segments = (_segment(abs(amount), 1, colour, min(before, reached)),) if amount else ()
        bars.append(BarRow(part.replace("_", " "), signed(amount), working, segments))
    total = BarSegment(0, 100 * score, "cleared" if is_cleared else "below")
    bars.append(BarRow("score", f"{score:.3f}", margin, (total,)))
    chart = Chart(caption, bars=bars, axis=("0", "0.5", "1"))
    if threshold is None:
        return chart
    name = f"threshold {short_bar(threshold)}"
    return chart._replace(threshold=100 * threshold, threshold_name=name)


def novelty_band(days: Sequence[storage.NoveltyDay]) -> Chart:
    if not days:
        return Chart("no novelty measured yet: it needs scored runs and an embedder")
    begin, end = (f"{row.median:.2f} on {day(row.day)}" for row in (days[0], days[-1]))
    if len(days) == 1:
        return Chart(f"median novelty {begin}, the only day so far")
    at = [date.fromisoformat(row.day).toordinal() for row in days]
    across, up = scale(at[0], at[-1], 34, WIDTH - 6), scale(0, 1, 176, 22)
    drawn = [*zip(map(across, at), days, strict=True)]
    around = [(x, up(row.high)) for x, row in drawn] + [(x, up(row.low)) for x, row in drawn[::-1]]
    marks = grid(up, 28, {0: "0", 0.5: "0.5", 1: "1"})
    marks.append(polyline(around, "kp-band", "polygon"))
    marks.append(polyline([(x, up(row.median)) for x, row in drawn], "kp-curve kp-line-orange"))
    rows = []
    for x, row in drawn:
        low, median, high = (f"{value:.2f}" for value in (row.low, row.median, row.high))
        spot = line(x, 22, x, 176, "point-at"), dot((x, up(row.median)), 2, "orange")
        marks.append(group(f"{row.day}: median {median}, most from {low} to {high}", spot))
        rows.append(TableRow((row.day, low, median, high)))
    marks += [label(day(days[0].day), 28, 193), label(day(days[-1].day), WIDTH, 193, "end")]
    table = Table(("Day", "10%", "Median", "90%"), rows)
    return Chart(f"Median novelty went from {begin} to {end}", table, marks=marks, height=198)


def removal_bars(removed: Sequence[storage.Removal]) -> Chart:
    amounts: Counter[str] = Counter()
    for removal in removed:
        amounts[removal.kind] += removal.times
    (most, amount), *_ = drawn = amounts.most_common()
    caption = f"{amounts.total():,} removed in the 12 weeks up to the newest run;"
    caption += f" most often {most}, {amount:,} times"
    bars = [BarRow(kind, f"{n:,}", segments=(_segment(n, amount, "plain"),)) for kind, n in drawn]
    rows = [TableRow((removal.week, removal.kind, f"{removal.times:,}")) for removal in removed]
    return Chart(caption, Table(("Week from", "Kind", "Removed"), rows), bars)


def score_histogram(scores: storage.ScoreSlices, links: Links) -> Chart:
    """Draw a histogram of scores in bins of 0.05, with the threshold if it is fixed."""
    if not scores.traces:
        return Chart(_NO_SCORES)
    columns, rows = [], []
    amounts = [(runs.hundredth, runs.traces - runs.above, runs.above) for runs in scores.slices]
    for name, below, above, href in _score_bins(amounts, 5, links):
        parts = {"below": below, "cleared": above}
        columns.append(Column(f"{name}: {counted(below + above, 'run')}", parts, href))
        if below or above:
            rows.append(TableRow((name, f"{below:,}", f"{above:,}"), href))
    labels = {2 * tenths: f"{tenths / 10:g}" for tenths in range(0, 11, 2)}
    marks, across = stacked(columns, labels, height=208, top=34)
    names, where = ("Score", "Withheld", "Cleared"), _PASSED
    if scores.threshold is not None:
        reach, x = exact(scores.threshold), across(scores.threshold * len(columns))
        marks += threshold_line(f"threshold {reach}", x, 22, 186)
        names, where = ("Score", "Below", "At or above"), f"at or above {reach}"
    return Chart(_ratio_text(scores, where), Table(names, rows), marks=marks, height=208)


def threshold_curve(scores: storage.ScoreSlices, links: Links) -> Chart:
    if not scores.traces:
        return Chart(_NO_SCORES)
    shown, threshold = scores.without_private, scores.threshold
    colours = colours_of(scores.domains)
    verb = _PASSED if threshold is None else f"reach {exact(threshold)}"
    caption, passing = _ratio_text(shown, verb), "Passing"
    private = scores.traces - shown.traces
    if not shown.traces:
        shown, passing, private = scores, _IF_NOT_PRIVATE, 0
        caption = "All scored runs are private and never leave this machine. If they were not: "
        caption += _ratio_text(scores, verb)
    groups = {"all": shown}
    if len(shown.domains) > 1:
        groups |= {name: shown.of(name) for name in shown.domains}
    names = [*groups][: _MAX_CURVES + 1]
    if len(groups) > len(names):
        caption += f"; the {_MAX_CURVES} most frequent of {len(groups) - 1} domains are shown"
    across, up = scale(0, 1, 40, WIDTH - 4), scale(0, 1, 216, 30)
    marks = grid(up, 40, {share / 100: f"{share}%" for share in range(0, 101, 25)})
    marks += [label(f"{at / 10:g}", across(at / 10), 232, "middle") for at in range(0, 11, 2)]
    curves, keys = [], []
    for place, name in enumerate(names):
        scored, href = groups[name], links.runs(domain=name, sort="score") if place else None
        style = f"kp-curve kp-line-{colours[name] if place else 'ink'}"
        style += f" kp-dash-{place - 1}" if place > 1 else ""  # not by color alone
        heights = [up(scored.count_reaching(at) / scored.traces) for at in range(101)]
        curve = polyline([(across(at / 100), y) for at, y in enumerate(heights)], style)
        curves.append(group(f"{name}: {scored.above:,} of {scored.traces:,} now", (curve,), href))
        swatch = polyline(((0, 0), (_SWATCH_WIDTH, 0)), style)
        share = percent(scored.above, scored.traces)
        keys.append(Key(f"{name} {share}", swatch, href, _SWATCH_WIDTH))
    marks += reversed(curves)
    if threshold is not None:
        marks += threshold_line(f"threshold {exact(threshold)}", across(threshold), 22, 216)
    columns = ("Threshold", passing, "Share", *[*groups][1:])
    if private:
        columns += (_IF_NOT_PRIVATE,)
    table = Table(columns, [*_curve_rows(groups.values(), threshold, scores if private else None)])
    return Chart(caption, table, marks=marks, height=236, legend=keys)


def _ratio_text(scores: storage.ScoreSlices, verb: str) -> str:
    above, traces = scores.above, scores.traces
    return f"{above:,} of {traces:,} {verb} ({percent(above, traces)})"


def _curve_rows(
    curves: Collection[storage.ScoreSlices],
    threshold: float | None,
    private: storage.ScoreSlices | None,
) -> Iterator[TableRow]:
    """Yield a row per 0.05 and for the threshold; ``private``: all runs, to count these last."""
    steps = {hundredth / 100 for hundredth in range(0, 101, 5)}
    for step in sorted(steps if threshold is None else steps | {threshold}):
        is_now = step == threshold
        reach = [
            curve.above if is_now else curve.count_reaching(round(100 * step))
            for curve in (*curves, *filter(None, [private]))
        ]
        shares = [*map(percent, reach, [curve.traces for curve in curves])]
        shares += [f"{reach[-1] - reach[0]:,}"] if private else []
        name = f"{step:.2f}" if float(f"{step:.2f}") == step else str(step)
        yield TableRow((f"{'→ ' * is_now}{name}", f"{reach[0]:,}", *shares))
