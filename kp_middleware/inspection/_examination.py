"""Is all that we need usable, and what is to be done if not?"""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from kp_middleware.database import TROUBLE, connect
from kp_middleware.errors import (
    EmbedderError,
    EmbedderNotReadyError,
    RedactionError,
    RegistryError,
    SettingsFileError,
)
from kp_middleware.privacy import Policy, redact_text
from kp_middleware.scoring import Embedder, describe_source
from kp_middleware.settings import Settings
from kp_middleware.storage import History


class Finding(NamedTuple):
    """What one check found.

    Attributes:
        check: What was looked at.
        ok: Whether it is usable.
        detail: What was found, and what to do if it is not usable.
    """

    check: str
    ok: bool
    detail: str


def examine(db: Path, embedder: Embedder) -> Iterator[Finding]:
    """Look at the settings, the file, the model, redaction and the registry, one after another."""
    try:
        settings = Settings(db=db)
    except (ValueError, SettingsFileError) as error:
        yield Finding("settings", ok=False, detail=str(error))
        yield _file(db)
        return
    yield _file(settings.db)
    yield _model(embedder, settings)
    yield _redaction(Policy.of(settings))
    yield _registry(settings)


def _file(path: Path) -> Finding:
    try:
        connection = connect(path)
    except TROUBLE as error:
        return Finding("file", ok=False, detail=str(error))
    try:
        count = History(connection).count()
    finally:
        connection.close()
    return Finding("file", ok=True, detail=f"{path}: {count} traces")


def _model(embedder: Embedder, settings: Settings) -> Finding:
    if settings.embedder == "none":
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


def _registry(settings: Settings) -> Finding:
    if settings.visibility == "private":
        return Finding("registry", ok=True, detail="not used: the visibility is private")
    if settings.api_key is None:
        return Finding(
            "registry", ok=True, detail="not used: without KP_API_KEY nothing leaves this machine"
        )
    from kp_middleware.forwarding import Registry

    try:
        registry = Registry(settings.registry_url, settings.api_key, agent_id=settings.agent_id)
        with closing(registry):
            registry.reach()
    except (RegistryError, ValueError) as error:
        return Finding("registry", ok=False, detail=f"{error}; check KP_REGISTRY_URL")
    return Finding("registry", ok=True, detail=f"{registry.url} answers")
