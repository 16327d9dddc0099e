"""The ``redact`` command: redact text or JSON with your settings."""

import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, BinaryIO, Final

import click

from kp_middleware import privacy
from kp_middleware.cli import console, options
from kp_middleware.cli.console import ATTENTION, Output
from kp_middleware.errors import RedactionError
from kp_middleware.views.wording import in_words

if TYPE_CHECKING:
    from pathlib import Path

    from kp_middleware.traces import PrivacyLevel

_MAX_WHOLE: Final = 1 << 20  # characters; longer text is redacted in chunks
_MAX_CHUNK: Final = 1 << 19  # characters
_CONTEXT: Final = 1 << 15  # twice the longest match of any rule
_BACKTRACK: Final = 1 << 12
_REMEDY: Final = "convert it to UTF-8: iconv -f latin1 -t utf-8, Out-File -Encoding utf8"


@click.command()
@click.argument("file", type=click.File("rb"), default="-")
@click.option(
    "--level",
    type=click.Choice(("aggregated", "federated", "private")),
    help="Default: your privacy_level.",
)
@click.option("--report", is_flag=True, help="Print what was redacted and where, not the text.")
@click.option(
    "--check", is_flag=True, help="Print no text; exit with 3 if anything would be redacted."
)
@options.json_option
@options.pass_db
def redact(
    db: "Path", *, file: BinaryIO, level: "PrivacyLevel | None", report: bool, check: bool
) -> None:
    """Redact text or JSON with your settings. Sends nothing.

    FILE is plain text, JSON or JSON lines; - is standard input.

    \b
    kp-middleware redact build.log
    git diff | kp-middleware redact --check && git push
    """
    settings = options.read_settings(db)
    policy = privacy.Policy.from_settings(settings)
    redacted = _redact(_decode(file.read()), level or settings.privacy_level, policy)
    as_json = console.has_flag("as_json")
    if report or as_json:
        default = "table" if sys.stdout.isatty() else "tsv"
        counts = sorted(Counter((item.label, item.path) for item in redacted.found).items())
        rows = ({"kind": kind, "count": count, "path": path} for (kind, path), count in counts)
        Output("json" if as_json else default).print(rows, ("kind", "count", "path"))
    elif not check:
        click.echo(redacted.text, nl=False, color=True)  # colors stay
    if check and redacted.found:
        kinds = Counter(item.label for item in redacted.found)
        console.warn(f"{in_words(kinds)} would be redacted")
        sys.exit(ATTENTION)


def _decode(content: bytes) -> str:
    """Decode by byte-order mark, or as UTF-8: rules cannot match text in a wrong encoding."""
    encoding = json.detect_encoding(content)
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        message = f"byte {error.start:,} is not {encoding}: {_REMEDY}"
        raise click.ClickException(message) from None  # the cause contains the text
    if "\0" in text:
        raise click.ClickException(f"character {text.index(chr(0)):,} is NUL: {_REMEDY}")
    return text


def _redact(text: str, level: "PrivacyLevel", policy: privacy.Policy) -> privacy.Redacted:
    """Redact JSON, JSON lines or text; a secret found once is removed everywhere."""
    known = privacy.KnownSecrets()
    redact_line = partial(_redact_json, level=level, policy=policy, known=known)
    lines = text.splitlines(keepends=True)
    if privacy.parse_json(text) is not None:
        return redact_line(text)
    if all(privacy.parse_json(line) is not None for line in lines if line.strip()):
        redacted, findings = _redact_each(lines, redact_line, known), []
        for number, line in enumerate(redacted, 1):
            findings += [item._replace(path=f"line {number}: {item.path}") for item in line.found]
    elif len(text) <= _MAX_WHOLE:
        return privacy.redact_text(text, level=level, policy=policy)
    else:
        redact = partial(privacy.redact_text, level=level, policy=replace(policy, numbered=False))
        ends = [0]
        while len(text) - ends[-1] > _MAX_CHUNK:
            ends.append(_chunk_end(text, ends[-1], redact))
        chunks = [text[start:end] for start, end in pairwise([*ends, len(text)])]
        redacted, findings = _redact_each(chunks, partial(redact, known=known), known), []
        line_offset = 0
        for chunk, result in zip(chunks, redacted, strict=True):
            for item in result.found:
                number = line_offset + int(item.path.removeprefix("line "))
                findings.append(item._replace(path=f"line {number}"))
            line_offset += chunk.count("\n")
        unnumbered = "; placeholders are not numbered" if policy.numbered else ""
        console.warn(f"long text: redacted in {len(chunks)} chunks{unnumbered}")
    return privacy.Redacted("".join(result.text for result in redacted), tuple(findings))


def _chunk_end(text: str, start: int, redact: Callable[[str], privacy.Redacted]) -> int:
    limit = start + _MAX_CHUNK
    for _ in range(16):
        end = text.rfind("\n", start, limit) + 1
        if not end:
            break
        before, after = text[max(start, end - _CONTEXT) : end], text[end : end + _CONTEXT]
        if redact(before + after).text == redact(before).text + redact(after).text:
            return end
        limit = max(start, end - _BACKTRACK)
    raise RedactionError("too_large", f"character {start:,}: found no line end to split at")


def _redact_each(
    pieces: list[str], redact: Callable[[str], privacy.Redacted], known: privacy.KnownSecrets
) -> list[privacy.Redacted]:
    redacted = [redact(piece) for piece in pieces]
    return [redact(piece) for piece in pieces] if known else redacted


def _redact_json(
    text: str, *, level: "PrivacyLevel", policy: privacy.Policy, known: privacy.KnownSecrets
) -> privacy.Redacted:
    """Redact JSON; return the text unchanged if nothing was found."""
    value = privacy.parse_json(text)
    redacted = privacy.redact_jsonable(value, level=level, policy=policy, known=known)
    if not redacted.found:
        return privacy.Redacted(text, ())
    body = text.strip()
    indent = 2 if "\n" in body else None
    serialized = json.dumps(redacted.value, ensure_ascii=False, indent=indent)
    return privacy.Redacted(text.replace(body, serialized, 1), redacted.found)
