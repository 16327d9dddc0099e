"""Which tools? How often each was called, how often it failed, and how long it took."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kp_middleware.web.pictures._palette import LOSS, PLAIN
from kp_middleware.web.pictures._picture import WIDTH, Line, Picture, drawing, empty
from kp_middleware.web.pictures._rows import ROW, BarRow, Part, bar_rows
from kp_middleware.web.pictures._scale import Scale
from kp_middleware.web.pictures._wording import count, took

_NOTHING: Final = "no tool calls yet: tools of LangChain are seen by themselves, others by @kp.tool"
_COLUMNS: Final = ("Tool", "Calls", "Failed", "Mean time")


class ToolCalls(NamedTuple):
    """What is known of one tool.

    Attributes:
        mean_ms: None where no call was timed.
        href: Where its traces are listed; None means nowhere.
    """

    tool: str
    calls: int
    failures: int
    mean_ms: float | None
    href: str | None = None


class AllTools(NamedTuple):
    """Of all tools together, also of those that are not drawn."""

    tools: int
    calls: int
    failures: int


def tool_bars(tools: Sequence[ToolCalls], whole: AllTools) -> Picture:
    """One bar a tool, and what failed of it at its end.

    Args:
        tools: Those that are drawn.
        whole: What all of them did.
    """
    if not tools:
        return empty(_NOTHING)
    most = max(tools, key=lambda tool: tool.calls)
    finding = f"{most.tool} was called most: {count(most.calls)} of {count(whole.calls)} calls"
    finding += f"; {count(whole.failures)} failed" if whole.failures else "; none failed"
    if whole.tools > len(tools):
        finding += f". The {count(len(tools))} most used of {count(whole.tools)}"
    scale = Scale(0, max(1, *map(_whole, tools)), 0, WIDTH)
    svg = drawing(ROW * len(tools), finding, *bar_rows([_row(tool) for tool in tools], scale))
    return Picture(svg, finding, _COLUMNS, tuple(Line(_cells(tool), tool.href) for tool in tools))


def _row(tool: ToolCalls) -> BarRow:
    whole = _whole(tool)
    good = Part(0, whole - tool.failures, PLAIN)
    parts = (good, Part(whole - tool.failures, whole, LOSS)) if tool.failures else (good,)
    failed = f"{count(tool.failures)} failed" if tool.failures else ""
    mean = "" if tool.mean_ms is None else took(tool.mean_ms)
    working = " · ".join(text for text in (failed, mean) if text)
    return BarRow(tool.tool, count(tool.calls), parts, working, tool.href)


def _whole(tool: ToolCalls) -> int:
    return max(tool.calls, tool.failures)  # what failed may not have been noted as a call


def _cells(tool: ToolCalls) -> tuple[str, ...]:
    mean = "" if tool.mean_ms is None else took(tool.mean_ms)
    return tool.tool, count(tool.calls), count(tool.failures), mean
