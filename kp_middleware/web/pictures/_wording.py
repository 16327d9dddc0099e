"""Numbers and days as they are read, in any language of the machine."""

from typing import Final

from kp_middleware.views.wording import percent

_GLUED: Final = "\N{NO-BREAK SPACE}"  # a unit never stands on the line below its number
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
    r"""A part of a whole, as `percent` has it, in one word.

    >>> share(48, 600), share(1, 100_000), share(99_999, 100_000), share(0, 0)
    ('8.0\xa0%', '<0.1\xa0%', '>99.9\xa0%', '0\xa0%')
    """
    return percent(part, whole).replace("%", f"{_GLUED}%")


def took(milliseconds: float) -> str:
    r"""How long something took.

    >>> took(0.4), took(242.2), took(4200), took(754_000)
    ('<1\xa0ms', '242\xa0ms', '4.2\xa0s', '12\xa0min 34\xa0s')
    """
    if milliseconds < 1000:
        return f"{f'{milliseconds:.0f}' if milliseconds >= 1 else '<1'}{_GLUED}ms"
    seconds = milliseconds / 1000
    if seconds < 60:
        return f"{seconds:.1f}{_GLUED}s"
    return f"{seconds // 60:.0f}{_GLUED}min {seconds % 60:.0f}{_GLUED}s"


def day(text: str, *, year: bool = True) -> str:
    """A day as it is read.

    >>> day("2026-11-01"), day("2026-11-01", year=False)
    ('1 Nov 2026', '1 Nov')
    """
    short = f"{int(text[8:10])} {_MONTHS[int(text[5:7]) - 1]}"
    return f"{short} {text[:4]}" if year else short
