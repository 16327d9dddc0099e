"""The commands ``demo`` and ``doctor``."""

import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import click

from kp_middleware import errors, storage
from kp_middleware.cli import console, options
from kp_middleware.cli.console import ATTENTION, UNREACHABLE
from kp_middleware.core.formula import DEFAULT_THRESHOLD
from kp_middleware.embedding import shared_embedder
from kp_middleware.locations import unknown_variables
from kp_middleware.pipeline import KnowledgePulse
from kp_middleware.privacy import Policy, redact_text
from kp_middleware.setting_values import is_loopback
from kp_middleware.settings import Settings
from kp_middleware.shared_log import Link
from kp_middleware.testing import LocalRegistry
from kp_middleware.views.gate import review_backlog_in_words
from kp_middleware.views.wording import counted, one_line

_COLUMNS = ("id", "domain", "score", "success", "state", "reason", "objective")


@click.command()
@click.option("--into", type=options.FILE, help="Store its runs in this file.")
@options.json_option
def demo(*, into: Path | None) -> None:
    """Run a scripted demo agent with real tools and embeddings.

    Needs no key, account or network; nothing leaves this machine. Shows what is stored, what would
    be sent, and why.

    \b
    kp-middleware demo --into demo.db
    """
    if into is not None and into.exists() and into.stat().st_size:
        raise click.UsageError(f"{into} exists: choose a new file")
    try:
        run_tasks = next(iter(entry_points(group="kp_middleware.demos"))).load()
    except (ModuleNotFoundError, StopIteration) as error:
        raise errors.MissingExtraError("langchain") from error
    path = into or Path(tempfile.mkdtemp(prefix="kp-demo-")) / "kp.db"
    console.warn("Running a scripted agent with real tools …")
    with (
        LocalRegistry() as registry,
        KnowledgePulse(
            db=path,
            registry_url=registry.url,
            api_key=registry.api_key,
            agent_id="kp-demo",
            visibility="network",
            threshold=DEFAULT_THRESHOLD,
            enabled=True,
        ) as kp,
    ):
        if not kp.settings.enabled:
            raise click.ClickException("nothing can be recorded: unset KP_ENABLED")
        run_tasks(kp)
        kp.flush(timeout_s=60)
        stored = len(registry.documents)
    with storage.History.open(path) as history:
        rows = [console.run_row(run) for run in reversed(history.runs(limit=100))]
    if console.has_flag("as_json"):
        console.print_json({"path": str(path), "sent": stored, "runs": rows})
        return
    console.print_table([console.humanize_run(row) for row in rows], _COLUMNS)
    click.echo(
        f"\nAll {len(rows)} runs are in {path}\n"
        f"{stored} of them were sent to a registry on this machine. The column reason says why.\n\n"
        "Now look at the one with the highest score:\n\n"
        f"  kp-middleware --db {path} show @best"
    )


_INTEGRITY: Final = {
    "sound": "integrity ok",
    "damaged": "damaged; restore the readable part: kp-middleware repair",
    "not known": "too large to check fully in 2 s",
}

_NO_TOKENS: Final = "some models report them only on request: ChatOpenAI(…, stream_usage=True)"
_YES: Final = ("true", "1", "yes", "on")
_NO: Final = ("false", "0", "no", "off")
_HIDING: Final = {  # with the values that hide texts or spans
    "OTEL_SDK_DISABLED": ("no spans, so no runs from OpenTelemetry: unset it", _YES),
    "OPENAI_AGENTS_DISABLE_TRACING": ("no runs from OpenAI's SDK: unset it", _YES),
    "OPENAI_AGENTS_TRACE_INCLUDE_SENSITIVE_DATA": ("no texts from OpenAI's SDK: unset it", _NO),
    "OPENINFERENCE_HIDE_INPUTS": ("inputs are hidden: unset it", _YES),
    "OPENINFERENCE_HIDE_OUTPUTS": ("outputs are hidden: unset it", _YES),
    "OPENINFERENCE_HIDE_INPUT_MESSAGES": ("inputs are hidden: unset it", _YES),
    "OPENINFERENCE_HIDE_OUTPUT_MESSAGES": ("outputs are hidden: unset it", _YES),
    "TRACELOOP_TRACE_CONTENT": ("no texts from OpenLLMetry: unset it", _NO),
}
_LIMITS: Final = ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT")
_OPT_IN: Final = {  # they export texts only if this is set, or a call enables it
    "agent_framework": "ENABLE_SENSITIVE_DATA",
    "google.adk": "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT",
}


