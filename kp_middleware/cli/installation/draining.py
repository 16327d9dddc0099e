"""The outbox of a file, sent from the command line."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from kp_middleware.cli.installation.sending import find_obstacles
from kp_middleware.cli.installation.user_settings import read_settings
from kp_middleware.cli.output.manners import hint
from kp_middleware.cli.output.progress import Progress
from kp_middleware.database import Connection
from kp_middleware.storage import OutboxCare

_WAITS = ("pending", "sending")
_MORE_TIME = "the time is over: --timeout gives it longer, or the next program goes on"


class Drained(NamedTuple):
    """What became of what waited.

    Attributes:
        counts: How many were ``sent``, ``rejected``, ``blocked`` or ``cancelled``, or are ``left``.
        reasons: Why some are left, a sentence each, with what to do.
    """

    counts: Counter[str]
    reasons: Sequence[str] = ()


def send_what_waits(db: Path, connection: Connection, *, timeout_s: float) -> Drained:
    """Send it, and show how far that has come.

    Raises:
        click.ClickException: If it cannot be sent from here, with what to do.
    """
    care = OutboxCare(connection)
    seqs = care.seqs(*_WAITS)
    if not seqs:
        return Drained(Counter())
    for sending in find_obstacles(connection, db).sending:
        hint(sending.in_words())
    with Progress("traces sent") as shown:
        trouble = _drain(
            db,
            timeout_s,
            lambda: shown.reach(max(0, len(seqs) - care.count(states=_WAITS)), len(seqs)),
        )
    states = care.states(seqs)
    left = sum(states.pop(state, 0) for state in _WAITS)
    reasons = [*_reasons(db, connection, trouble)] if left else []
    return Drained(Counter(states | {"left": left}), reasons)


def _drain(db: Path, timeout_s: float, look: Callable[[], None]) -> str | None:
    from kp_middleware.pipeline import drain

    settings = read_settings(db)
    if settings.api_key is None:
        raise click.ClickException("set KP_API_KEY to a key with scope write: nothing goes without")
    if settings.visibility == "private":
        raise click.ClickException("your visibility is private: nothing leaves; see KP_VISIBILITY")
    try:
        return drain(settings, settings.api_key, timeout_s=timeout_s, look=look)
    except ValueError as error:
        raise click.ClickException(str(error)) from error


def _reasons(db: Path, connection: Connection, trouble: str | None) -> Iterator[str]:
    if trouble is not None:
        yield trouble
    obstacles = find_obstacles(connection, db)
    told = [*obstacles.in_words()]
    yield from told
    if trouble is None and not told:
        yield from (sending.in_words() for sending in obstacles.sending)
        yield _MORE_TIME
