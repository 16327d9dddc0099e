"""The ``redact`` command: redact a text by your settings, before anything is sent."""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, Final

import click

from kp_middleware.cli import console, options
from kp_middleware.cli.console import FOUND, Output
from kp_middleware.errors import RedactionError
from kp_middleware.privacy import (
    KnownSecrets,
    Policy,
    Redacted,
    parse_json,
    redact_jsonable,
    redact_text,
)
from kp_middleware.views.wording import in_words

if TYPE_CHECKING:
    from pathlib import Path

    from kp_middleware.traces import PrivacyLevel

_LEVELS: Final = ("aggregated", "federated", "private")
_AT_ONCE: Final = 1 << 20  # characters; rules see them all
_PART: Final = 1 << 19  # characters, at the most
_AROUND: Final = 1 << 15  # twice the longest value that a rule takes
_STEP: Final = 1 << 12
_TRIES: Final = 16
_REMEDY: Final = "convert it to UTF-8: iconv -f latin1 -t utf-8, Out-File -Encoding utf8"


@click.command()
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--level", type=click.Choice(_LEVELS), help="Default: your privacy_level.")
@click.option("--report", is_flag=True, help="Print what was redacted and where, not the text.")
@click.option("--check", is_flag=True, help="Only exit with 3 if something would be redacted.")
@options.json_option
@options.pass_db
def redact(
    db: "Path", *, file: BinaryIO, level: "PrivacyLevel | None", report: bool, check: bool
) -> None:
    """Redact a text or JSON by your settings. Sends nothing.

    FILE is plain text, JSON or JSON lines; - is standard input.

    \b
    kp-middleware redact build.log
    git diff | kp-middleware redact --check && git push
    """
    settings = options.read_settings(db)
    policy = Policy.of(settings)
    cleaned = _cleaned(_decoded(file.read()), level or settings.privacy_level, policy)
    as_json = console.has_flag("as_json")
    if report or as_json:
        usual = "table" if sys.stdout.isatty() else "tsv"
        counts = sorted(Counter((one.label, one.path) for one in cleaned.found).items())
        rows = ({"kind": kind, "count": count, "path": path} for (kind, path), count in counts)
        Output("json" if as_json else usual).print(rows, ("kind", "count", "path"))
    elif not check:
        click.echo(cleaned.text, nl=False, color=True)  # colours stay
    if check and cleaned.found:
        kinds = Counter(one.label for one in cleaned.found)
        console.warn(f"{in_words(kinds)} would be redacted")
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
        raise click.ClickException(f"character {text.index(chr(0)):,} is NUL: {_REMEDY}")
    return text


def _cleaned(text: str, level: "PrivacyLevel", policy: Policy) -> Redacted:
    """Redact JSON, JSON lines or a text of any length; a secret found anywhere goes everywhere."""
    known = KnownSecrets()
    clean_json = partial(_clean_json, level=level, policy=policy, known=known)
    lines = text.splitlines(keepends=True)
    if parse_json(text) is not None:
        return clean_json(text)
    if all(parse_json(line) is not None for line in lines if line.strip()):
        cleaned, found = _each(lines, clean_json, known), []
        for number, line in enumerate(cleaned, 1):
            found += [one._replace(path=f"line {number}: {one.path}") for one in line.found]
    elif len(text) <= _AT_ONCE:
        return redact_text(text, level=level, policy=policy)
    else:
        clean = partial(redact_text, level=level, policy=replace(policy, numbered=False))
        parts = [*_parts(text, clean)]
        cleaned, found, above = _each(parts, partial(clean, known=known), known), [], 0
        for part, redacted in zip(parts, cleaned, strict=True):
            for one in redacted.found:
                number = above + int(one.path.removeprefix("line "))
                found.append(one._replace(path=f"line {number}"))
            above += part.count("\n")
        unnumbered = ", without numbers" if policy.numbered else ""
        console.warn(f"a long text: cleaned in {len(parts)} parts{unnumbered}")
    return Redacted("".join(one.text for one in cleaned), tuple(found))


def _parts(text: str, clean: Callable[[str], Redacted]) -> Iterator[str]:
    """Yield a text in parts of many lines; no finding spans two parts."""
    start = 0
    while len(text) - start > _PART:
        end = _cut(text, start, clean)
        yield text[start:end]
        start = end
    yield text[start:]


def _cut(text: str, start: int, clean: Callable[[str], Redacted]) -> int:
    most = start + _PART
    for _ in range(_TRIES):
        place = text.rfind("\n", start, most) + 1
        if not place:
            break
        before, after = text[max(start, place - _AROUND) : place], text[place : place + _AROUND]
        if clean(before + after).text == clean(before).text + clean(after).text:
            return place
        most = max(start, place - _STEP)
    raise RedactionError("too_large", f"character {start:,}: there is no line end to cut at")


def _each(
    pieces: list[str], clean: Callable[[str], Redacted], known: KnownSecrets
) -> list[Redacted]:
    """Redact each piece; a secret found in the last is removed from the first, too."""
    cleaned = [clean(piece) for piece in pieces]
    return [clean(piece) for piece in pieces] if known else cleaned


def _clean_json(
    text: str, *, level: "PrivacyLevel", policy: Policy, known: KnownSecrets
) -> Redacted:
    """Redact JSON; return the text unchanged if nothing had to be removed."""
    redacted = redact_jsonable(parse_json(text), level=level, policy=policy, known=known)
    if not redacted.found:
        return Redacted(text, ())
    body = text.strip()
    indent = 2 if "\n" in body else None
    written = json.dumps(redacted.value, ensure_ascii=False, indent=indent)
    return Redacted(text.replace(body, written, 1), redacted.found)
