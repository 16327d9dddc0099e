"""The decorators of captured functions, which are runs, and of tools, which are steps."""

import inspect
import json
import types
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import AbstractContextManager, suppress
from functools import partial, wraps
from time import perf_counter
from typing import Any, Final, Self, TypeVar, cast

from kp_middleware.recording._context import (
    Place,
    current_recorder,
    inside,
    is_kind,
    place_here,
    shield,
)
from kp_middleware.recording._extractors import Extractors
from kp_middleware.recording._limits import BoundedCopy
from kp_middleware.recording._recorder import GIVEN_UP, Recorder, current_trace

_YIELDED_BYTES: Final = 60 * 1024
_ARGUMENT_BYTES: Final = 8 * 1024

F = TypeVar("F", bound=Callable[..., Any])


def captured(
    function: F,
    start: Callable[[], Recorder | None],
    *,
    name: str | None = None,
    objective: str | None = None,
    domain: str | None = None,
    owner: str | None = None,
    confidence: Extractors | None = None,
) -> F:
    """Wrap a function so that a call outside any run is a run, and a call inside one is part of it.

    ``start`` returns a new recorder, or None if nothing is recorded now. ``objective`` and
    ``owner`` are the parameters that hold them; by default, the first text is the objective.
    """
    signature, own_name = _signature(function), _name(function)
    agent = name or own_name

    def watch(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Watch:
        arguments = _arguments(signature, args, kwargs) or {}  # before the body can change them

        def call() -> str:
            return f"{own_name}({json.dumps(arguments, ensure_ascii=False)})"

        outer = current_recorder()
        if outer is not None or (recorder := start()) is None:
            return _Run(outer or current_trace(), call, agent=agent)
        recorder.agent_name, recorder.domain = agent, domain
        recorder.extractors = confidence or recorder.extractors
        if owner is not None:
            recorder.owner = str(arguments.get(owner))
        texts = (text for text in arguments.values() if isinstance(text, str) and text)
        told = next(texts, None) if objective is None else arguments.get(objective)
        recorder.set_objective(call() if told is None else told)
        return _Run(recorder, call)

    return instrument(function, watch)


def recorded_tool(function: F, name: str | None) -> F:
    """Wrap a function so that a call inside a run is a tool call and an observation there."""
    signature, tool = _signature(function), name or _name(function)

    def watch(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Watch:
        recorder = current_recorder()
        if recorder is None:
            return Watch(None, None)
        return _ToolUse(recorder, tool, _arguments(signature, args, kwargs) or {})

    return instrument(function, watch)


class Watch:
    """A watch on one call, which never raises: outside any run, it records nothing.

    Attributes:
        result: The result of the call.
        goes_on: True if that runs later, in another block.
    """

    def __init__(self, recorder: Recorder | None, place: Place | None) -> None:
        self._current, self._inside = recorder, place
        self._copy = BoundedCopy(_YIELDED_BYTES)
        self._items: list[Any] = []
        self._count = 0
        self._only_texts = True

    def __enter__(self) -> Self:
        self.result: object = None
        self.goes_on = False
        return self

    def __exit__(self, *raised: object) -> None:
        if isinstance(error := raised[1], BaseException):
            self.raised(error)
        elif not self.goes_on:
            self.returned(self.result)

    def running(self) -> AbstractContextManager[None]:
        """Return a context manager for each time that the function's own body runs."""
        return inside(self._current, self._inside)

    @shield
    def yielded(self, item: object) -> None:
        """Copy an item that a generator yielded."""
        self._count += 1
        self._only_texts = self._only_texts and isinstance(item, str)
        if self._copy.left_bytes > 0:
            self._items.append(self._copy.of(item))

    def _all_yielded(self, result: object = None) -> object:
        if not self._items:
            return result
        if len(self._items) < self._count:
            self._items.append(f"… [cut: {self._count} items in all]")
        return "".join(self._items) if self._only_texts else self._items

    def returned(self, result: object) -> None:
        """Note the end of the call with a result."""

    def raised(self, error: BaseException) -> None:
        """Note the end of the call with an error."""


class _Run(Watch):
    """A call of a captured function: a run of its own, or part of the run around it."""

    def __init__(
        self, recorder: Recorder, call: Callable[[], str], *, agent: str | None = None
    ) -> None:
        around = None if agent is None else place_here() or Place()
        super().__init__(recorder, around and around._replace(agent=agent))
        self._recorder, self._call, self._is_root = recorder, call, agent is None
        self._steps_before = recorder.log.count

    @shield
    def returned(self, result: object) -> None:
        result, recorder = self._all_yielded(result), self._recorder
        if recorder.log.count == self._steps_before:
            summary = "None" if result is None else result
            recorder.note("thought", self._call(), place=self._inside)
            recorder.note("observation", output_summary=summary, place=self._inside)
        if self._is_root:
            self._conclude(result)
            recorder.extract_confidence(result)
            recorder.finish()

    @shield
    def raised(self, error: BaseException) -> None:
        recorder = self._recorder
        if isinstance(error, GeneratorExit) and not self._is_root:
            self.returned(None)  # the caller stopped iterating
            return
        if recorder.log.count == self._steps_before:
            recorder.note("thought", self._call(), place=self._inside)
        if self._is_root:
            self._conclude(self._all_yielded())
            recorder.finish(error, complete=not isinstance(error, GIVEN_UP))
        elif not recorder.has_just_noted(error):
            recorder.error(error)

    def _conclude(self, result: object) -> None:
        if result is not None and not self._recorder.result_summary:
            self._recorder.outcome(result)


class _ToolUse(Watch):
    def __init__(self, recorder: Recorder, name: str, arguments: dict[str, Any]) -> None:
        self._recorder, self._name, self._started = recorder, name, perf_counter()
        self._call_id, self._place = recorder.new_call_id(), place_here() or Place()
        super().__init__(recorder, Place(self._place.agent, self._call_id))
        place, call_id = self._place, self._call_id
        recorder.note("tool_call", tool=name, input=arguments, place=place, call_id=call_id)

    @shield
    def returned(self, result: object) -> None:
        result = self._all_yielded(result)
        said, took_ms = "None" if result is None else result, self._latency_ms()
        note, place, call_id = self._recorder.note, self._place, self._call_id
        note("observation", None, self._name, said, took_ms, place, call_id)

    @shield
    def raised(self, error: BaseException) -> None:
        if isinstance(error, GeneratorExit):
            self.returned(None)  # the caller stopped iterating
        elif not self._recorder.has_just_noted(error):
            took_ms, place, call_id = self._latency_ms(), self._place, self._call_id
            self._recorder.error(
                error, tool=self._name, latency_ms=took_ms, place=place, call_id=call_id
            )

    def _latency_ms(self) -> float:
        return (perf_counter() - self._started) * 1000


def _name(function: Any) -> str:
    name: str = getattr(function, "__name__", type(function).__name__)
    return name


def _signature(function: Any) -> inspect.Signature | None:
    is_wrapped = isinstance(function, classmethod | staticmethod)
    try:
        return inspect.signature(function.__func__ if is_wrapped else function)
    except (TypeError, ValueError):
        return None  # a builtin may have none


@shield
def _arguments(
    signature: inspect.Signature | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Return the arguments by name, without a method's ``self`` or ``cls``, as bounded JSON."""
    named: Mapping[str, Any] = {"args": args, **kwargs}
    if signature is not None:
        with suppress(TypeError):  # wrong arguments: the call itself will raise
            named = signature.bind_partial(*args, **kwargs).arguments
    first = next(iter(named), None)
    if first == "self" or (first == "cls" and isinstance(named["cls"], type)):
        named = dict([*named.items()][1:])
    return BoundedCopy(_ARGUMENT_BYTES).of_mapping(named)


def instrument(function: F, watch: Callable[[tuple[Any, ...], dict[str, Any]], Watch]) -> F:
    """Wrap a function so that each call is watched by the `Watch` that ``watch`` returns for it.

    Raises:
        TypeError: If it is a class, a property, or not callable.
    """
    if isinstance(function, classmethod | staticmethod):
        return cast(F, type(function)(instrument(function.__func__, watch)))
    if isinstance(function, type) or not callable(function):
        raise TypeError(f"expected a function, got {function!r}: decorate the one it calls")
    for check, wrapper in (
        (inspect.iscoroutinefunction, _coroutine),
        (inspect.isasyncgenfunction, _async_generator),
        (inspect.isgeneratorfunction, _generator),
    ):
        if is_kind(check, function):
            return cast(F, wrapper(function, watch))
    return cast(F, _plain(function, watch))


def _plain(function: Callable[..., Any], watch: Callable[..., Watch]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with watch(args, kwargs) as seen:
            with seen.running():
                result = seen.result = function(*args, **kwargs)
            if (later := _LATER.get(type(result))) is not None:
                seen.goes_on = True
                return later(lambda: result, lambda *_: seen)()
        return result

    return call


def _coroutine(function: Callable[..., Any], watch: Callable[..., Watch]) -> Callable[..., Any]:
    @wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        with watch(args, kwargs) as seen, seen.running():
            seen.result = await function(*args, **kwargs)
        return seen.result

    return call


def _generator(function: Callable[..., Any], watch: Callable[..., Watch]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        with watch(args, kwargs) as seen:
            body = function(*args, **kwargs)
            resume = partial(next, body)
            while True:
                try:
                    with seen.running():
                        item = resume()
                except StopIteration as stop:
                    seen.result = stop.value
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

    return call


def _async_generator(
    function: Callable[..., Any], watch: Callable[..., Watch]
) -> Callable[..., Any]:
    @wraps(function)
    async def call(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        with watch(args, kwargs) as seen, suppress(StopAsyncIteration):
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

    return call


_LATER: Final[dict[type, Callable[..., Any]]] = {
    types.CoroutineType: _coroutine,
    types.GeneratorType: _generator,
    types.AsyncGeneratorType: _async_generator,
}
"""The wrappers for what a plain function may return to run later."""