class Finding(NamedTuple):
    """The result of one check; ``try_later``: the registry or log is unreachable."""

    check: str
    detail: str
    ok: bool = True
    warning: bool = False
    try_later: bool = False


@click.command()
@options.json_option
@click.pass_context
def doctor(context: click.Context) -> None:
    """Check the setup and suggest fixes.

    Checks settings, file, disk, gate, model, redaction, registry and shared log. Exits with 3 if a
    check fails, or with 5 if the only failure is an unreachable registry or log.

    \b
    kp-middleware doctor || kp-middleware status
    """
    checks = _run_checks(options.named_file(context))
    findings = [item._replace(detail=one_line(item.detail)) for item in checks]
    lines = (
        f"{'ERROR' if not item.ok else 'warning' if item.warning else 'ok':<8}"
        f" {item.check:<9} {item.detail}"
        for item in findings
    )
    console.print_result([item._asdict() for item in findings], "\n".join(lines))
    if failures := [item for item in findings if not item.ok]:
        sys.exit(UNREACHABLE if all(item.try_later for item in failures) else ATTENTION)


def _run_checks(db: Path | None) -> Iterator[Finding]:
    settings = options.lenient_settings({"db": db} if db else {})
    path = settings.db.expanduser()
    if settings.problems:
        wrong = "; ".join(map(str, settings.problems))
        yield Finding("settings", f"nothing is sent until this is fixed: {wrong}", ok=False)
    if unknown := unknown_variables(Settings.model_fields):
        detail = "; ".join(f"{name} is not a setting: {fix}" for name, fix in unknown.items())
        yield Finding("settings", detail, warning=True)
    if not settings.enabled:
        detail = "nothing is recorded: enabled is false; kp-middleware config shows what sets it"
        yield Finding("settings", detail, warning=True)
    if path.exists() and path.stat().st_size:
        yield from _file(path, settings)
    else:  # normal before the first run
        folder = next(parent for parent in path.absolute().parents if parent.exists())
        is_writable = os.access(folder, os.W_OK)
        detail = f"cannot create {path}: make {folder} writable"
        if is_writable:
            detail = f"{path} {'is empty' if path.exists() else 'does not exist yet'}: record a run"
        yield Finding("file", f"{detail}, or name another with KP_DB or --db", ok=is_writable)
        yield Finding("gate", f"for new runs: {settings.gate.name}")
    yield _model(settings)
    try:
        policy = Policy.from_settings(settings)
        redact_text("a text", level="aggregated", policy=policy)
        engines = ", ".join(("built-in rules", *policy.engines))
        yield Finding("redaction", f"{engines}: {policy.redactor}")
    except errors.RedactionError as error:
        yield Finding("redaction", f"{error}; until then nothing is sent", ok=False)
    if problems := _span_problems():
        yield Finding("spans", "; ".join(problems), warning=True)
    if not settings.problems:
        yield _registry(settings)
    if settings.shared is not None:
        yield from _shared_log(settings.shared.get_secret_value())


def _file(path: Path, settings: Settings) -> Iterator[Finding]:
    gate = settings.gate.name
    try:
        with storage.History.open(path) as history:
            count, integrity = history.counts().recorded, history.check_integrity(limit_s=2)
            last, backlog = history.last_decisions(), history.review_backlog()
            without, total = history.without_tokens()
    except storage.DATABASE_ERRORS as error:
        yield Finding("file", str(storage.to_database_error(path, error)), ok=False)
        yield Finding("gate", f"for new runs: {gate}; the file cannot be read")
        return
    facts = f"{counted(count, 'run')}, {_INTEGRITY[integrity]}, SQLite {storage.SQLITE_VERSION}"
    trouble = options.write_problem(path) or storage.permission_warning(path)
    yield Finding(
        "file", trouble or f"{path}: {facts}", ok=trouble is None and integrity != "damaged"
    )
    before = "" if gate == last.gate else f"for new runs: {gate}; "
    yield Finding("gate", before + last.in_words(), warning=last.is_dry)
    if backlog.unreviewed:
        yield Finding("review", review_backlog_in_words(backlog))
    if without:
        runs = f"{without:,} of {total:,} recent runs with a model"
        yield Finding("tokens", f"{runs} have no token counts: {_NO_TOKENS}", warning=True)
    elif total:
        yield Finding("tokens", f"counted in all recent runs with a model: {total:,}")


