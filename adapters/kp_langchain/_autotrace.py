"""Record every run in the process or in a block, without changing the agent.

LangChain gets a handler from a configure hook when a run begins; nothing is patched.
"""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache, partial
from typing import Final, cast

from kp_langchain._handler import KPCallbackHandler
from kp_langchain._runs import Scope
from kp_middleware.confidence import Confidences
from kp_middleware.recording import Extractors, NullRecording, Recording, shield

_NO: Final = {"0", "f", "false", "n", "no", "off"}

logger: Final = logging.getLogger("kp_middleware")
_in_block: Final[ContextVar[KPCallbackHandler | None]] = ContextVar("kp_langchain", default=None)


def enable(
    kp: Recording | None = None,
    *,
    domain: str | None = None,
    confidence: Confidences = None,
    scope: Scope = "run",
) -> None:
    """Record every run that this process begins from now on, in all threads and tasks.

    A second call replaces the arguments of the first. A run with an explicit handler uses that one.
    If ``KP_ENABLED`` is false, this does nothing. The arguments are those of `KPCallbackHandler`;
    the default pipeline is created when a run begins.

    Raises:
        TypeError: If a confidence is not a function.
    """
    Extractors(confidence)  # raise now, not when a run begins
    if _is_enabled():
        _install()
        make = partial(KPCallbackHandler, kp, domain=domain, confidence=confidence, scope=scope)
        _switch.process_handler = cache(shield(make))


def disable() -> None:
    """Undo `enable` and ``KP_TRACING``; runs in progress are recorded to their end."""
    _switch.process_handler = None


@contextmanager
def recording_runs(
    kp: Recording | None = None,
    *,
    domain: str | None = None,
    confidence: Confidences = None,
    scope: Scope = "run",
) -> Iterator[KPCallbackHandler]:
    """Record every run that begins in the block, in this thread and in tasks started in it.

    It yields the handler, whose ``trace_id`` returns the ids of the traces, and takes precedence
    over `enable`. A run inside a recorded run remains a part of it. If ``KP_ENABLED`` is false,
    nothing is recorded. The arguments are those of `KPCallbackHandler`.

    Example:
        ``with recording_runs(kp): agent.invoke(inputs)``
    """
    is_on = _is_enabled()
    handler = KPCallbackHandler(
        kp if is_on else NullRecording(), domain=domain, confidence=confidence, scope=scope
    )
    if is_on:
        _install()
    token = _in_block.set(handler if is_on else _in_block.get())
    try:
        yield handler
    finally:
        with suppress(ValueError):  # a generator may be closed in another context
            _in_block.reset(token)


class _Switch:
    """A substitute for the ContextVar that LangChain expects; LangChain only calls ``get``.

    A real ContextVar could not be set for running threads.
    """

    process_handler: Callable[[], KPCallbackHandler | None] | None = None

    def get(self) -> KPCallbackHandler | None:
        """Return the handler of the current block, else that of the process, or None."""
        return _in_block.get() or (self.process_handler and self.process_handler())


@cache
def _install() -> None:
    from langchain_core.tracers.context import register_configure_hook  # takes a quarter second

    register_configure_hook(
        cast("ContextVar[KPCallbackHandler | None]", _switch),
        inheritable=True,
        handle_class=KPCallbackHandler,
    )


def _is_enabled() -> bool:
    return _setting("KP_ENABLED") not in _NO


def _setting(name: str) -> str:
    return os.environ.get(name, "").strip().lower()


def _enable_from_environment() -> None:
    tracing = _setting("KP_TRACING")
    if tracing in {"1", "on", "t", "true", "y", "yes"}:
        enable()
    elif tracing and tracing not in _NO:
        logger.warning("KP_TRACING must be true or false, got %r; tracing is off", tracing)


_switch: Final = _Switch()
_enable_from_environment()
