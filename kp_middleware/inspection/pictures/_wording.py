"""Numbers and days as they are read, in any language of the machine."""

from typing import Final

_MONTHS: Final = (
    *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
    *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
)


def count(number: int) -> str:
    """A count as it is read.

    >>> count(12345)
    '12,345'
    """
    return f"{number:,}"


def share(part: int, whole: int) -> str:
    """A part of a whole in per cent; never 0 % or 100 % for some or for not all.

    >>> share(48, 600), share(1, 100_000), share(99_999, 100_000), share(0, 0)
    ('8.0 %', '<0.1 %', '>99.9 %', '0 %')
    """
    if part in {0, whole}:
        return "100 %" if part else "0 %"
    percent = 100 * part / whole
    if percent < 0.1:
        return "<0.1 %"
    return ">99.9 %" if percent > 99.9 else f"{percent:.1f} %"


def took(milliseconds: float) -> str:
    """How long something took.

    >>> took(0.4), took(242.2), took(4200), took(754_000)
    ('<1 ms', '242 ms', '4.2 s', '12 min 34 s')
    """
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms" if milliseconds >= 1 else "<1 ms"
    seconds = milliseconds / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"


def day(text: str, *, year: bool = True) -> str:
    """A day as it is read.

    >>> day("2026-11-01"), day("2026-11-01", year=False)
    ('1 Nov 2026', '1 Nov')
    """
    short = f"{int(text[8:10])} {_MONTHS[int(text[5:7]) - 1]}"
    return f"{short} {text[:4]}" if year else short
