"""Propagation of the current run to threads and event loops that do not inherit it."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")


def carried(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function so that it runs in the context of now, wherever it is called.

    Each call gets its own copy of the context, so that calls can run concurrently.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from contextvars import ContextVar
    >>> name = ContextVar("name", default="nobody")
    >>> token = name.set("somebody")
    >>> with ThreadPoolExecutor() as pool:
    ...     pool.submit(name.get).result(), pool.submit(carried(name.get)).result()
    ('nobody', 'somebody')
    """
    context = copy_context()
    if _is_async(function):
        return cast(Callable[P, R], _coroutine(cast(Any, function), context))
    return _plain(function, context)


def _plain(function: Callable[P, R], context: Context) -> Callable[P, R]:
    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return context.copy().run(function, *args, **kwargs)

    return call


def _coroutine(
    function: Callable[P, Coroutine[Any, Any, R]], context: Context
) -> Callable[P, Coroutine[Any, Any, R]]:
    @wraps(function)
    async def call(*args: P.args, **kwargs: P.kwargs) -> R:
        body = function(*args, **kwargs)
        return await asyncio.create_task(body, context=context.copy())

    return call


def _is_async(function: Callable[..., Any]) -> bool:
    called = inspect.getattr_static(type(function), "__call__", None)  # of a callable object
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)
