"""The command that cleans a text, so that anyone sees what would go before anything leaves."""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TextIO

import click

from kp_middleware.inspection._exit_codes import FOUND
from kp_middleware.inspection._explanation import in_words
from kp_middleware.inspection._output import Output, json_option
from kp_middleware.inspection._user_settings import read_settings
from kp_middleware.privacy import Found, Policy, document_in, redact_jsonable, redact_text
from kp_middleware.storage import Row

if TYPE_CHECKING:
    from kp_middleware.traces import PrivacyLevel

_LEVELS: Final = ("aggregated", "federated", "private")
_COLUMNS: Final = ("kind", "count", "path")


class _Cleaned(NamedTuple):
    """A text without what had to go, and where that was."""

    text: str
    found: tuple[Found, ...]


@click.command()
@click.argument("file", type=click.File(encoding="utf-8", errors="replace"), default="-")
@click.option(
    "--level", type=click.Choice(_LEVELS), help="What may stay. Default: your privacy_level."
)
@click.option("--report", is_flag=True, help="Print what goes, and where, instead of the text.")
@click.option("--check", is_flag=True, help="Print no text; exit with 3 if something would go.")
@json_option
@click.pass_obj
def redact(
    db: Path,
    *,
    file: TextIO,
    level: "PrivacyLevel | None",
    report: bool,
    check: bool,
    as_json: bool,
) -> None:
    """Take out of a text or JSON what must not be shared, by your settings. Nothing is sent.

    FILE is plain text, one JSON document, or one on each line; - is standard input.

    \b
    kp-middleware redact build.log
    git diff | kp-middleware redact --check && git push
    """
    settings = read_settings(db)
    cleaned = _cleaned(file.read(), level or settings.privacy_level, Policy.of(settings))
    if report or as_json:
        Output.usual(as_json=as_json).print(_rows(cleaned.found), _COLUMNS)
    elif not check:
        click.echo(cleaned.text, nl=False)
    if check and cleaned.found:
        counts = Counter(one.label for one in cleaned.found)
        click.echo(f"{in_words(counts)} would go", err=True)
        sys.exit(FOUND)


def _cleaned(text: str, level: "PrivacyLevel", policy: Policy) -> _Cleaned:
    document = document_in(text)
    if document is not None:
        return _clean_json(text, document, level, policy)
    lines = text.splitlines(keepends=True)
    documents = [document_in(line) for line in lines]
    if any(one is None and line.strip() for one, line in zip(documents, lines, strict=True)):
        redacted = redact_text(text, level=level, policy=policy)
        return _Cleaned(redacted.text, redacted.found)
    parts = [
        _clean_json(line, one, level, policy) for one, line in zip(documents, lines, strict=True)
    ]
    return _Cleaned("".join(part.text for part in parts), tuple(_numbered(parts)))


def _clean_json(text: str, document: object, level: "PrivacyLevel", policy: Policy) -> _Cleaned:
    """The text itself where nothing had to go."""
    redacted = redact_jsonable(document, level=level, policy=policy)
    if not redacted.found:
        return _Cleaned(text, ())
    body = text.strip()
    indent = 2 if "\n" in body else None
    written = json.dumps(redacted.value, ensure_ascii=False, indent=indent)
    return _Cleaned(text.replace(body, written, 1), redacted.found)


def _numbered(parts: list[_Cleaned]) -> Iterator[Found]:
    for number, part in enumerate(parts, 1):
        for found in part.found:
            yield found._replace(path=f"line {number}: {found.path}")


def _rows(found: tuple[Found, ...]) -> Iterator[Row]:
    counts = Counter((one.label, one.path) for one in found)
    for (kind, path), count in sorted(counts.items()):
        yield {"kind": kind, "count": count, "path": path}
