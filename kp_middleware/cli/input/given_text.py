"""What a file or a pipe holds, as the text that it certainly is."""

import codecs
from typing import Final

import click

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before the one of UTF-16, with which it begins
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_REMEDY: Final = "write it as UTF-8: iconv -f latin1 -t utf-8, Out-File -Encoding utf8"


def given_text(content: bytes) -> str:
    """The text, by the mark it begins with or else as UTF-8; other bytes would hide what is meant.

    Raises:
        click.ClickException: If it is no text.
    """
    mark, encoding = next(
        ((mark, name) for mark, name in _MARKS if content.startswith(mark)), (b"", "utf-8")
    )
    try:
        text = content.removeprefix(mark).decode(encoding)
    except UnicodeDecodeError as error:
        place = len(mark) + error.start
        message = f"byte {place:,} is not {encoding}: {_REMEDY}"
        raise click.ClickException(message) from None  # the cause holds the text
    if "\0" in text:
        message = f"character {text.index(chr(0)):,} is NUL, which no text holds: {_REMEDY}"
        raise click.ClickException(message)
    return text
