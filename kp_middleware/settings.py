"""What a user may set: by keyword, ``KP_*``, ``settings.toml`` or the reference CLI's files.

Looked for in this order; what is set nowhere has a default: nothing has to be set to begin.
"""

import json
import logging
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypedDict

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from kp_middleware import locations
from kp_middleware.errors import MissingExtraError, SettingsFileError
from kp_middleware.patterns import compiled, is_pattern
from kp_middleware.scores import Weights
from kp_middleware.shares import share_in_words, top_share
from kp_middleware.specified import SPECIFIED_THRESHOLD
from kp_middleware.traces import NonEmpty, PrivacyLevel, Visibility

logger = logging.getLogger("kp_middleware")

_OFF = frozenset({"false", "0", "no", "off", "f", "n"})


def _none_if_empty(api_key: SecretStr | None) -> SecretStr | None:
    return api_key or None


def _without_last_slash(url: str) -> str:
    """One registry has one name, wherever it is compared."""
    return url.rstrip("/")


def _whatever_folder_we_go_to(path: Path) -> Path:
    try:
        return path.expanduser().absolute()
    except RuntimeError:
        return path.absolute()  # there is no such home: opening it will say so


def _unless_switched_off(enabled: bool) -> bool:  # noqa: FBT001 - pydantic's own signature
    return enabled and os.environ.get("KP_ENABLED", "").strip().lower() not in _OFF


