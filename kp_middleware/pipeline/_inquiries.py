"""What is asked of a registry beside sending, at the pace that all processes share."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kp_middleware.errors import (
    RegistryForbiddenError,
    RegistryUnavailableError,
)
from kp_middleware.export import Registry
from kp_middleware.pipeline._forwarding_worker import shared_pace
from kp_middleware.pipeline._shared_pace import SharedPace


def check_key(registry: Registry, db: Path) -> bool:
    """Ask whether the registry knows the key, and whether that may write.

    Args:
        registry: Whom to ask, and with which key.
        db: The file of traces, beside which the pace may be kept.

    Returns:
        False if it knows the key, and cannot be asked for more while sending pauses.

    Raises:
        RegistryError: If the key is of no use, or the registry in trouble.
    """
    with _at_the_pace(registry, db) as pace:
        try:
            registry.check_key()
            return _may_write(registry, pace)
        except RegistryForbiddenError as error:
            problem = error.problem.kept
            pace.settle(lambda before, now: before.forbidden(now).met(problem, now))
            raise


def sent_ids(registry: Registry, db: Path, *, agent_id: str) -> frozenset[str]:
    """The ids of all that the registry has of this agent.

    Args:
        registry: Whom to ask, and with which key.
        db: The file of traces, beside which the pace may be kept.
        agent_id: Under which the key is registered.

    Raises:
        RegistryError: If it does not tell.
    """
    with _at_the_pace(registry, db):
        return registry.export_ids(agent_id)


def _may_write(registry: Registry, pace: SharedPace) -> bool:
    wait_s = pace.take()
    if wait_s == math.inf:
        problem = pace.problem
        words = f"at an earlier request: {problem.what}"
        raise RegistryForbiddenError(403, words, problem.remedy, problem=problem)
    if wait_s > 0 or pace.spend() is None:
        return False
    registry.check_scope()
    pace.settle(lambda before, _: before.answered())
    return True


@contextmanager
def _at_the_pace(registry: Registry, db: Path) -> Iterator[SharedPace]:
    """A 429 counts, whatever was asked."""
    pace = shared_pace(registry, db)
    try:
        yield pace
    except RegistryUnavailableError as error:
        if error.status == 429:
            wait_s, problem = error.retry_after_s or 0.0, error.problem.kept
            pace.settle(lambda before, now: before.limited(now, wait_s).met(problem, now))
        else:
            pace.settle(lambda before, _: before.unasked())
        raise
    finally:
        pace.release()
