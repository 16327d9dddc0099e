"""Record every run without changing the agent: in the whole process, or in a block.

LangChain asks a configure hook for a handler whenever a run begins. Nothing is patched, and one
handler serves all runs.
"""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache, partial
from typing import Final, TypeAlias, cast

from kp_langchain._handler import KPCallbackHandler
from kp_langchain._roots import Scope
from kp_middleware.confidence import Confidences
from kp_middleware.recording import Extractors, Recording, shield

_YES: Final = {"1", "on", "t", "true", "y", "yes"}
_NO: Final = {"0", "f", "false", "n", "no", "off"}

_Source: TypeAlias = Callable[[], KPCallbackHandler | None]

logger: Final = logging.getLogger("kp_middleware")
_of_block: Final[ContextVar[KPCallbackHandler | None]] = ContextVar("kp_langchain", default=None)


def enable(
    kp: Recording | None = None,
    *,
    domain: str | None = None,
    confidence: Confidences = None,
    scope: Scope = "run",
) -> None:
    """Record every run of this process that begins from now on, in all its threads and tasks.

    Enabling again only replaces what was given before. A run that is given a handler explicitly is
    recorded by that one. Where ``KP_ENABLED`` is false, nothing is switched on. The arguments are
    those of `KPCallbackHandler`; the default pipeline is made when a run begins.

    Raises:
        TypeError: If a confidence is not a function.
    """
    Extractors(confidence)  # what is wrong is told now, not when a run begins
    if _allowed():
        _install()
        make = partial(KPCallbackHandler, kp, domain=domain, confidence=confidence, scope=scope)
        _switch.everywhere = cache(shield(make))


def disable() -> None:
    """Undo `enable` and ``KP_TRACING``; runs in progress are recorded to their end."""
    _switch.everywhere = _nobody


@contextmanager
def recording_runs(
    kp: Recording | None = None,
    *,
    domain: str | None = None,
    confidence: Confidences = None,
    scope: Scope = "run",
) -> Iterator[KPCallbackHandler]:
    """Record every run that begins in the block: in this thread, and in tasks that begin there.

    The block receives its handler, whose ``trace_id`` returns the ids of the traces. It takes
    precedence over `enable`. A run inside one that is already recorded stays a part of it.
    Where ``KP_ENABLED`` is false, nothing is switched on. The arguments are those of
    `KPCallbackHandler`.

    Example:
        ``with recording_runs(kp): agent.invoke(inputs)``
    """
    is_on = _allowed()
    handler = KPCallbackHandler(
        kp if is_on else _Off(), domain=domain, confidence=confidence, scope=scope
    )
    if is_on:
        _install()
    token = _of_block.set(handler if is_on else _of_block.get())
    try:
        yield handler
    finally:
        with suppress(ValueError):  # a generator may be closed from another context
            _of_block.reset(token)


def _nobody() -> None:
    return None


class _Off:
    """A pipeline that records nothing."""

    def start_recording(self, framework: str, /) -> None: ...


class _Switch:
    """A substitute for the ContextVar that LangChain expects, of which it only reads the value.

    A real one could not be set for threads that are running already.
    """

    everywhere: _Source = staticmethod(_nobody)

    def get(self) -> KPCallbackHandler | None:
        """Return the handler of the current block, else that of the process, or None."""
        return _of_block.get() or self.everywhere()


@cache
def _install() -> None:
    from langchain_core.tracers.context import register_configure_hook  # takes a quarter second

    register_configure_hook(
        cast("ContextVar[KPCallbackHandler | None]", _switch),
        inheritable=True,
        handle_class=KPCallbackHandler,
    )


def _allowed() -> bool:
    return _setting("KP_ENABLED") not in _NO


def _setting(name: str) -> str:
    return os.environ.get(name, "").strip().lower()


def _obey_environment() -> None:
    asked = _setting("KP_TRACING")
    if asked in _YES:
        enable()
    elif asked and asked not in _NO:
        logger.warning("KP_TRACING is %r, neither true nor false: nothing is switched on", asked)


_switch: Final = _Switch()
_obey_environment()
