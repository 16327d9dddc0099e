"""What a user may set: by keyword, ``KP_*``, ``settings.toml`` or the reference CLI's files.

Looked for in this order; what is set nowhere has a default: nothing has to be set to begin. A wrong
keyword raises; what is wrong outside of the program keeps it from sending, and from nothing else.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypedDict, Unpack

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from kp_middleware import locations
from kp_middleware.allowed_values import what_is_needed
from kp_middleware.core.formula import DEFAULT_THRESHOLD, Weights
from kp_middleware.logins import PUBLIC_REGISTRY, read_login
from kp_middleware.setting_values import (
    ApiKey,
    DatabaseFile,
    Enabled,
    Engines,
    Patterns,
    Profiles,
    Regions,
    RegistryUrl,
    Texts,
    Threshold,
)
from kp_middleware.settings_sources import (
    REFERENCE,
    Said,
    SettingProblem,
    nearest,
    no_setting,
    read_outside,
)
from kp_middleware.traces import NonEmpty, PrivacyLevel, Visibility

logger = logging.getLogger("kp_middleware")

_STRICTEST: Final[Mapping[str, Any]] = {
    "max_per_day": 0,
    "privacy_level": "aggregated",
    "threshold": 1.0,
    "visibility": "private",
}
"""Where it is not known what the user meant: what has left cannot be called back."""


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


class _EveryKeyword(SettingsKeywords, total=False):
    """Those of `Settings`: of `KnowledgePulse`, one has another type."""

    embedder: Literal["minilm", "minilm-int8", "none"]


class Settings(BaseModel):
    """Every setting, read once. Each is also ``KP_…`` in the environment.

    Made by its name, it raises wherever a wrong value comes from; `KnowledgePulse` raises for its
    keywords alone, and sends nothing where anything else is wrong.

    Attributes:
        domain: Of runs that name none; picks the weights of the score.
        threshold: What a score must reach to leave this machine, 0 to 1; or ``top 10%``: what the
            best tenth of each domain's last runs reach, at most 500 of 30 days, and 0.75 until a
            domain has 50.
        max_per_day: How many may leave in 24 hours; None means any number.
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

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        hide_input_in_errors=True,  # a mistyped name would quote the API key
    )

    domain: NonEmpty = "general"
    threshold: Threshold = DEFAULT_THRESHOLD
    max_per_day: Annotated[int, Field(ge=0)] | None = None
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
    embedder: Literal["minilm", "minilm-int8", "none"] = "minilm"
    embedder_threads: Annotated[int, Field(ge=1)] = 1
    profiles: Profiles = {}
    cache_size: Annotated[int, Field(ge=0)] = 1000
    cache_ttl_ms: Annotated[int, Field(ge=0)] | None = None
    enabled: Enabled = True
    sync: bool = False
    max_field_bytes: Annotated[int, Field(ge=1024)] = 64 * 1024
    max_steps: Annotated[int, Field(ge=2)] = 1000
    max_trace_bytes: Annotated[int, Field(ge=4096)] = 1024 * 1024
    max_queue_bytes: Annotated[int, Field(ge=0)] = 64 * 1024 * 1024
    paused_ttl_s: Annotated[float, Field(ge=0)] = 7 * 24 * 3600.0
    thread_idle_s: Annotated[float, Field(ge=0)] = 3600.0
    retention_days: Annotated[float, Field(gt=0)] | None = None

    _problems: tuple[SettingProblem, ...] = ()

    def __init__(self, **keywords: Unpack[_EveryKeyword]) -> None:
        locations.settings_lines()  # says why, where it cannot be read
        outside = read_outside(type(self).model_fields)
        for problem in outside.problems:
            logger.warning("%s: it is ignored", problem)
        _check_names(keywords)
        super().__init__(**_with_their_registry(outside.said, keywords))

    @classmethod
    def as_far_as_usable(cls, **keywords: Unpack[SettingsKeywords]) -> Self:
        """The settings of a program, which nothing outside of it shall end.

        A value from outside that is wrong is as if it were not said, or the strictest where it
        could have been stricter; `problems` has it, and there is no API key.

        Raises:
            pydantic.ValidationError: With the name of each keyword that is wrong.
        """
        problems: list[SettingProblem] = []
        usable: list[Said] = []
        for part in read_outside(cls.model_fields).parts:
            problem = part if isinstance(part, SettingProblem) else cls._problem_of(part)
            if problem is None:
                usable += [part] if isinstance(part, Said) else []
                continue
            problems.append(problem)
            strict = _STRICTEST.keys() & {*problem.hides}
            usable += [Said(name, _STRICTEST[name], "", problem.source) for name in strict]
        made = cls._of(_with_their_registry(usable, keywords))
        if problems:
            made = made.model_copy(update={"api_key": None})
            made._problems = tuple(problems)  # noqa: SLF001 - our own
        return made

    @property
    def problems(self) -> tuple[SettingProblem, ...]:
        """What is wrong outside of the program: as long as there is any, nothing is sent."""
        return self._problems

    @classmethod
    def _of(cls, values: Mapping[str, Any]) -> Self:
        """With these values alone."""
        _check_names(values)
        made = cls.__new__(cls)
        BaseModel.__init__(made, **values)
        return made

    @classmethod
    def _problem_of(cls, said: Said) -> SettingProblem | None:
        try:
            made = cls._of({said.name: said.value})
        except ValidationError as error:
            words = what_is_needed(cls.model_json_schema()["properties"][said.name], error)
        else:
            words = (said.name == "db" and locations.why_no_file(made.db)) or ""
        return SettingProblem(said.source, said.name, words, (said.name,)) if words else None


def _with_their_registry(said: Sequence[Said], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """All values; the reference's key and agent only if the registry in use is theirs."""
    values = nearest(said) | dict(keywords)
    last = {one.name: one.origin for one in said}
    lent = [n for n in ("api_key", "agent_id") if last.get(n) == REFERENCE and n not in keywords]
    registry = str(values.get("registry_url") or PUBLIC_REGISTRY)
    why = read_login().why_unused(registry) if lent else None
    if why is None:
        return values
    if "api_key" in lent:
        logger.warning("nothing is sent: %s", why)
    return {name: value for name, value in values.items() if name not in lent}


def _check_names(values: Mapping[str, Any]) -> None:
    """Raise as pydantic does, and say what may be meant."""
    unknown = [name for name in values if name not in Settings.model_fields]
    if unknown:
        words = "Extra inputs are not permitted: {remedy}"
        errors = [
            InitErrorDetails(
                type=PydanticCustomError(
                    "extra_forbidden", words, {"remedy": no_setting(name, Settings.model_fields)}
                ),
                loc=(name,),
                input=None,
            )
            for name in unknown
        ]
        raise ValidationError.from_exception_data("Settings", errors, hide_input=True)
