"""The settings of a user: by keyword, ``KP_*``, ``settings.toml`` or the reference CLI's files.

Looked for in this order; what is set nowhere has a default: nothing has to be set to begin. A wrong
keyword raises; what is wrong outside of the program keeps it from sending, and from nothing else.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypedDict, Unpack

from pydantic import BaseModel, Field, SecretStr, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict

from kp_middleware import locations
from kp_middleware.core.formula import DEFAULT_THRESHOLD, Weights
from kp_middleware.core.gates import SettingsGate
from kp_middleware.locations import PUBLIC_REGISTRY, SettingProblem, Source, did_you_mean
from kp_middleware.setting_values import (
    ApiKey,
    DatabaseFile,
    Enabled,
    Engines,
    Patterns,
    Profiles,
    Regions,
    RegistryUrl,
    SharedLogUrl,
    Texts,
    Threshold,
    database_path,
    problem_in_words,
)
from kp_middleware.traces import NonEmpty, PrivacyLevel, Visibility

logger = logging.getLogger("kp_middleware")

_STRICTEST: Final[Mapping[str, Any]] = {
    "max_per_day": 0,
    "privacy_level": "aggregated",
    "shared_documents": "none",
    "threshold": 1.0,
    "visibility": "private",
}
"""The strictest values, for settings that cannot be read: what has left cannot be called back."""


class SettingsKeywords(TypedDict, total=False):
    """The settings as keywords of `KnowledgePulse`."""

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


class _EveryKeyword(SettingsKeywords, total=False):
    """Those of `Settings`: of `KnowledgePulse`, one has another type."""

    embedder: Literal["minilm", "minilm-int8", "none"]


class Settings(BaseSettings):
    """Every setting, read once. Each is also ``KP_…`` in the environment.

    Made by its name, it raises wherever a wrong value comes from; `KnowledgePulse` raises for its
    keywords alone, and sends nothing where anything else is wrong.

    Attributes:
        domain: Of runs that name none; picks the weights of the score.
        threshold: What a score must reach to leave this machine, 0 to 1; or ``top 10%``: a tenth of
            each domain's runs, the best by rank, and 0.75 until a domain has 10.
        max_per_day: How many may leave in 24 hours; None means any number.
        estimate: Whether to estimate the success of runs from those of which somebody told.
        forward_only: ``confirmed`` lets only runs leave of which somebody or something other than
            the agent told that they succeeded; the others wait. None means any.
        confirm_within_days: How long after its start a run waits for that.
        visibility: Who may see a trace; ``private`` never leaves this machine.
        privacy_level: How much is removed before a trace leaves; ``private`` removes least.
        redact_allow: What may stay: findings that are exactly such a text; ``/patterns/`` exempt
            what they match whole, but never a secret.
        redact_deny: What always goes: a text in any case, or what a ``/pattern/`` finds.
        redact_keys_allow: Fields whose name does not make their values secret.
        redact_keys_deny: Fields whose values always go.
        redact_phone_regions: Where national phone numbers and ids are at home, such as ``DE``.
        redact_engines: What else looks for secrets and names: ``phonenumbers``, ``kingfisher``,
            ``gitleaks:FILE``, ``presidio:MODEL``. Without it, nothing is sent.
        redact_numbered: ``[REDACTED:email#1]``: within one trace, equal contacts have equal
            numbers; secrets have none.
        db: The SQLite file of traces.
        registry_url: Where traces go.
        api_key: Of the registry; without one, or with an empty one, nothing leaves this machine.
        agent_id: Under which the key was registered.
        shared: The PostgreSQL database that several hosts share, ``postgresql://…``; a secret.
        shared_documents: How runs stand there: ``redacted`` as they would leave; ``full``, as here;
            ``none``, scores and vectors alone. Private runs are never there.
        embedder: What measures novelty: ``minilm``; ``minilm-int8``, which is faster and less
            exact; or ``none`` for 0.5. The keyword of `KnowledgePulse` takes an object instead.
        embedder_threads: For one text: 1 leaves the other processors to the host.
        profiles: Weights by domain, beside the protocol's own.
        cache_size: With how many earlier traces a new one is compared: 1,000, or 10,000 where
            several hosts share a log.
        cache_ttl_ms: After how many milliseconds an earlier trace is forgotten; None means never.
        enabled: False records nothing at all; ``KP_ENABLED=false`` wins over the keyword.
        recall: False recalls nothing; ``KP_RECALL=false`` wins over the keyword.
        sync: Wait until a run is scored when it ends: for tests and serverless functions.
        max_field_bytes: Of one text or one tool's input; what is cut is said in place. At most a
            million: redaction looks through no more.
        max_steps: Of one trace; a longer run keeps its first and last steps, and a marker between.
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
        env_ignore_empty=True,
        enable_decoding=False,  # lists may be written with commas
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        hide_input_in_errors=True,  # a mistyped name would quote the API key
    )

    domain: NonEmpty = "general"
    threshold: Threshold = DEFAULT_THRESHOLD
    max_per_day: Annotated[int, Field(ge=0)] | None = None
    estimate: Enabled = True
    forward_only: Literal["confirmed"] | None = None
    confirm_within_days: Annotated[float, Field(gt=0)] = 30.0
    visibility: Visibility = "network"
    privacy_level: PrivacyLevel = "aggregated"
    redact_allow: Patterns = ()
    redact_deny: Patterns = ()
    redact_keys_allow: Texts = ()
    redact_keys_deny: Texts = ()
    redact_phone_regions: Regions = ()
    redact_engines: Engines = ()
    redact_numbered: bool = False
    db: DatabaseFile = Field(default_factory=locations.default_database_file)
    registry_url: RegistryUrl = PUBLIC_REGISTRY
    api_key: ApiKey = None
    agent_id: NonEmpty | None = None
    shared: SharedLogUrl = None
    shared_documents: Literal["redacted", "full", "none"] = "redacted"
    embedder: Literal["minilm", "minilm-int8", "none"] = "minilm"
    embedder_threads: Annotated[int, Field(ge=1)] = 1
    profiles: Profiles = {}
    cache_size: Annotated[
        int, Field(ge=0, default_factory=lambda said: 10_000 if said.get("shared") else 1000)
    ]
    cache_ttl_ms: Annotated[int, Field(ge=0)] | None = None
    enabled: Enabled = True
    recall: Enabled = True
    sync: bool = False
    max_field_bytes: Annotated[int, Field(ge=1024)] = 64 * 1024
    max_steps: Annotated[int, Field(ge=2)] = 1000
    max_trace_bytes: Annotated[int, Field(ge=4096)] = 1024 * 1024
    max_queue_bytes: Annotated[int, Field(ge=0)] = 64 * 1024 * 1024
    paused_ttl_s: Annotated[float, Field(ge=0)] = 7 * 24 * 3600.0
    thread_idle_s: Annotated[float, Field(ge=0)] = 3600.0
    retention_days: Annotated[float, Field(gt=0)] | None = None

    _problems: tuple[SettingProblem, ...] = ()
    _unused_login: str | None = None

    def __init__(self, **keywords: Unpack[_EveryKeyword]) -> None:
        locations.settings_lines()  # says why, where it cannot be read
        outside = _outside()
        for problem in (problem for source in outside for problem in source.problems):
            logger.warning("%s: it is ignored", problem)
        self._read(keywords, *outside)

    @classmethod
    def as_far_as_usable(cls, **keywords: Unpack[SettingsKeywords]) -> Self:
        """Read the settings of a program, which nothing outside of it shall end.

        A value from outside that is wrong is as if it were not said, or the strictest where it
        could have been stricter; `problems` has it, and there is no API key.

        Raises:
            pydantic.ValidationError: With the name of each keyword that is wrong.
        """
        outside = _outside()
        problems = tuple(problem for source in outside for problem in _take_out_wrong(source))
        made = cls.__new__(cls)
        made._unused_login = made._read(keywords, *outside)  # noqa: SLF001
        if problems:
            made = made.model_copy(update={"api_key": None})
        made._problems = problems  # noqa: SLF001
        return made

    def _read(
        self, keywords: Mapping[str, Any], variables: Source, file: Source, login: Source
    ) -> str | None:
        """Take the nearest values; return why the reference CLI's key is not used."""
        nearer = {**file.values, **variables.values, **keywords}
        values = login.values | nearer
        why = locations.why_unused(login, str(values.get("registry_url") or PUBLIC_REGISTRY))
        if why is not None:
            values = {
                name: value
                for name, value in values.items()
                if name in nearer or name not in {"api_key", "agent_id"}
            }
        try:
            BaseModel.__init__(self, **values)  # the sources of BaseSettings know no login
        except ValidationError as error:
            raise _for_people(error) from None
        return None if "api_key" in nearer else why

    @property
    def problems(self) -> tuple[SettingProblem, ...]:
        """The problems outside of the program; nothing is sent while there are any."""
        return self._problems

    @property
    def gate(self) -> SettingsGate:
        """The gate that the threshold and the daily limit describe."""
        return SettingsGate(self.threshold, self.max_per_day)

    @property
    def unused_login(self) -> str | None:
        """The reason the reference CLI's key is not used, and a remedy; None if there is none."""
        return self._unused_login


