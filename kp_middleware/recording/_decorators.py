"""Decorators of functions: captured functions are runs, tools are steps."""

import inspect
import json
import types
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import AbstractContextManager, suppress
from functools import partial, wraps
from time import perf_counter
from typing import Any, Final, Self, TypeAlias, TypeVar, cast

from kp_middleware.recording._bounds import BoundedCopy, bounded_mapping
from kp_middleware.recording._context import (
    Place,
    current_place,
    current_recorder,
    inside,
    is_kind,
    shield,
)
from kp_middleware.recording._extractors import Extractors
from kp_middleware.recording._recorder import GIVEN_UP, Recorder, current_trace

_COPIED_BYTES: Final = 60 * 1024

F = TypeVar("F", bound=Callable[..., Any])
_RecordCall: TypeAlias = Callable[[tuple[Any, ...], dict[str, Any]], "CallRecording"]


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
    """Wrap a function to record a call outside any run as a run, and inside one as part of it.

    ``start`` returns a new recorder, or None if recording is off. ``objective`` and ``owner``
    name the parameters that hold them; by default, the first text argument is the objective.
    """
    signature, own_name = _signature(function), _name(function)
    agent = name or own_name

    def record(args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallRecording:
        named = _named(signature, args, kwargs) or {}
        arguments, _ = bounded_mapping(named, _COPIED_BYTES)  # before the body can change them

        def call() -> str:
            return f"{own_name}({json.dumps(arguments, ensure_ascii=False)})"

        outer = current_recorder()
        if outer is not None or (recorder := start()) is None:
            return _FunctionRecording(outer or current_trace(), call, agent=agent)
        recorder.agent_name, recorder.domain = agent, domain
        recorder.extractors = confidence or recorder.extractors
        if owner is not None:
            recorder.owner = str(arguments.get(owner))
        texts = (text for text in named.values() if isinstance(text, str) and text)
        task = next(texts, None) if objective is None else named.get(objective)
        recorder.set_objective(call() if task is None else task)
        return _FunctionRecording(recorder, call)

    return instrument(function, record)


def recorded_tool(function: F, name: str | None) -> F:
    """Wrap a function to record its calls inside a run as a tool call and an observation."""
    signature, tool = _signature(function), name or _name(function)

    def record(args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallRecording:
        recorder = current_recorder()
        if recorder is None:
            return CallRecording(None, None)
        return _ToolRecording(recorder, tool, _named(signature, args, kwargs) or {})

    return instrument(function, record)


class CallRecording:
    """A recording of one call, which never raises: outside any run, it records nothing."""

    def __init__(self, recorder: Recorder | None, place: Place | None) -> None:
        self._current, self._inner_place = recorder, place
        self._copy = BoundedCopy(_COPIED_BYTES)
        self._items: list[Any] = []
        self._count = 0
        self._is_text = True

    def __enter__(self) -> Self:
        self.result: object = None
        self.runs_later = False  # as a coroutine or generator that runs in another block does
        return self

    def __exit__(self, *raised: object) -> None:
        if isinstance(error := raised[1], BaseException):
            self.raised(error)
        elif not self.runs_later:
            self.returned(self.result)

    def running(self) -> AbstractContextManager[None]:
        """Return a context manager for the execution of the function's body."""
        return inside(self._current, self._inner_place)

    @shield
    def yielded(self, item: object) -> None:
        self._count += 1
        self._is_text = self._is_text and isinstance(item, str)
        if self._copy.left_bytes > 0:
            self._items.append(self._copy.of(item))

    def _output(self, result: object = None) -> object:
        if not self._items:
            return result
        if len(self._items) < self._count:
            self._items.append(f"… [cut: {self._count} items in all]")
        return "".join(self._items) if self._is_text else self._items

    def returned(self, result: object) -> None:
        """Record the result of the call."""

    def raised(self, error: BaseException) -> None:
        """Record the error of the call."""


class _FunctionRecording(CallRecording):
    def __init__(
        self, recorder: Recorder, call: Callable[[], str], *, agent: str | None = None
    ) -> None:
        place = None if agent is None else current_place() or Place()
        super().__init__(recorder, place and place._replace(agent=agent))
        self._recorder, self._call, self._is_root = recorder, call, agent is None
        self._steps_before = recorder.log.count

    @shield
    def returned(self, result: object) -> None:
        result, recorder = self._output(result), self._recorder
        if recorder.log.count == self._steps_before:
            summary = "None" if result is None else result
            recorder.note("thought", self._call(), place=self._inner_place)
            recorder.note("observation", output_summary=summary, place=self._inner_place)
        if self._is_root:
            self._set_outcome(result)
            recorder.extract_confidence(result)
            recorder.finish()

    @shield
    def raised(self, error: BaseException) -> None:
        recorder = self._recorder
        if isinstance(error, GeneratorExit) and not self._is_root:
            self.returned(None)  # the caller stopped iterating
            return
        if recorder.log.count == self._steps_before:
            recorder.note("thought", self._call(), place=self._inner_place)
        if self._is_root:
            self._set_outcome(self._output())
            recorder.finish(error, complete=not isinstance(error, GIVEN_UP))
        elif not recorder.already_recorded(error):
            recorder.error(error, place=self._inner_place)

    def _set_outcome(self, result: object) -> None:
        if result is not None and not self._recorder.result_summary:
            self._recorder.outcome(result)


class _ToolRecording(CallRecording):
    def __init__(self, recorder: Recorder, name: str, arguments: Mapping[str, Any]) -> None:
        self._recorder, self._started = recorder, perf_counter()
        place, call_id = current_place() or Place(), recorder.new_call_id()
        super().__init__(recorder, Place(place.agent, call_id))
        self._of_call: dict[str, Any] = {"tool": name, "place": place, "call_id": call_id}
        recorder.note("tool_call", input=arguments, **self._of_call)

    @shield
    def returned(self, result: object) -> None:
        output = self._output(result)
        summary, took_ms = "None" if output is None else output, self._latency_ms()
        self._recorder.note("observation", output_summary=summary, took=took_ms, **self._of_call)

    @shield
    def raised(self, error: BaseException) -> None:
        if isinstance(error, GeneratorExit):
            self.returned(None)  # the caller stopped iterating
        elif not self._recorder.already_recorded(error):
            self._recorder.error(error, latency_ms=self._latency_ms(), **self._of_call)

    def _latency_ms(self) -> float:
        return (perf_counter() - self._started) * 1000


def _name(function: Any) -> str:
    named = getattr(function, "func", function)  # of a partial
    return str(getattr(named, "__name__", type(function).__name__))


def _signature(function: Any) -> inspect.Signature | None:
    is_wrapped = isinstance(function, classmethod | staticmethod)
    try:
        return inspect.signature(function.__func__ if is_wrapped else function)
    except (TypeError, ValueError):
        return None  # a builtin may have none


@shield
def _named(
    signature: inspect.Signature | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Mapping[str, Any]:
    """Return the arguments by name, without ``self`` or ``cls``."""
    named: Mapping[str, Any] = {"args": args, **kwargs}
    if signature is not None:
        with suppress(TypeError):  # wrong arguments: the call itself will raise
            named = signature.bind_partial(*args, **kwargs).arguments
    first = next(iter(named), None)
    if first == "self" or (first == "cls" and isinstance(named["cls"], type)):
        named = dict([*named.items()][1:])
    return named


def instrument(function: F, record: _RecordCall) -> F:
    """Wrap a function to record each call with the `CallRecording` that ``record`` returns.

    Raises:
        TypeError: If it is a class, a property, or not callable.
    """
    if isinstance(function, classmethod | staticmethod):
        return cast(F, type(function)(instrument(function.__func__, record)))
    if isinstance(function, type) or not callable(function):
        raise TypeError(f"expected a function or method, got {function!r}")
    for check, wrapper in (
        (inspect.iscoroutinefunction, _coroutine),
        (inspect.isasyncgenfunction, _async_generator),
        (inspect.isgeneratorfunction, _generator),
    ):
        if is_kind(check, function):
            return cast(F, wrapper(function, record))
    return cast(F, _sync(function, record))


def _sync(function: Callable[..., Any], record: _RecordCall) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with record(args, kwargs) as recording:
            with recording.running():
                result = recording.result = function(*args, **kwargs)
            if (wrapper := _DEFERRED.get(type(result))) is not None:
                recording.runs_later = True
                return wrapper(lambda: result, lambda *_: recording)()
        return result

    return call


def _coroutine(function: Callable[..., Any], record: _RecordCall) -> Callable[..., Any]:
    @wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        with record(args, kwargs) as recording, recording.running():
            recording.result = await function(*args, **kwargs)
        return recording.result

    return call


def _generator(function: Callable[..., Any], record: _RecordCall) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        with record(args, kwargs) as recording:
            body = function(*args, **kwargs)
            resume = partial(next, body)
            while True:
                try:
                    with recording.running():
                        item = resume()
                except StopIteration as stop:
                    recording.result = stop.value
                    return stop.value
                recording.yielded(item)
                try:
                    resume = partial(body.send, (yield item))
                except GeneratorExit:
                    with recording.running():
                        body.close()
                    raise
                except BaseException as error:  # noqa: BLE001 - thrown in by the caller, for the body
                    resume = partial(body.throw, error)

    return call


def _async_generator(function: Callable[..., Any], record: _RecordCall) -> Callable[..., Any]:
    @wraps(function)
    async def call(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        with record(args, kwargs) as recording, suppress(StopAsyncIteration):
            body = function(*args, **kwargs)
            resume = partial(anext, body)
            while True:
                with recording.running():
                    item = await resume()
                recording.yielded(item)
                try:
                    resume = partial(body.asend, (yield item))
                except GeneratorExit:
                    with recording.running():
                        await body.aclose()
                    raise
                except BaseException as error:  # noqa: BLE001 - thrown in, for the body
                    resume = partial(body.athrow, error)

    return call


_DEFERRED: Final[dict[type, Callable[..., Any]]] = {
    types.CoroutineType: _coroutine,
    types.GeneratorType: _generator,
    types.AsyncGeneratorType: _async_generator,
}
"""The wrappers of results that run after the call: coroutines and generators."""
