"""The ``redact`` command: redact a text by your settings, before anything is sent."""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO, Final

import click

from kp_middleware.cli.console import FOUND, Row
from kp_middleware.cli.rows import Output, json_option
from kp_middleware.cli.user_settings import pass_db, read_settings
from kp_middleware.privacy import (
    Found,
    KnownSecrets,
    Policy,
    Redacted,
    document_in,
    redact_jsonable,
    redact_text,
)
from kp_middleware.views.wording import in_words

if TYPE_CHECKING:
    from pathlib import Path

    from kp_middleware.traces import PrivacyLevel

_LEVELS: Final = ("aggregated", "federated", "private")
_LONGEST: Final = 1 << 20  # characters; rules see them all
_COLUMNS: Final = ("kind", "count", "path")
_REMEDY: Final = "convert it to UTF-8: iconv -f latin1 -t utf-8, Out-File -Encoding utf8"


@click.command()
@click.argument("file", type=click.File("rb"), default="-")
@click.option(
    "--level", type=click.Choice(_LEVELS), help="Privacy level. Default: your privacy_level."
)
@click.option("--report", is_flag=True, help="Print what was redacted and where, not the text.")
@click.option(
    "--check", is_flag=True, help="Print no text; exit with 3 if something would be redacted."
)
@json_option
@pass_db
def redact(
    db: "Path",
    *,
    file: BinaryIO,
    level: "PrivacyLevel | None",
    report: bool,
    check: bool,
    as_json: bool,
) -> None:
    """Redact a text or JSON by your settings. Sends nothing.

    FILE is plain text of at most 1 MiB, JSON or JSON lines; - is standard input.

    \b
    kp-middleware redact build.log
    git diff | kp-middleware redact --check && git push
    """
    settings = read_settings(db)
    policy = Policy.of(settings)
    cleaned = _cleaned(_decoded(file.read()), level or settings.privacy_level, policy)
    if report or as_json:
        usual = "table" if sys.stdout.isatty() else "tsv"
        Output("json" if as_json else usual).print(_rows(cleaned.found), _COLUMNS)
    elif not check:
        click.echo(cleaned.text, nl=False, color=True)  # colours stay
    if check and cleaned.found:
        counts = Counter(one.label for one in cleaned.found)
        click.echo(f"{in_words(counts)} would be redacted", err=True)
        sys.exit(FOUND)


def _decoded(content: bytes) -> str:
    """Read it by its byte-order mark or as UTF-8; other bytes would hide what is meant."""
    encoding = json.detect_encoding(content)
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        message = f"byte {error.start:,} is not {encoding}: {_REMEDY}"
        raise click.ClickException(message) from None  # the cause holds the text
    if "\0" in text:
        message = f"character {text.index(chr(0)):,} is NUL: {_REMEDY}"
        raise click.ClickException(message)
    return text


def _cleaned(text: str, level: "PrivacyLevel", policy: Policy) -> Redacted:
    document, known = document_in(text), KnownSecrets()
    if document is not None:
        return _clean_json(text, document, level, policy, known)
    lines = text.splitlines(keepends=True)
    if any(line.strip() and document_in(line) is None for line in lines):
        if len(text) > _LONGEST:
            raise click.ClickException(
                "longer than 1 MiB: redact the parts, as split -C 1M makes them"
            )
        return redact_text(text, level=level, policy=policy)
    cleaned = [_clean_json(line, document_in(line), level, policy, known) for line in lines]
    if known:  # a secret found in the last line is removed from the first, too
        cleaned = [_clean_json(line, document_in(line), level, policy, known) for line in lines]
    found = (
        one._replace(path=f"line {number}: {one.path}")
        for number, line in enumerate(cleaned, 1)
        for one in line.found
    )
    return Redacted("".join(line.text for line in cleaned), tuple(found))


def _clean_json(
    text: str, document: object, level: "PrivacyLevel", policy: Policy, known: KnownSecrets
) -> Redacted:
    """Redact JSON; return the text unchanged if nothing had to be removed."""
    redacted = redact_jsonable(document, level=level, policy=policy, known=known)
    if not redacted.found:
        return Redacted(text, ())
    body = text.strip()
    indent = 2 if "\n" in body else None
    written = json.dumps(redacted.value, ensure_ascii=False, indent=indent)
    return Redacted(text.replace(body, written, 1), redacted.found)


def _rows(found: tuple[Found, ...]) -> Iterator[Row]:
    counts = Counter((one.label, one.path) for one in found)
    for (kind, path), count in sorted(counts.items()):
        yield {"kind": kind, "count": count, "path": path}