def _model(settings: Settings) -> Finding:
    embedder = shared_embedder(settings.embedder, threads=settings.embedder_threads)
    if embedder is None:
        return Finding("model", "novelty is 0.5: embedder is none: see kp-middleware config")
    started = time.perf_counter()
    try:
        embedder.embed("hello world")
    except errors.EmbedderNotReadyError as error:
        return Finding("model", f"{error}; until then runs wait in the file", ok=False)
    except errors.EmbedderError as error:
        return Finding("model", f"{error}; without it novelty is 0.5", ok=False)
    took_s = time.perf_counter() - started
    return Finding("model", f"{embedder.name}, ready in {took_s:.1f} s")


def _registry(settings: Settings) -> Finding:
    if settings.visibility == "private":
        return Finding("registry", "not used: the visibility is private")
    if settings.api_key is None and settings.unused_login is not None:
        return Finding("registry", f"nothing is sent: {settings.unused_login}", ok=False)
    if settings.api_key is None:
        return Finding("registry", "not used: without KP_API_KEY nothing leaves this machine")

    from kp_middleware.export import Registry
    from kp_middleware.pipeline import check_key

    try:
        url, key, agent_id = settings.registry_url, settings.api_key, settings.agent_id
        with closing(Registry(url, key, agent_id=agent_id)) as registry:
            registry.reach()
            may_write = check_key(registry, settings)
    except errors.KnowledgePulseError as error:
        try_later = isinstance(error, errors.RegistryUnavailableError)
        return Finding("registry", str(error), ok=False, try_later=try_later)
    except ValueError as error:
        return Finding("registry", f"{error}; correct KP_REGISTRY_URL", ok=False)
    known = "accepts this API key" if may_write else "knows this API key; sending is paused"
    return Finding("registry", f"{registry.url} answers and {known}")


def _shared_log(url: str) -> Iterator[Finding]:
    try:
        with closing(Link(url, "doctor")) as link:
            report, address = link.diagnose(), link.address
    except errors.KnowledgePulseError as error:
        yield Finding("shared", str(error), ok=False, try_later=True)
        return
    took_ms, server = report.round_trip_s * 1000, report.server.split()[0]
    detail = (
        f"PostgreSQL {server}, a test row was written and rolled back; round trip {took_ms:,.1f} ms"
    )
    yield Finding("shared", f"{address}: {detail}")
    parts, warnings = urlsplit(url), []
    if parts.hostname and not is_loopback(parts.hostname) and "verify-full" not in parts.query:
        encryption = "encrypted" if report.is_encrypted else "not encrypted"
        fix = "add ?sslmode=verify-full to KP_SHARED"
        warnings.append(f"{encryption}, and the server is not verified: {fix}")
    if abs(report.ahead_s) > 5.0:
        where = "behind" if report.ahead_s > 0 else "ahead of"
        seconds = f"{abs(report.ahead_s):,.0f} s"
        warnings.append(f"this machine's clock is {seconds} {where} the server's")
    usual = Counter(gate for _, gate in report.settings).most_common(1)
    if others := [f"{pod} ({gate})" for pod, gate in report.settings if gate != usual[0][0]]:
        warnings.append(f"most pods use the gate {usual[0][0]}; others: {', '.join(others[:5])}")
    for detail in warnings:
        yield Finding("shared", detail, warning=True)


def _span_problems() -> list[str]:
    if not (_is_installed("opentelemetry.sdk") or _is_installed("agents")):
        return []
    names = (*_HIDING, *_LIMITS, "OTEL_TRACES_SAMPLER")
    values = {name: os.environ.get(name, "").strip().lower() for name in names}
    hidden = {name: effect for name, (effect, hiding) in _HIDING.items() if values[name] in hiding}
    problems = [f"{name}: {effect}" for name, effect in hidden.items()]
    if values["OTEL_TRACES_SAMPLER"] not in {"", "always_on", "parentbased_always_on"}:
        problems.append("OTEL_TRACES_SAMPLER: runs that are not sampled are not recorded")
    problems += [f"{name}: also truncates the texts of runs" for name in _LIMITS if values[name]]
    problems += [
        f"{module} exports no texts: set {name}, or enable them in your program"
        for module, name in _OPT_IN.items()
        if _is_installed(module) and not os.environ.get(name)
    ]
    return problems


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
