"""The ``doctor`` command: check that everything needed can be used."""

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from shutil import disk_usage
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import click
from pydantic import SecretStr

from kp_middleware.cli.console import FOUND, UNREACHABLE
from kp_middleware.cli.rows import json_option, print_json
from kp_middleware.cli.spans_untold import untold
from kp_middleware.cli.user_settings import named_file, typed_settings
from kp_middleware.core.gates import gate_of
from kp_middleware.embedding import describe_source, shared_embedder
from kp_middleware.errors import (
    EmbedderError,
    EmbedderNotReadyError,
    KnowledgePulseError,
    RedactionError,
    RegistryError,
    RegistryUnavailableError,
)
from kp_middleware.privacy import Policy, redact_text
from kp_middleware.setting_values import is_loopback
from kp_middleware.settings import Settings
from kp_middleware.settings_sources import unknown_variables
from kp_middleware.sharing import Examination, Link, examine
from kp_middleware.storage import (
    SQLITE_VERSION,
    TROUBLE,
    History,
    LastDecisions,
    in_words,
    open_to_all,
)
from kp_middleware.views.wording import one_line

_CLOCK_S: Final = 5.0
_MOST_PODS: Final = 5
_LITTLE_BYTES: Final = 100_000_000
_WRITABLE: Final = "make it and its folder writable, or name another file with KP_DB or --db"
_IN_WORDS: Final = {
    "sound": "sound",
    "damaged": "damaged",
    "not known": "too large to check all of it in 2 s",
}


class Finding(NamedTuple):
    """The finding of one check.

    Attributes:
        check: What was looked at.
        ok: Whether it is usable.
        detail: What was found, and what to do if it is not usable.
        try_later: Whether to wait may be all that is to be done: the registry cannot be reached.
        warning: Whether it is usable, and wants a look all the same.
    """

    check: str
    ok: bool
    detail: str
    try_later: bool = False
    warning: bool = False


@click.command()
@json_option
@click.pass_context
def doctor(context: click.Context, *, as_json: bool) -> None:
    """Check the setup and suggest fixes.

    Checks settings, file, disk, gate, model, redaction, registry and shared log. Exits with 3 if a
    check fails, or with 5 if the only failure is an unreachable registry or log.

    \b
    kp-middleware doctor || kp-middleware status
    """
    findings = [*_examine(named_file(context))]
    if as_json:
        print_json([finding._asdict() for finding in findings])
    else:
        for finding in findings:
            how = "TROUBLE" if not finding.ok else "warning" if finding.warning else "ok"
            click.echo(f"{how:<8} {finding.check:<9} {finding.detail}")
    troubles = [finding for finding in findings if not finding.ok]
    if troubles:
        sys.exit(UNREACHABLE if all(trouble.try_later for trouble in troubles) else FOUND)


def _examine(db: Path | None) -> Iterator[Finding]:
    """Check settings, file, gate, model, redaction and registry, one after another.

    Args:
        db: The file of traces, where it was named on the command line.
    """
    typed = {"db": db} if db else {}
    settings = typed_settings(typed)
    if wrong := [one_line(str(problem)) for problem in settings.problems]:
        told = f"nothing is sent until this is corrected: {'; '.join(wrong)}"
        yield Finding("settings", ok=False, detail=told)
    if unknown := unknown_variables(Settings.model_fields):
        told = "; ".join(f"{name} is no setting: {remedy}" for name, remedy in unknown.items())
        yield Finding("settings", ok=True, detail=one_line(told), warning=True)
    yield _file(settings.db)
    yield _gate(settings)
    yield from _review(settings.db.expanduser())
    yield from _tokens(settings.db.expanduser())
    yield _model(settings)
    yield _redaction(Policy.of(settings))
    yield from _spans()
    if not settings.problems:
        yield _registry(settings)
    yield from _shared_log(settings)


def _file(path: Path) -> Finding:
    """Check the file, read-only: a mistyped name must not become a file."""
    path = path.expanduser()
    if not _has_content(path):
        return _no_file(path)
    try:
        with History.open(path) as history:
            count, soundness = history.count(), history.check_soundness(limit_s=2)
    except TROUBLE as error:
        return Finding("file", ok=False, detail=str(in_words(path, error)))
    if not os.access(path, os.W_OK):
        return Finding("file", ok=False, detail=f"{path} is read-only for you: {_WRITABLE}")
    if opened := open_to_all(path):
        return Finding("file", ok=False, detail=opened)
    free_bytes = disk_usage(path.parent).free
    facts = f"{path}: {count:,} traces, {_IN_WORDS[soundness]}, {free_bytes / 1e9:,.1f} GB free"
    if soundness == "damaged":
        return Finding("file", ok=False, detail=f"{facts}; record a run: that saves what it can")
    if free_bytes < _LITTLE_BYTES:
        return Finding("file", ok=False, detail=f"{facts}; make room, or runs will be lost")
    return Finding("file", ok=True, detail=f"{facts}, SQLite {SQLITE_VERSION}")


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _no_file(path: Path) -> Finding:
    """Check that a missing file can be created; before the first run nothing is wrong."""
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not os.access(folder, os.W_OK):
        return Finding("file", ok=False, detail=f"{path} cannot be made: {_WRITABLE}")
    problem = "is empty" if path.exists() else "does not exist yet"
    detail = f"{path} {problem}: record a run, or name another file with KP_DB or --db"
    return Finding("file", ok=True, detail=detail)


def _gate(settings: Settings) -> Finding:
    last, today = LastDecisions(), gate_of(settings).name
    try:
        if _has_content(settings.db.expanduser()):
            with History.open(settings.db) as history:
                last = history.last_decisions()
    except TROUBLE:  # its own finding says why
        detail = f"{today} from now on; the file cannot be read"
        return Finding("gate", ok=True, detail=one_line(detail))
    detail = last.in_words() if today == last.gate else f"{today} from now on; {last.in_words()}"
    return Finding("gate", ok=True, detail=one_line(detail), warning=last.is_dry)