def _listed(value: object) -> object:
    """The list that a variable holds: JSON, or texts divided by commas."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        return json.loads(value)
    entries = [entry.strip() for entry in value.split(",")]
    if len(entries) > 1 and any("/" in {entry[:1], entry[-1:]} for entry in entries):
        raise ValueError('a pattern may hold commas itself: write a JSON list, ["/a/", "b"]')
    return [entry for entry in entries if entry]


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


Short: TypeAlias = Annotated[NonEmpty, Field(max_length=1000)]
_Listed: TypeAlias = Annotated[tuple[Short, ...], NoDecode, BeforeValidator(_listed)]
Patterns: TypeAlias = Annotated[
    tuple[Annotated[Short, AfterValidator(_usable)], ...], NoDecode, BeforeValidator(_listed)
]
_Region: TypeAlias = Annotated[str, Field(pattern="^[A-Z]{2}$")]
Engine: TypeAlias = Annotated[
    str, Field(pattern="^(phonenumbers|kingfisher|gitleaks:.+|presidio:.+)$", max_length=1000)
]


class Settings(BaseSettings):
    """Every setting, read once. Each is also ``KP_…`` in the environment.

    Attributes:
        domain: Of runs that name none; picks the weights of the score.
        threshold: What a score must reach to leave this machine, 0 to 1; or ``top 10%``: what the
            best tenth of each domain's last runs reach, at most 500 of 30 days, and 0.75 until a
            domain has 50.
        max_per_day: How many may leave in 24 hours; None means any number.
        visibility: Who may see a trace; ``private`` never leaves this machine.
        privacy_level: How much is removed before a trace leaves.
        redact_allow: What may stay: findings that are exactly such a text; ``/patterns/`` exempt
            what they match whole, but never a secret.
        redact_deny: What always goes: a text in any case, or what a ``/pattern/`` finds.
        redact_keys_allow: Fields whose name does not make their values secret.
        redact_keys_deny: Fields whose values always go.
        redact_phone_regions: Where national phone numbers are at home, such as ``DE``.
        redact_engines: What else looks for secrets and names: ``phonenumbers``, ``kingfisher``,
            ``gitleaks:FILE``, ``presidio:MODEL``. Without it, nothing is sent.
        redact_numbered: ``[REDACTED:email#1]``: within one trace, equal contacts have equal
            numbers; secrets have none.
        db: The SQLite file of traces.
        registry_url: Where traces go.
        api_key: Of the registry; without one, or with an empty one, nothing leaves this machine.
        agent_id: Under which the key was registered.
        embedder: What measures novelty: ``minilm``; ``minilm-int8``, which is faster and less
            exact; or ``none`` for 0.5. The keyword of `KnowledgePulse` takes an object instead.
        embedder_threads: For one text: 1 leaves the other processors to the host.
        profiles: Weights by domain, beside the protocol's own.
        cache_size: With how many earlier traces a new one is compared.
        cache_ttl_ms: After how many milliseconds an earlier trace is forgotten; None means never.
        enabled: False records nothing at all; ``KP_ENABLED=false`` wins over the keyword.
        sync: Score in the agent's thread when a run ends: for tests and serverless functions.
        max_field_bytes: Of one text or one tool's input; what is cut is said in place. At most a
            million: redaction looks through no more.
        max_steps: Of one trace; a longer run keeps its first and last half of these.
        max_trace_bytes: Of one trace.
        max_queue_bytes: Of finished runs that wait to be scored; beyond it new ones are dropped.
        paused_ttl_s: How long a run waits for a person's decision; then it is kept as incomplete.
        thread_idle_s: How long after its last run a thread waits for the next, where the handler's
            scope is ``thread``; then it is scored.
        retention_days: How old a trace becomes, from its start; then it is removed while there is
            nothing else to do, unless something still waits for it. None means any age.

    Raises:
        pydantic.ValidationError: With the name of each setting that is wrong.
        SettingsFileError: If ``settings.toml`` cannot be read.
    """

    model_config = SettingsConfigDict(
        env_prefix="KP_",
        frozen=True,
        extra="forbid",
        env_ignore_empty=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,  # a mistyped name would quote the API key
    )

    domain: NonEmpty = "general"
    threshold: Annotated[float | str, BeforeValidator(_score_or_share)] = SPECIFIED_THRESHOLD
    max_per_day: Annotated[int, Field(ge=0)] | None = None
    visibility: Visibility = "network"
    privacy_level: PrivacyLevel = "aggregated"
    redact_allow: Patterns = ()
    redact_deny: Patterns = ()
    redact_keys_allow: _Listed = ()
    redact_keys_deny: _Listed = ()
    redact_phone_regions: Annotated[tuple[_Region, ...], NoDecode, BeforeValidator(_listed)] = ()
    redact_engines: Annotated[tuple[Engine, ...], NoDecode, BeforeValidator(_listed)] = ()
    redact_numbered: bool = False
    db: Annotated[Path, AfterValidator(_whatever_folder_we_go_to)] = Field(
        default_factory=locations.database_file
    )
    registry_url: Annotated[str, AfterValidator(_without_last_slash)] = (
        "https://registry.openknowledgepulse.org"
    )
    api_key: Annotated[SecretStr | None, AfterValidator(_none_if_empty)] = None
    agent_id: NonEmpty | None = None
    embedder: Literal["minilm", "minilm-int8", "none"] = "minilm"
    embedder_threads: Annotated[int, Field(ge=1)] = 1
    profiles: dict[str, Weights] = {}
    cache_size: Annotated[int, Field(ge=0)] = 1000
    cache_ttl_ms: Annotated[int, Field(ge=0)] | None = None
    enabled: Annotated[bool, AfterValidator(_unless_switched_off)] = True
    sync: bool = False
    max_field_bytes: Annotated[int, Field(ge=1024)] = 64 * 1024
    max_steps: Annotated[int, Field(ge=2)] = 1000
    max_trace_bytes: Annotated[int, Field(ge=4096)] = 1024 * 1024
    max_queue_bytes: Annotated[int, Field(ge=0)] = 64 * 1024 * 1024
    paused_ttl_s: Annotated[float, Field(ge=0)] = 7 * 24 * 3600.0
    thread_idle_s: Annotated[float, Field(ge=0)] = 3600.0
    retention_days: Annotated[float, Field(gt=0)] | None = None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - we have no such file
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The order in which a setting is looked for."""
        path = locations.settings_file()
        try:
            toml = _SettingsFile(settings_cls, path)
        except (OSError, ValueError) as error:
            raise SettingsFileError(path, str(error)) from error
        return init_settings, env_settings, toml, _ReferenceFiles(settings_cls)


class SettingsKeywords(TypedDict, total=False):
    """The settings as keywords of `KnowledgePulse`."""

    domain: str
    threshold: float | str
    max_per_day: int | None
    visibility: Visibility
    privacy_level: PrivacyLevel
    redact_allow: Sequence[str]
    redact_deny: Sequence[str]
    redact_keys_allow: Sequence[str]
    redact_keys_deny: Sequence[str]
    redact_phone_regions: Sequence[str]
    redact_engines: Sequence[str]
    redact_numbered: bool
    db: str | Path
    registry_url: str
    api_key: str | SecretStr
    agent_id: str
    profiles: Mapping[str, Weights | Mapping[str, float]]
    embedder_threads: int
    cache_size: int
    cache_ttl_ms: int | None
    enabled: bool
    sync: bool
    max_field_bytes: int
    max_steps: int
    max_trace_bytes: int
    max_queue_bytes: int
    paused_ttl_s: float
    thread_idle_s: float
    retention_days: float | None


class _SettingsFile(TomlConfigSettingsSource):
    """The user's ``settings.toml``: a line that sets nothing is said and left out."""

    def __call__(self) -> dict[str, Any]:
        lines = super().__call__()
        for name in lines.keys() - Settings.model_fields.keys():
            logger.warning("%s: there is no setting %r", self.toml_file_path, name)
        return {name: value for name, value in lines.items() if name in Settings.model_fields}


class _ReferenceFiles(PydanticBaseSettingsSource):
    """What the reference command line has stored: one login serves both tools."""

    _FILES = (
        (
            "config.json",
            {
                "registryUrl": "registry_url",
                "defaultVisibility": "visibility",
                "defaultDomain": "domain",
            },
        ),
        ("auth.json", {"apiKey": "api_key", "agentId": "agent_id"}),
    )

    def get_field_value(
        self,
        field: FieldInfo,  # noqa: ARG002 - pydantic-settings' own signature
        field_name: str,
    ) -> tuple[Any, str, bool]:
        """Nothing for one field: all are read at once."""
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        folder = locations.reference_folder()
        return {
            ours: stored[theirs]
            for file_name, names in self._FILES
            for stored in [_read_json(folder / file_name)]
            for theirs, ours in names.items()
            if isinstance(stored.get(theirs), str) and stored[theirs]
        }


def _read_json(path: Path) -> dict[str, Any]:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        logger.warning("%s cannot be read as JSON: it is ignored", path)
        return {}
    return stored if isinstance(stored, dict) else {}
