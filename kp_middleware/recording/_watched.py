"""Wrappers that watch a function and keep its kind: plain, async or (async) generator."""

import inspect
import types
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager
from functools import partial, wraps
from typing import Any, Final, Protocol, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


class Watch(Protocol):
    """A watch on one call. Its methods do not raise."""

    def running(self) -> AbstractContextManager[None]:
        """Return a context manager to enter whenever the function's own body runs."""

    def yielded(self, item: object, /) -> None:
        """Take an item that the body yielded."""

    def returned(self, result: object, /) -> None:
        """Take the result that the body returned; the call has ended."""

    def raised(self, error: BaseException, /) -> None:
        """Take the error that the body raised; the call has ended."""


def watched(function: F, watch: Callable[[tuple[Any, ...], dict[str, Any]], Watch]) -> F:
    """Wrap a function so that each call is watched by the `Watch` that ``watch`` returns for it.

    Raises:
        TypeError: If it is a class, a property, or not callable.
    """
    if isinstance(function, classmethod | staticmethod):
        return cast(F, type(function)(watched(function.__func__, watch)))
    if isinstance(function, type) or not callable(function):
        raise TypeError(f"a function is needed, this is {function!r}: decorate what it calls")
    called = inspect.getattr_static(type(function), "__call__", None)  # of a callable object
    for is_kind, wrapper in (
        (inspect.iscoroutinefunction, _coroutine),
        (inspect.isasyncgenfunction, _async_generator),
        (inspect.isgeneratorfunction, _generator),
    ):
        if is_kind(function) or is_kind(called):
            return cast(F, wrapper(function, watch))
    return cast(F, _plain(function, watch))


def _plain(function: Callable[..., Any], watch: Callable[..., Watch]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        seen = watch(args, kwargs)
        try:
            with seen.running():
                result = function(*args, **kwargs)
        except BaseException as error:
            seen.raised(error)
            raise
        goes_on = _LATER.get(type(result))
        if goes_on is not None:
            return goes_on(lambda: result, lambda *_: seen)()
        seen.returned(result)
        return result

    return call


def _coroutine(function: Callable[..., Any], watch: Callable[..., Watch]) -> Callable[..., Any]:
    @wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        seen = watch(args, kwargs)
        try:
            with seen.running():
                result = await function(*args, **kwargs)
        except BaseException as error:
            seen.raised(error)
            raise
        seen.returned(result)
        return result

    return call


def _generator(function: Callable[..., Any], watch: Callable[..., Watch]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        seen = watch(args, kwargs)
        try:
            result = yield from _driven(function(*args, **kwargs), seen)
        except BaseException as error:
            seen.raised(error)
            raise
        seen.returned(result)
        return result

    return call


def _driven(body: Generator[Any, Any, Any], seen: Watch) -> Generator[Any, Any, Any]:
    resume = partial(next, body)
    while True:
        try:
            with seen.running():
                item = resume()
        except StopIteration as stop:
            return stop.value
        seen.yielded(item)
        try:
            resume = partial(body.send, (yield item))
        except GeneratorExit:
            with seen.running():
                body.close()
            raise
        except BaseException as error:  # noqa: BLE001 - thrown in by the caller, for the body
            resume = partial(body.throw, error)


def _async_generator(
    function: Callable[..., Any], watch: Callable[..., Watch]
) -> Callable[..., Any]:
    @wraps(function)
    async def call(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        seen = watch(args, kwargs)
        try:
            body = function(*args, **kwargs)
            resume = partial(anext, body)
            while True:
                with seen.running():
                    item = await resume()
                seen.yielded(item)
                try:
                    resume = partial(body.asend, (yield item))
                except GeneratorExit:
                    with seen.running():
                        await body.aclose()
                    raise
                except BaseException as error:  # noqa: BLE001 - thrown in, for the body
                    resume = partial(body.athrow, error)
        except StopAsyncIteration:
            seen.returned(None)
        except BaseException as error:
            seen.raised(error)
            raise

    return call


_LATER: Final[dict[type, Callable[..., Any]]] = {
    types.CoroutineType: _coroutine,
    types.GeneratorType: _generator,
    types.AsyncGeneratorType: _async_generator,
}
"""The wrappers for what a plain function may return to run later."""
