"""Which finders of other programs a user may add, by the names that the settings have."""

from functools import cache

from kp_middleware.errors import MissingExtraError, RedactionError
from kp_middleware.privacy._engine import Engine


@cache
def engine(name: str, regions: tuple[str, ...]) -> Engine:
    """The engine that is meant by ``phonenumbers``, ``gitleaks:rules.toml`` and so on.

    Raises:
        RedactionError: ``engine_missing``, with what to install or to mend.
    """
    kind, _, argument = name.partition(":")
    try:
        return _made(name, kind, argument, regions)
    except (MissingExtraError, OSError, ValueError) as error:
        raise RedactionError("engine_missing", f"{name}: {error}") from error


def _made(name: str, kind: str, argument: str, regions: tuple[str, ...]) -> Engine:
    """Those in Python are shown pieces; Kingfisher keeps to a time of its own, RE2 is linear."""
    match kind:
        case "phonenumbers":
            from kp_middleware.privacy._phone_engine import phone_finder

            return Engine(name, "contact", phone_finder(regions), piece_size=4096)
        case "kingfisher":
            from kp_middleware.privacy._kingfisher_engine import kingfisher_finder

            return Engine(name, "secret", kingfisher_finder())
        case "gitleaks":
            from kp_middleware.privacy._gitleaks_engine import gitleaks_finder

            return Engine(name, "secret", gitleaks_finder(argument))
        case "presidio":
            from kp_middleware.privacy._presidio_engine import presidio_finder

            return Engine(name, "contact", presidio_finder(argument), piece_size=8192)
        case _:
            raise ValueError("there is no such engine")