def _review(path: Path) -> Iterator[Finding]:
    """Tell how many runs would go that nobody has judged; yield nothing if there are none."""
    with suppress(*TROUBLE):
        if _has_content(path):
            with History.open(path) as history:
                if (found := history.unjudged()).unjudged:
                    yield Finding("review", ok=True, detail=found.in_words())


def _tokens(path: Path) -> Iterator[Finding]:
    """Check for missing token counts; yield nothing without model calls or a readable file."""
    without, count = 0, 0
    with suppress(*TROUBLE):
        if _has_content(path):
            with History.open(path) as history:
                without, count = history.without_tokens()
    if without:
        detail = (
            f"{without:,} of {count:,} runs with a model have no token counts: some models tell "
            "them only where asked, ChatOpenAI with a base_url when it streams: stream_usage=True"
        )
        yield Finding("tokens", ok=True, detail=detail, warning=True)
    elif count:
        detail = f"counted in all runs with a model: {count:,}"
        yield Finding("tokens", ok=True, detail=detail)


def _model(settings: Settings) -> Finding:
    embedder = shared_embedder(settings.embedder, threads=settings.embedder_threads)
    if embedder is None:
        return Finding("model", ok=True, detail="not used: KP_EMBEDDER is none, novelty is 0.5")
    started = time.perf_counter()
    try:
        embedder.embed("hello world")
    except EmbedderNotReadyError as error:
        return Finding("model", ok=False, detail=f"{error}; until then runs wait in the file")
    except EmbedderError as error:
        return Finding("model", ok=False, detail=f"{error}; without it novelty is 0.5")
    took_s = time.perf_counter() - started
    detail = f"{embedder.name}, from {describe_source()}, ready in {took_s:.1f} s"
    return Finding("model", ok=True, detail=detail)


def _redaction(policy: Policy) -> Finding:
    try:
        redact_text("a text", level="aggregated", policy=policy)
    except RedactionError as error:
        return Finding("redaction", ok=False, detail=f"{error}; until then nothing is sent")
    engines = ", ".join(("our own rules", *policy.engines))
    return Finding("redaction", ok=True, detail=f"by {engines}: {policy.redactor}")


def _spans() -> Iterator[Finding]:
    """Tell which variables keep OpenTelemetry from telling our processors what was said."""
    if amiss := untold():
        yield Finding("spans", ok=True, detail=one_line("; ".join(amiss)), warning=True)


def _shared_log(settings: Settings) -> Iterator[Finding]:
    """Write to the shared log and roll back; yield nothing where none is set."""
    if settings.shared is None:
        return
    url = settings.shared.get_secret_value()
    link = Link(url, "doctor")
    try:
        found = examine(link)
    except KnowledgePulseError as error:
        yield Finding("shared", ok=False, detail=one_line(str(error)), try_later=True)
        return
    finally:
        link.close()
    version = found.server.split()[0]
    told = f"{link.shown}: PostgreSQL {version}, written and rolled back; a round trip of"
    yield Finding("shared", ok=True, detail=f"{told} {found.round_trip_s * 1000:.2g} ms")
    for detail in _doubts(url, found):
        yield Finding("shared", ok=True, detail=one_line(detail), warning=True)


def _doubts(url: str, found: Examination) -> Iterator[str]:
    """Yield what works, and may not be what was meant."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host and not is_loopback(host) and "sslmode=verify-full" not in parts.query:
        yield (
            f"{'encrypted' if found.is_encrypted else 'not encrypted'}, and nobody checks whose"
            " server it is: add ?sslmode=verify-full to KP_SHARED"
        )
    if abs(found.ahead_s) > _CLOCK_S:
        where = "behind" if found.ahead_s > 0 else "ahead of"
        yield f"this machine's clock is {abs(found.ahead_s):,.0f} s {where} the server's"
    usual = Counter(how for _, how in found.settings).most_common(1)
    if others := [f"{pod} ({how})" for pod, how in found.settings if how != usual[0][0]]:
        yield f"most pods decide by {usual[0][0]}; others: {', '.join(others[:_MOST_PODS])}"


def _registry(settings: Settings) -> Finding:
    if settings.visibility == "private":
        return Finding("registry", ok=True, detail="not used: the visibility is private")
    if settings.api_key is None:
        return _without_a_key(settings)
    try:
        return _with_a_key(settings, settings.api_key)
    except RegistryError as error:
        try_later = isinstance(error, RegistryUnavailableError)
        return Finding("registry", ok=False, detail=one_line(str(error)), try_later=try_later)
    except ValueError as error:
        detail = f"{error}; correct KP_REGISTRY_URL"
        return Finding("registry", ok=False, detail=detail)


def _without_a_key(settings: Settings) -> Finding:
    unused = settings.unused_login
    if unused is not None:
        return Finding("registry", ok=False, detail=f"nothing is sent: {unused}")
    detail = "not used: without KP_API_KEY nothing leaves this machine"
    return Finding("registry", ok=True, detail=detail)


def _with_a_key(settings: Settings, api_key: SecretStr) -> Finding:
    from kp_middleware.export import Registry
    from kp_middleware.pipeline import check_key

    registry = Registry(settings.registry_url, api_key, agent_id=settings.agent_id)
    with closing(registry):
        registry.reach()
        may_write = check_key(registry, settings)
    known = "and takes this API key" if may_write else "and knows this API key; whether it may"
    later = "" if may_write else " write cannot be asked while sending pauses"
    return Finding("registry", ok=True, detail=f"{registry.url} answers, {known}{later}")
