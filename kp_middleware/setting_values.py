"""Types of setting values, parsed from environment variables and checked."""

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
from kp_middleware.patterns import compile_pattern, is_pattern
from kp_middleware.traces import NonEmpty

_OFF: Final = frozenset({"false", "0", "no", "off", "f", "n"})
_URL_CHARACTERS: Final = re.compile(r"[!-\[\]-~]{1,2000}")  # no blank, no backslash
_HOST: Final = re.compile(r"[\w.:-]+", re.ASCII)
_INVALID_URL: Final = (
    "the registry's URL must begin with https:// (http:// is for this machine only), or others"
    " could read the API key"
)
_INVALID_PATTERN: Final = (
    "not a valid RE2 pattern: see https://github.com/google/re2/wiki/Syntax"  # quotes nothing
)


def checked_registry_url(text: str) -> str:
    """Return a registry's URL without a trailing slash, or raise ValueError."""
    try:
        url = urlsplit(text if _URL_CHARACTERS.fullmatch(text) else "//[")
        host, _ = url.hostname or "", url.port
    except ValueError:
        raise ValueError(_INVALID_URL) from None  # it may hold a password
    if "@" in url.netloc:
        raise ValueError("the registry's URL must not contain a user name or password")
    is_safe = url.scheme == "https" or (url.scheme == "http" and is_loopback(host))
    if not (is_safe and _HOST.fullmatch(host)):
        raise ValueError(_INVALID_URL)
    return text.rstrip("/")


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def checked_api_key(key: str) -> str:
    """Return a key that is valid in a header, or raise ValueError."""
    if not (key.isascii() and key.isprintable() and key.split() == [key]):
        raise ValueError("an API key is printable ASCII without spaces")
    return key


def describe_problem(place: tuple[int | str, ...], message: str) -> str:
    """Return a message that begins with the location within a list or table."""
    parts = (f"entry {part + 1}" if isinstance(part, int) else part for part in place)
    return ": ".join((*parts, message.removeprefix("Value error, ")))


def _shared_log(url: SecretStr | None) -> SecretStr | None:
    """Return the URL of a shared log, or None for an empty one; errors do not quote it."""
    text = "" if url is None else url.get_secret_value()
    try:
        is_valid = not text or urlsplit(text).scheme in {"postgresql", "postgres"}
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ValueError("must be a URL such as postgresql://user@host/database") from None
    return url if text else None


def _checked_key(api_key: SecretStr | None) -> SecretStr | None:
    if api_key is None or not api_key.get_secret_value():
        return None
    checked_api_key(api_key.get_secret_value())
    return api_key


def database_path(path: Path) -> Path:
    """Return an absolute path if possible; opening the file reports other problems."""
    with suppress(RuntimeError):
        path = path.expanduser()
    with suppress(OSError):
        path = path.absolute()
    if os.path.isdir(path):  # noqa: PTH112 - False in a folder that this user may not search
        raise ValueError(locations.file_problem(path))
    return path


def _unless_disabled(enabled: bool, info: ValidationInfo) -> bool:  # noqa: FBT001 - pydantic's
    variable = f"KP_{info.field_name}".upper()
    return enabled and os.environ.get(variable, "").strip().lower() not in _OFF


def _parse_list(value: object) -> object:
    """Parse a list in a variable: JSON, or separated by commas."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            raise ValueError('must be a JSON list, such as ["a", "b"]') from None
    entries = [entry.strip() for entry in value.split(",")]
    if len(entries) > 1 and any("/" in {entry[:1], entry[-1:]} for entry in entries):
        raise ValueError('patterns may contain commas: write a JSON list, ["/a/", "b"]')
    return [entry for entry in entries if entry]


def _parse_table(value: object) -> object:
    """Parse a table in a variable: a JSON object."""
    with suppress(ValueError, RecursionError):
        table = json.loads(value) if isinstance(value, str) else value
        if isinstance(table, dict):
            return table
    raise ValueError('must be a table of weights by domain: {"law": {"complexity": 0.25, …}}')


def _parse_threshold(value: object) -> float | str:
    """Parse a threshold: a score from 0 to 1, or a share such as ``top 10%``."""
    if isinstance(value, str) and (share := parse_share(value)) is not None:
        return format_share(share)
    try:
        score = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (OverflowError, TypeError, ValueError):
        score = math.nan
    if not 0 <= score <= 1:
        raise ValueError('must be a number from 0 to 1, or a share from "top 1%" to "top 100%"')
    return score


def _checked_pattern(entry: str) -> str:
    """Check a pattern, if RE2 is installed; without it, redaction raises later."""
    if is_pattern(entry):
        try:
            with suppress(MissingExtraError):
                compile_pattern(entry[1:-1])
        except ValueError:
            raise ValueError(_INVALID_PATTERN) from None
    return entry


def _matching(pattern: str, message: str) -> AfterValidator:
    def check(entry: str) -> str:
        if not re.fullmatch(pattern, entry):
            raise ValueError(message)
        return entry

    return AfterValidator(check)


_Short: TypeAlias = Annotated[NonEmpty, Field(max_length=1000)]
_Pattern: TypeAlias = Annotated[_Short, AfterValidator(_checked_pattern)]
_Region: TypeAlias = Annotated[
    str, _matching("[A-Z]{2}", "must be two capital letters, such as DE")
]
_Engine: TypeAlias = Annotated[
    _Short,
    _matching(
        "phonenumbers|kingfisher|gitleaks:.+|presidio:.+",
        "must be phonenumbers, kingfisher, gitleaks:FILE or presidio:MODEL",
    ),
]
ApiKey: TypeAlias = Annotated[SecretStr | None, AfterValidator(_checked_key)]
DatabaseFile: TypeAlias = Annotated[Path, AfterValidator(database_path)]
Enabled: TypeAlias = Annotated[bool, AfterValidator(_unless_disabled)]
Engines: TypeAlias = Annotated[tuple[_Engine, ...], BeforeValidator(_parse_list)]
Patterns: TypeAlias = Annotated[tuple[_Pattern, ...], BeforeValidator(_parse_list)]
Profiles: TypeAlias = Annotated[dict[str, Weights], BeforeValidator(_parse_table)]
Regions: TypeAlias = Annotated[tuple[_Region, ...], BeforeValidator(_parse_list)]
RegistryUrl: TypeAlias = Annotated[str, AfterValidator(checked_registry_url)]
SharedLogUrl: TypeAlias = Annotated[SecretStr | None, AfterValidator(_shared_log)]
Texts: TypeAlias = Annotated[tuple[_Short, ...], BeforeValidator(_parse_list)]
Threshold: TypeAlias = Annotated[float | str, BeforeValidator(_parse_threshold)]
