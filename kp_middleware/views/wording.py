"""Words for numbers, ids and counts; texts that are safe to print."""

import json
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["NO_OBJECTIVE", "OUTCOMES", "as_text", "cell", "counted", "cut", "day", "distance",
           "duration", "in_words", "minute", "one_line", "outcome", "percent", "printable",
           "sentence", "short_bar", "short_id", "shortened", "signed", "width_of",
           "zero_or_one"]  # fmt: skip

_NBSP: Final = "\N{NO-BREAK SPACE}"  # no line break between a number and its unit
_MONTHS: Final = (
    *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
    *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
)
_JOINERS: Final = "\u200c\u200d"
"""Many languages and emoji need them."""


def one_line(text: str) -> str:
    return printable(" ".join(text.split()))


def printable(line: str) -> str:
    return "".join(sign if sign.isprintable() or sign in _JOINERS else "?" for sign in line)


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


NO_OBJECTIVE: Final = "(no objective)"
OUTCOMES: Final = ("succeeded", "failed", "not known")
"""The outcomes of a run, as in `Filters`."""


def outcome(success: bool | None) -> str:  # noqa: FBT001 - an outcome
    """Return one of `OUTCOMES`; None means not known."""
    return OUTCOMES[2] if success is None else OUTCOMES[not success]


def zero_or_one(value: bool | None) -> int | None:  # noqa: FBT001 - an outcome
    return None if value is None else int(value)


def in_words(counts: Mapping[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count:,} {name}" for name, count in ordered if count)


def short_bar(bar: float) -> str:
    """Format a threshold with at most three digits, like scores."""
    return f"{round(bar, 3):g}"


def distance(margin: float, *, least: int = 3) -> str:
    """Format a margin with ``least`` digits, or more until one is not 0."""
    digits = next((digits for digits in range(least, 18) if round(margin, digits)), least)
    return f"{abs(margin):.{digits}f}"


def percent(part: int, whole: int) -> str:
    """Format a part of a whole; never 0% for some or 100% for not all."""
    if part in {0, whole}:
        return "100%" if part else "0%"
    if 1000 * part < whole:
        return "<0.1%"
    return ">99.9%" if 1000 * part > 999 * whole else f"{part / whole:.1%}"


def duration(milliseconds: float) -> str:
    if milliseconds < 1000:
        return f"{f'{milliseconds:.0f}' if milliseconds >= 1 else '<1'}{_NBSP}ms"
    seconds = milliseconds / 1000
    if seconds < 60:
        return f"{seconds:.1f}{_NBSP}s"
    return f"{seconds // 60:.0f}{_NBSP}min {seconds % 60:.0f}{_NBSP}s"


def day(text: str, *, year: bool = True) -> str:
    """Format a day, in any locale the same."""
    short = f"{int(text[8:10])} {_MONTHS[int(text[5:7]) - 1]}"
    return f"{short} {text[:4]}" if year else short


def minute(instant: str) -> str:
    return instant[:16].replace("T", " ")


def shortened(text: str, most: int) -> str:
    """Cut a text between two words, marked with …; never blank."""
    text = " ".join(text.split())
    if len(text) <= most:
        return text or NO_OBJECTIVE
    return f"{text[: most - 1].rpartition(' ')[0] or text[: most - 2]} …"


def sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def signed(amount: float, digits: int = 3) -> str:
    return f"{amount:+,.{digits}f}".replace("-", "−")


def short_id(trace_id: str) -> str:
    return trace_id.removeprefix("kp:trace:")[:8]


def cell(value: Any, column: str) -> str:
    """Format a value for a table: on one line, three decimals, durations with a unit.

    >>> cell(12345, "calls"), cell(1234.5, "mean_ms"), cell(0.75, "score"), cell(None, "score")
    ('12,345', '1.2 s', '0.750', '')
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        return one_line(as_text(value))
    if column.endswith("_ms"):
        return one_line(duration(value))
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"


def as_text(value: Any) -> str:
    """Return a value as text: None is empty; lists, mappings, true and false are JSON."""
    if isinstance(value, dict | list | bool):
        return json.dumps(value, ensure_ascii=False)
    return "" if value is None else str(value)


def width_of(line: str) -> int:
    """Return a line's width in columns: some characters take two, some none."""
    if line.isascii():
        return len(line)
    from rich.cells import cell_len

    return cell_len(line)


def cut(line: str, width: int) -> str:
    if width_of(line) <= width:
        return line
    from rich.cells import set_cell_size

    return set_cell_size(line, max(width - 1, 0)).rstrip() + "…"
