"""The decorators of captured functions, which are runs, and of tools, which are steps."""

import inspect
import json
import types
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial, wraps
from time import perf_counter
from typing import Any, Final, Protocol, TypeVar, cast

from kp_middleware.recording._confidence import ConfidenceEstimate, Extractor
from kp_middleware.recording._context import (
    Place,
    current_recorder,
    inside,
    place_here,
)
from kp_middleware.recording._limits import BoundedCopy, jsonable
from kp_middleware.recording._recorder import GIVEN_UP, Recorder, current_trace
from kp_middleware.recording._shield import shield

_YIELDED_BYTES: Final = 60 * 1024
_ARGUMENT_BYTES: Final = 8 * 1024

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Naming:
    """The names and settings of a captured function's runs.

    Attributes:
        name: The agent's name; by default, the function's.
        objective: The parameter that holds the objective; by default, the first text argument.
        domain: The domain, which selects the weights of the score; by default, the pipeline's.
        confidence: Extractors of the confidence from a result that does not state it.
        owner: The parameter that holds the owner.
    """

    name: str | None = None
    objective: str | None = None
    domain: str | None = None
    confidence: tuple[Extractor, ...] | None = None
    owner: str | None = None


def captured(function: F, start: Callable[[], Recorder | None], naming: Naming) -> F:
    """Wrap a function so that a call outside any run is a run, and a call inside one is part of it.

    ``start`` returns a new recorder, or None if nothing is recorded now.
    """
    signature = _signature(function)

    def watch(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Watch:
        call = _Call(function, _arguments(function, signature, args, kwargs) or {})
        outer = current_recorder()
        if outer is not None:
            return _Run(outer, call, agent=naming.name or call.name)
        recorder = start()
        if recorder is None:
            return _Run(current_trace(), call, agent=naming.name or call.name)
        _introduce(recorder, call, naming)
        return _Run(recorder, call)

    return instrument(function, watch)


def recorded_tool(function: F, name: str | None) -> F:
    """Wrap a function so that a call inside a run is a tool call and an observation there."""
    signature = _signature(function)

    def watch(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Watch:
        recorder = current_recorder()
        if recorder is None:
            return _ToolUse(None, "", {})
        call = _Call(function, _arguments(function, signature, args, kwargs) or {})
        return _ToolUse(recorder, name or call.name, call.arguments)

    return instrument(function, watch)


class _Call:
    """A function's name and a copy of its arguments, made before its body could change them."""

    def __init__(self, function: Callable[..., Any], arguments: dict[str, Any]) -> None:
        self.name = getattr(function, "__name__", type(function).__name__)
        self.arguments = arguments

    def __str__(self) -> str:
        return f"{self.name}({json.dumps(self.arguments, ensure_ascii=False)})"


class _Yields:
    """The items of a generator, up to a limit in bytes."""

    def __init__(self) -> None:
        self._copy = BoundedCopy(_YIELDED_BYTES)
        self._items: list[Any] = []
        self._count = 0
        self._only_texts = True

    def add(self, item: object) -> None:
        self._count += 1
        self._only_texts = self._only_texts and isinstance(item, str)
        if self._copy.left_bytes > 0:
            self._items.append(self._copy.of(item))

    def or_result(self, result: object) -> object:
        if not self._items:
            return result
        cut = len(self._items) < self._count
        items = [*self._items, *([f"… [cut: {self._count} items in all]"] if cut else [])]
        return "".join(items) if self._only_texts else items


class _Run:
    """A call of a captured function: a run of its own, or part of the run around it."""

    def __init__(self, recorder: Recorder, call: _Call, *, agent: str | None = None) -> None:
        self._recorder = recorder
        self._call = call
        self._is_root = agent is None
        around = None if agent is None else place_here()
        parent = None if around is None else around.parent
        self._place = None if agent is None else Place(agent, parent)
        self._steps_before = recorder.log.count
        self._yields = _Yields()

    def running(self) -> AbstractContextManager[None]:
        return inside(self._recorder, self._place)

    @shield
    def yielded(self, item: object) -> None:
        self._yields.add(item)

    @shield
    def returned(self, result: object) -> None:
        result = self._yields.or_result(result)
        if self._recorder.log.count == self._steps_before:
            summary = "None" if result is None else result
            self._recorder.note("thought", str(self._call), place=self._place)
            self._recorder.note("observation", output_summary=summary, place=self._place)
        if self._is_root:
            self._conclude(result)
            self._recorder.extract_confidence(result)
            self._recorder.finish()

    @shield
    def raised(self, error: BaseException) -> None:
        if isinstance(error, GeneratorExit) and not self._is_root:
            self.returned(None)  # the caller stopped iterating
            return
        if self._recorder.log.count == self._steps_before:
            self._recorder.note("thought", str(self._call), place=self._place)
        if self._is_root:
            self._conclude(self._yields.or_result(None))
            self._recorder.finish(error, complete=not isinstance(error, GIVEN_UP))
        elif not self._recorder.has_just_noted(error):
            self._recorder.error(error)

    @shield
    def _conclude(self, result: object) -> None:
        if result is not None and not self._recorder.result_summary:
            self._recorder.outcome(result)


class _ToolUse:
    """A tool call inside a run; outside any run, it records nothing."""

    def __init__(self, recorder: Recorder | None, name: str, arguments: dict[str, Any]) -> None:
        self._recorder = recorder
        self._name = name
        self._started = perf_counter()
        self._yields = _Yields()
        self._place, self._call_id = place_here(), ""
        if recorder is not None:
            self._call_id = recorder.new_call_id()
            recorder.note(
                "tool_call", tool=name, input=arguments, place=self._place, call_id=self._call_id
            )

    def running(self) -> AbstractContextManager[None]:
        agent = None if self._place is None else self._place.agent
        return inside(self._recorder, Place(agent, self._call_id))

    @shield
    def yielded(self, item: object) -> None:
        self._yields.add(item)

    @shield
    def returned(self, result: object) -> None:
        if self._recorder is not None:
            result = self._yields.or_result(result)
            summary = "None" if result is None else result
            took_ms = self._latency_ms()
            self._recorder.note(
                "observation", None, self._name, summary, took_ms, self._place, self._call_id
            )

    @shield
    def raised(self, error: BaseException) -> None:
        if isinstance(error, GeneratorExit):
            self.returned(None)  # the caller stopped iterating
        elif self._recorder is not None and not self._recorder.has_just_noted(error):
            self._recorder.error(
                error,
                tool=self._name,
                latency_ms=self._latency_ms(),
                place=self._place or Place(),
                call_id=self._call_id,
            )

    def _latency_ms(self) -> float:
        return round((perf_counter() - self._started) * 1000, 3)


def _introduce(recorder: Recorder, call: _Call, naming: Naming) -> None:
    recorder.agent_name = naming.name or call.name
    recorder.domain = naming.domain
    if naming.owner is not None:
        recorder.owner = str(call.arguments.get(naming.owner))
    recorder.confidence_estimate = ConfidenceEstimate(naming.confidence)
    if naming.objective is not None:
        recorder.set_objective(call.arguments.get(naming.objective, str(call)))
        return
    texts = (text for text in call.arguments.values() if isinstance(text, str) and text)
    recorder.set_objective(next(texts, str(call)))


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(_function_of(function))
    except (TypeError, ValueError):
        return None  # a builtin may have none


@shield
def _arguments(
    function: Callable[..., Any],
    signature: inspect.Signature | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> dict[str, Any]:
    """Return the arguments by name, without a method's ``self`` or ``cls``, as bounded JSON."""
    named: Mapping[str, Any] = {"args": args, **kwargs}
    if signature is not None:
        with suppress(TypeError):  # wrong arguments: the call itself will raise
            named = signature.bind_partial(*args, **kwargs).arguments
    if args and _is_receiver(args[0], function):
        named = dict(list(named.items())[1:])
    copied = jsonable(named, _ARGUMENT_BYTES)
    return copied if isinstance(copied, dict) else {"args": copied}


def _is_receiver(first: object, function: Callable[..., Any]) -> bool:
    """Return whether the first argument is the ``self`` or ``cls`` of this function."""
    owner: Any = first if issubclass(type(first), type) else type(first)
    name = getattr(function, "__name__", "")
    members = (vars(kind)[name] for kind in owner.__mro__ if name in vars(kind))
    return any(
        _innermost(member) is _innermost(function)
        for member in members
        if not isinstance(member, staticmethod)
    )


def _innermost(function: Any) -> Any:
    return inspect.unwrap(_function_of(function))


def _function_of(method: Any) -> Any:
    """Return the function that a classmethod or staticmethod wraps, else the method itself."""
    return method.__func__ if isinstance(method, classmethod | staticmethod) else method


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


def instrument(function: F, watch: Callable[[tuple[Any, ...], dict[str, Any]], Watch]) -> F:
    """Wrap a function so that each call is watched by the `Watch` that ``watch`` returns for it.

    Raises:
        TypeError: If it is a class, a property, or not callable.
    """
    if isinstance(function, classmethod | staticmethod):
        return cast(F, type(function)(instrument(function.__func__, watch)))
    if isinstance(function, type) or not callable(function):
        raise TypeError(f"expected a function, got {function!r}: decorate the one it calls")
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
