"""Settings: from keywords, ``KP_*``, ``settings.toml`` or the reference CLI's files, in this order.

Every setting has a default. An invalid keyword raises; an invalid setting outside of the program
only stops sending.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypedDict, Unpack

from pydantic import BaseModel, Field, SecretStr, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict

from kp_middleware import locations, setting_values
from kp_middleware.core.formula import DEFAULT_THRESHOLD, Weights
from kp_middleware.core.gates import SettingsGate
from kp_middleware.locations import PUBLIC_REGISTRY, SettingProblem, Source, did_you_mean
from kp_middleware.traces import Limits, NonEmpty, PrivacyLevel, Visibility

_MOST: Final = 2**53  # larger integers are not exact in JSON
_STRICTEST: Final[Mapping[str, Any]] = {
    "max_per_day": 0,
    "privacy_level": "aggregated",
    "shared_documents": "none",
    "threshold": 1.0,
    "visibility": "private",
}
"""The strictest values, for unreadable settings: sent traces cannot be recalled."""


class SettingsKeywords(TypedDict, total=False):
    """The keywords of `KnowledgePulse` that are settings."""

    domain: str
    threshold: float | str
    max_per_day: int | None
    estimate: bool
    forward_only: Literal["confirmed"] | None
    confirm_within_days: float
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
    shared: str | SecretStr | None
    shared_documents: Literal["redacted", "full", "none"]
    profiles: Mapping[str, Weights | Mapping[str, float]]
    embedder_threads: int
    cache_size: int
    cache_ttl_ms: int | None
    enabled: bool
    recall: bool
    sync: bool
    max_field_bytes: int
    max_steps: int
    max_trace_bytes: int
    max_queue_bytes: int
    paused_ttl_s: float
    thread_idle_s: float
    retention_days: float | None


class _AllKeywords(SettingsKeywords, total=False):
    """The keywords of `Settings`; `KnowledgePulse` accepts another type of ``embedder``."""

    embedder: Literal["minilm", "minilm-int8", "none"]


class Settings(BaseSettings):
    """All settings, read once. Each can also be set as ``KP_…`` in the environment.

    Any invalid value but a keyword becomes the default or, if it could have been stricter, the
    strictest value; `problems` lists it, and there is no API key.

    Attributes:
        domain: The domain of runs without one; selects the weights of the score.
        threshold: The minimum score for sending, 0 to 1; or ``top 10%``: the best tenth of each
            domain's runs by rank, and 0.75 until a domain has 10.
        max_per_day: The maximum number of traces sent in 24 hours; None means no limit.
        estimate: Whether to estimate the success of runs from those with a known outcome.
        forward_only: ``confirmed`` sends only runs whose success was reported by anyone other than
            the agent; others wait. None sends runs whether or not their success was reported.
        confirm_within_days: How many days after its start a run waits for confirmation.
        visibility: Who can see a trace; ``private`` traces never leave this machine.
        privacy_level: How much is redacted before a trace is sent; ``private`` redacts least.
        redact_allow: Findings to keep: exact texts, or ``/patterns/`` that match a whole finding,
            except secrets.
        redact_deny: What to always redact: texts, ignoring case, or ``/patterns/``.
        redact_keys_allow: Fields whose name does not make their values secret.
        redact_keys_deny: Fields whose values are always redacted.
        redact_phone_regions: Regions whose national phone numbers and ids are redacted, such as
            ``DE``.
        redact_engines: Further detectors: ``phonenumbers``, ``kingfisher``, ``gitleaks:FILE``,
            ``presidio:MODEL``. If one is missing, nothing is sent.
        redact_numbered: Number the placeholders, such as ``[REDACTED:email#1]``. Equal contacts get
            the same number within a trace; secrets get none.
        db: The SQLite file of traces.
        registry_url: The registry to send traces to.
        api_key: The registry's API key; without one, nothing leaves this machine.
        agent_id: The agent id that the key is registered for.
        shared: The PostgreSQL database that several hosts share, ``postgresql://…``; a secret.
        shared_documents: The documents in the shared log: ``redacted`` as for sending; ``full``, as
            stored here; ``none``, scores and vectors only. Private runs are never shared.
        embedder: The model for novelty: ``minilm``; ``minilm-int8``, faster and less exact; or
            ``none`` for a constant 0.5. The keyword of `KnowledgePulse` takes an object instead.
        embedder_threads: Threads per text; 1 leaves the other processors to your program.
        profiles: Weights by domain, in addition to the protocol's.
        cache_size: The number of earlier traces that a new one is compared with: 1,000, or 10,000
            with a shared log.
        cache_ttl_ms: The milliseconds after which an earlier trace is forgotten; None means never.
        enabled: False records nothing at all; ``KP_ENABLED=false`` overrides the keyword.
        recall: False recalls nothing; ``KP_RECALL=false`` overrides the keyword.
        sync: Block at the end of each run until it is scored: for tests and serverless functions.
        max_field_bytes: The maximum size of a text or a tool's input; longer ones are truncated,
            with a marker. At most a million, the most that redaction can search.
        max_steps: The maximum number of steps of a trace; a longer run keeps its first and last
            steps, with a marker.
        max_trace_bytes: The maximum size of a trace.
        max_queue_bytes: The maximum size of finished runs waiting to be scored; further runs are
            dropped.
        paused_ttl_s: How long a run waits for a person's decision, before it is stored as
            incomplete.
        thread_idle_s: How long a thread waits for its next run before it is scored, if the
            handler's scope is ``thread``.
        retention_days: The maximum age of a trace, from its start; older ones are removed when
            idle, unless something still waits for them. None means no limit.

    Raises:
        pydantic.ValidationError: With the name of each invalid keyword.
    """

    model_config = SettingsConfigDict(
        env_prefix="KP_",
        env_ignore_empty=True,
        enable_decoding=False,  # lists may be written with commas
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        hide_input_in_errors=True,  # a mistyped name would quote the API key
    )

    domain: NonEmpty = "general"
    threshold: setting_values.Threshold = DEFAULT_THRESHOLD
    max_per_day: Annotated[int, Field(ge=0, le=_MOST)] | None = None
    estimate: setting_values.Enabled = True
    forward_only: Literal["confirmed"] | None = None
    confirm_within_days: Annotated[float, Field(gt=0)] = 30.0
    visibility: Visibility = "network"
    privacy_level: PrivacyLevel = "aggregated"
    redact_allow: setting_values.Patterns = ()
    redact_deny: setting_values.Patterns = ()
    redact_keys_allow: setting_values.Texts = ()
    redact_keys_deny: setting_values.Texts = ()
    redact_phone_regions: setting_values.Regions = ()
    redact_engines: setting_values.Engines = ()
    redact_numbered: bool = False
    db: setting_values.DatabaseFile = Field(default_factory=locations.default_database_file)
    registry_url: setting_values.RegistryUrl = PUBLIC_REGISTRY
    api_key: setting_values.ApiKey = None
    agent_id: NonEmpty | None = None
    shared: setting_values.SharedLogUrl = None
    shared_documents: Literal["redacted", "full", "none"] = "redacted"
    embedder: Literal["minilm", "minilm-int8", "none"] = "minilm"
    embedder_threads: Annotated[int, Field(ge=1, le=1024)] = 1
    profiles: setting_values.Profiles = {}
    cache_size: Annotated[
        int,
        Field(ge=0, le=10**7, default_factory=lambda got: 10_000 if got.get("shared") else 1000),
    ]
    cache_ttl_ms: Annotated[int, Field(ge=0, le=_MOST)] | None = None
    enabled: setting_values.Enabled = True
    recall: setting_values.Enabled = True
    sync: bool = False
    max_field_bytes: Annotated[int, Field(ge=1024, le=1_000_000)] = Limits.field_bytes
    max_steps: Annotated[int, Field(ge=2, le=_MOST)] = Limits.steps
    max_trace_bytes: Annotated[int, Field(ge=4096, le=_MOST)] = Limits.trace_bytes
    max_queue_bytes: Annotated[int, Field(ge=0, le=_MOST)] = 64 * 1024 * 1024
    paused_ttl_s: Annotated[float, Field(ge=0)] = 7 * 24 * 3600.0
    thread_idle_s: Annotated[float, Field(ge=0)] = 3600.0
    retention_days: Annotated[float, Field(gt=0)] | None = None

    _problems: tuple[SettingProblem, ...] = ()
    _unused_login: str | None = None

    def __init__(self, **keywords: Unpack[_AllKeywords]) -> None:
        variables, file, login = sources = _sources()
        problems = tuple(problem for source in sources for problem in _drop_invalid(source))
        closer = {**file.values, **variables.values, **keywords}
        url = (login.values | closer).get("registry_url") or PUBLIC_REGISTRY
        reason = locations.unused_login_reason(login, str(url))
        if reason is not None:
            login.values.pop("api_key", None)
            login.values.pop("agent_id", None)
        values = login.values | closer
        try:  # the sources of BaseSettings know no login
            BaseModel.__init__(self, **values)
        except ValidationError as error:
            raise _readable(error) from None
        if problems:
            BaseModel.__init__(self, **values | {"api_key": None})
        self._problems, self._unused_login = problems, None if "api_key" in closer else reason

    @property
    def problems(self) -> tuple[SettingProblem, ...]:
        """The invalid settings outside of the program; nothing is sent while there are any."""
        return self._problems

    @property
    def gate(self) -> SettingsGate:
        """The gate of the threshold and the daily limit."""
        return SettingsGate(self.threshold, self.max_per_day)

    @property
    def limits(self) -> Limits:
        """The limits of a run."""
        return Limits(self.max_field_bytes, self.max_steps, self.max_trace_bytes)

    @property
    def unused_login(self) -> str | None:
        """Why the reference CLI's key is not used, with a remedy, or None."""
        return self._unused_login


def setting_origins() -> dict[str, str]:
    """Return the origin of each value from outside of the program."""
    origins = {}
    for one in reversed(_sources()):
        _drop_invalid(one)
        for name in one.values:
            is_invalid = name in one.unreadable
            origins[name] = "fail-safe" if is_invalid else one.origin or one.places[name]
    return origins


def _sources() -> tuple[Source, Source, Source]:
    file = locations.settings_from_file(Settings.model_fields)
    return locations.variables(Settings), file, locations.read_login()


def _drop_invalid(source: Source) -> list[SettingProblem]:
    """Remove invalid values from a source, and return its problems."""
    wrong: dict[str, str] = {}
    try:
        BaseModel.__init__(Settings.__new__(Settings), **source.values)
    except ValidationError as error:  # reported without the value: it may be a secret
        for one in error.errors(include_input=False, include_url=False):
            words = setting_values.describe_problem(one["loc"][1:], one["msg"])
            wrong.setdefault(str(one["loc"][0]), words)
    if "db" in source.values and "db" not in wrong:
        path = setting_values.database_path(Path(source.values["db"]))
        if reason := locations.file_problem(path):
            default = locations.default_database_file()
            wrong["db"] = f"{reason}; until then, runs are stored in {default}"
    problems = [*source.problems]
    for name in [name for name in source.values if name in wrong]:
        problems.append(SettingProblem(source.places[name], name, wrong[name]))
        source.unreadable.add(name)
        del source.values[name]
    source.values |= {name: _STRICTEST[name] for name in source.unreadable & _STRICTEST.keys()}
    return problems


def _readable(error: ValidationError) -> ValidationError:
    """Return the error without links, with a suggestion for each unknown name."""
    details = []
    for one in error.errors(include_input=False, include_url=False):
        if one["type"] == "default_factory_not_called":
            continue  # caused by another invalid setting, which is reported
        name, *rest = one["loc"]
        words = setting_values.describe_problem((), one["msg"])
        if one["type"] == "extra_forbidden" and not rest:
            words = f"unknown setting: {did_you_mean(str(name), Settings.model_fields)}"
        kind = PydanticCustomError(one["type"], "{words}", {"words": words})
        details.append(InitErrorDetails(type=kind, loc=one["loc"], input=None))
    return ValidationError.from_exception_data("Settings", details, hide_input=True)
