"""The signature of LangChain's callbacks: positional event data, keyword metadata."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias
from uuid import UUID

from kp_middleware.recording import shield

EventKwargs: TypeAlias = Mapping[str, Any]
"""A callback's keyword arguments except ``run_id``: ``parent_run_id``, ``name``, ``tags``, …"""


def callback(method: Callable[..., None]) -> Callable[..., None]:
    """Adapt LangChain's callback signature to ``method(self, *told, run_id, about)``; never raise.

    The run's id is given as an integer: hashing a UUID takes longer than all the rest.

    Each version gives more by name, and an event costs the agent's own time: what is given by name
    is taken apart once.
    """
    what = method.__qualname__

    def hook(self: object, *args: Any, run_id: UUID, **about: Any) -> None:
        try:
            method(self, *args, run_id.int, about)
        except Exception as error:  # noqa: BLE001 - the agent never pays for being watched
            shield.swallow(what, error)

    hook.__wrapped__ = method  # type: ignore[attr-defined]
    hook.__name__, hook.__qualname__, hook.__doc__ = method.__name__, what, method.__doc__
    return hook


def parent_of(about: EventKwargs) -> int | None:
    """Return the id of the parent run, or None."""
    parent_id: UUID | None = about.get("parent_run_id")
    return None if parent_id is None else parent_id.int
