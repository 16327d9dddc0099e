"""The types of setting values, and how they are written in environment variables."""

import ipaddress
import json
import math
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationInfo

from kp_middleware import locations
from kp_middleware.core.formula import Weights
from kp_middleware.core.gates import format_share, parse_share
from kp_middleware.errors import MissingExtraError
from kp_middleware.patterns import compiled, is_pattern
from kp_middleware.traces import NonEmpty

_OFF: Final = frozenset({"false", "0", "no", "off", "f", "n"})
_PLAIN: Final = re.compile(r"[!-\[\]-~]{1,2000}")  # no blank, no backslash
_HOST: Final = re.compile(r"[\w.:-]+", re.ASCII)
_ADDRESS: Final = (
    "the registry's URL must begin with https:// (http:// is for this machine only), or others"
    " could read the API key"
)
_NO_PATTERN: Final = (
    "this is no pattern of RE2: see https://github.com/google/re2/wiki/Syntax"  # quotes nothing
)


def registry_address(text: str) -> str:
    """Return the URL of a registry without its last slash, if it may be used."""
    try:
        url = urlsplit(text if _PLAIN.fullmatch(text) else "//[")
        host, _ = url.hostname or "", url.port
    except ValueError:
        raise ValueError(_ADDRESS) from None  # it may hold a password
    if "@" in url.netloc:
        raise ValueError("the registry's URL must hold no name and no password")
    is_safe = url.scheme == "https" or (url.scheme == "http" and is_loopback(host))
    if not (is_safe and _HOST.fullmatch(host)):
        raise ValueError(_ADDRESS)
    return text.rstrip("/")


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def api_key_text(key: str) -> str:
    """Return a key that can be put into a header, or raise ValueError."""
    if not (key.isascii() and key.isprintable() and key.split() == [key]):
        raise ValueError("API key must be printable ASCII without spaces; check KP_API_KEY")
    return key


def problem_in_words(place: tuple[int | str, ...], message: str) -> str:
    """Say where in a list or a table it is, and what."""
    parts = (f"entry {part + 1}" if isinstance(part, int) else part for part in place)
    return ": ".join((*parts, message.removeprefix("Value error, ")))


def _shared_log(url: SecretStr | None) -> SecretStr | None:
    """Return the URL of a shared log; an empty one is none, another kind is not quoted."""
    text = "" if url is None else url.get_secret_value()
    try:
        is_one = not text or urlsplit(text).scheme in {"postgresql", "postgres"}
    except ValueError:
        is_one = False
    if not is_one:
        raise ValueError("a URL such as postgresql://user@host/database is needed") from None
    return url if text else None


def _usable_key(api_key: SecretStr | None) -> SecretStr | None:
    if api_key is None or not api_key.get_secret_value():
        return None
    api_key_text(api_key.get_secret_value())
    return api_key


def database_path(path: Path) -> Path:
    """Return an absolute path where possible; opening it will report what else is wrong."""
    with suppress(RuntimeError):
        path = path.expanduser()
    with suppress(OSError):
        path = path.absolute()
    if path.is_dir():
        raise ValueError(locations.why_no_file(path))
    return path


def _unless_switched_off(enabled: bool, info: ValidationInfo) -> bool:  # noqa: FBT001 - pydantic's
    variable = f"KP_{info.field_name}".upper()
    return enabled and os.environ.get(variable, "").strip().lower() not in _OFF


def _listed(value: object) -> object:
    """Parse the list in a variable: JSON, or texts divided by commas."""
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
    """Parse the table in a variable: JSON."""
    with suppress(ValueError, RecursionError):
        table = json.loads(value) if isinstance(value, str) else value
        if isinstance(table, dict):
            return table
    raise ValueError('a table of weights by domain is needed: {"law": {"complexity": 0.25, …}}')


def _score_or_share(value: object) -> float | str:
    """Parse a threshold: a score from 0 to 1, or a share such as ``top 10%``."""
    if isinstance(value, str) and (share := parse_share(value)) is not None:
        return format_share(share)
    try:
        score = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        score = math.nan
    if not 0 <= score <= 1:
        raise ValueError('a number from 0 to 1 is needed, or a share from "top 1%" to "top 100%"')
    return score


def _pattern(entry: str) -> str:
    """Refuse a wrong pattern; without RE2, which redaction asks for then, none is known to be."""
    if is_pattern(entry):
        try:
            with suppress(MissingExtraError):
                compiled(entry[1:-1])
        except ValueError:
            raise ValueError(_NO_PATTERN) from None
    return entry


def _like(pattern: str, words: str) -> AfterValidator:
    def check(entry: str) -> str:
        if not re.fullmatch(pattern, entry):
            raise ValueError(words)
        return entry

    return AfterValidator(check)


_Short: TypeAlias = Annotated[NonEmpty, Field(max_length=1000)]
_Pattern: TypeAlias = Annotated[_Short, AfterValidator(_pattern)]
_Region: TypeAlias = Annotated[str, _like("[A-Z]{2}", "two capital letters are needed, such as DE")]
_Engine: TypeAlias = Annotated[
    _Short,
    _like(
        "phonenumbers|kingfisher|gitleaks:.+|presidio:.+",
        "must be phonenumbers, kingfisher, gitleaks:FILE or presidio:MODEL",
    ),
]
ApiKey: TypeAlias = Annotated[SecretStr | None, AfterValidator(_usable_key)]
DatabaseFile: TypeAlias = Annotated[Path, AfterValidator(database_path)]
Enabled: TypeAlias = Annotated[bool, AfterValidator(_unless_switched_off)]
Engines: TypeAlias = Annotated[tuple[_Engine, ...], BeforeValidator(_listed)]
Patterns: TypeAlias = Annotated[tuple[_Pattern, ...], BeforeValidator(_listed)]
Profiles: TypeAlias = Annotated[dict[str, Weights], BeforeValidator(_table)]
Regions: TypeAlias = Annotated[tuple[_Region, ...], BeforeValidator(_listed)]
RegistryUrl: TypeAlias = Annotated[str, AfterValidator(registry_address)]
SharedLogUrl: TypeAlias = Annotated[SecretStr | None, AfterValidator(_shared_log)]
Texts: TypeAlias = Annotated[tuple[_Short, ...], BeforeValidator(_listed)]
Threshold: TypeAlias = Annotated[float | str, BeforeValidator(_score_or_share)]
