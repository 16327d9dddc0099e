"""What the value of a setting may be, and how it is written in a variable."""

import json
import math
import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from kp_middleware.addresses import registry_address
from kp_middleware.core.formula import Weights
from kp_middleware.core.gates import share_in_words, top_share
from kp_middleware.errors import MissingExtraError
from kp_middleware.patterns import compiled, is_pattern
from kp_middleware.traces import NonEmpty

_OFF = frozenset({"false", "0", "no", "off", "f", "n"})


def _usable_key(api_key: SecretStr | None) -> SecretStr | None:
    key = api_key.get_secret_value() if api_key else ""
    if key and not (key.isascii() and key.isprintable() and key.split() == [key]):
        raise ValueError("an API key has no spaces and only printable ASCII; look at KP_API_KEY")
    return api_key or None


def _without_last_slash(url: str) -> str:
    """One registry has one name, wherever it is compared."""
    return url.rstrip("/")


def _whatever_folder_we_go_to(path: Path) -> Path:
    """Where there is no such home, or no folder that we are in: opening it will say so."""
    with suppress(RuntimeError):
        path = path.expanduser()
    with suppress(OSError):
        path = path.absolute()
    return path


def _unless_switched_off(enabled: bool) -> bool:  # noqa: FBT001 - pydantic's own signature
    return enabled and os.environ.get("KP_ENABLED", "").strip().lower() not in _OFF


def _listed(value: object) -> object:
    """The list that a variable holds: JSON, or texts divided by commas."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            raise ValueError('a JSON list is needed, such as ["a", "b"]') from None
    entries = [entry.strip() for entry in value.split(",")]
    if len(entries) > 1 and any("/" in {entry[:1], entry[-1:]} for entry in entries):
        raise ValueError('a pattern may hold commas itself: write a JSON list, ["/a/", "b"]')
    return [entry for entry in entries if entry]


def _table(value: object) -> object:
    """The table that a variable holds, as JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise ValueError('JSON is needed: {"law": {"complexity": 0.25, …}}') from None


def _score_or_share(value: object) -> float | str:
    """A threshold as it is kept: a number first, or else a share in the same words as ever."""
    if isinstance(value, str) and (share := top_share(value)) is not None:
        return share_in_words(share)
    try:
        score = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        score = math.nan
    if not 0 <= score <= 1:
        raise ValueError('a number from 0 to 1 is needed, or a share from "top 1%" to "top 100%"')
    return score


def _usable(entry: str) -> str:
    """A text, or a pattern that is one; without RE2, redaction will say what to install."""
    if is_pattern(entry):
        try:
            compiled(entry[1:-1])
        except MissingExtraError:
            return entry
    return entry


_Short: TypeAlias = Annotated[NonEmpty, Field(max_length=1000)]
Texts: TypeAlias = Annotated[tuple[_Short, ...], BeforeValidator(_listed)]
Patterns: TypeAlias = Annotated[
    tuple[Annotated[_Short, AfterValidator(_usable)], ...], BeforeValidator(_listed)
]
_Region: TypeAlias = Annotated[
    str, Field(pattern="^[A-Z]{2}$", description="two capital letters each, such as DE,")
]
_Engine: TypeAlias = Annotated[
    str,
    Field(
        pattern="^(phonenumbers|kingfisher|gitleaks:.+|presidio:.+)$",
        max_length=1000,
        description="phonenumbers, kingfisher, gitleaks:FILE or presidio:MODEL",
    ),
]
ApiKey: TypeAlias = Annotated[SecretStr | None, AfterValidator(_usable_key)]
DatabaseFile: TypeAlias = Annotated[Path, AfterValidator(_whatever_folder_we_go_to)]
Enabled: TypeAlias = Annotated[bool, AfterValidator(_unless_switched_off)]
Engines: TypeAlias = Annotated[tuple[_Engine, ...], BeforeValidator(_listed)]
Profiles: TypeAlias = Annotated[dict[str, Weights], BeforeValidator(_table)]
Regions: TypeAlias = Annotated[tuple[_Region, ...], BeforeValidator(_listed)]
RegistryUrl: TypeAlias = Annotated[
    str, AfterValidator(registry_address), AfterValidator(_without_last_slash)
]
Threshold: TypeAlias = Annotated[float | str, BeforeValidator(_score_or_share)]