def outside_origins() -> dict[str, str]:
    """Name for each setting that is set outside of the program the place that counts."""
    return {
        name: one.origin or one.places[name] for one in reversed(_outside()) for name in one.values
    }


def _outside() -> tuple[Source, Source, Source]:
    file = locations.settings_of_file(Settings.model_fields)
    return locations.variables(Settings), file, locations.read_login()


def _take_out_wrong(source: Source) -> list[SettingProblem]:
    """Take what is wrong out of a source, and return its problems."""
    wrong: dict[str, str] = {}
    try:
        BaseModel.__init__(Settings.__new__(Settings), **source.values)
    except ValidationError as error:  # told without the value: it may be a secret
        for one in error.errors(include_input=False, include_url=False):
            words = problem_in_words(one["loc"][1:], one["msg"])
            wrong.setdefault(str(one["loc"][0]), words)
    if "db" in source.values and "db" not in wrong:
        path = database_path(Path(source.values["db"]))
        wrong |= {"db": why} if (why := locations.why_no_file(path)) else {}
    problems = [*source.problems]
    for name in [name for name in source.values if name in wrong]:
        problems.append(SettingProblem(source.places[name], name, wrong[name]))
        source.unclear.add(name)
        del source.values[name]
    source.values |= {name: _STRICTEST[name] for name in source.unclear & _STRICTEST.keys()}
    return problems


def _for_people(error: ValidationError) -> ValidationError:
    """Say the same without links, and what a name that there is not may mean."""
    details = []
    for one in error.errors(include_input=False, include_url=False):
        if one["type"] == "default_factory_not_called":
            continue  # another setting is wrong, and is told
        name, *rest = one["loc"]
        words = problem_in_words((), one["msg"])
        if one["type"] == "extra_forbidden" and not rest:
            words = f"there is no such setting: {did_you_mean(str(name), Settings.model_fields)}"
        kind = PydanticCustomError(one["type"], "{words}", {"words": words})
        details.append(InitErrorDetails(type=kind, loc=one["loc"], input=None))
    return ValidationError.from_exception_data("Settings", details, hide_input=True)
