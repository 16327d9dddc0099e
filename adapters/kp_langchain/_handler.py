"""The callback handler, which turns LangChain's events into steps.

It runs in the agent's thread or event loop, so it does no scoring and no I/O, and retains none of
the agent's objects.
"""

import logging
from asyncio import CancelledError
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias
from uuid import UUID

from kp_middleware.confidence import Confidences
from kp_middleware.errors import MissingExtraError
from kp_middleware.recording import (
    GIVEN_UP,
    Recording,
    RootSpan,
    Span,
    bounded_name,
    captured_recorder,
    current_place,
    recordings,
    shield,
    text_of,
)

try:
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.documents import Document
    from langchain_core.messages import BaseMessage
    from langchain_core.outputs import LLMResult
except ModuleNotFoundError as exc:
    raise MissingExtraError("langchain") from exc

from kp_langchain._messages import logprobs_of, result_of, turn_of
from kp_langchain._runs import (
    RootRun,
    Scope,
    agent_inside,
    current_run_id,
    default_pulse,
    resumption_of,
    runs_of,
    watch_graphs,
)

if TYPE_CHECKING:
    from langgraph.callbacks import GraphInterruptEvent

EventKwargs: TypeAlias = Mapping[str, Any]
"""The keyword arguments that only some events have: ``inputs``, ``tool_call_id``, ``response``."""

Origin: TypeAlias = tuple[int | None, Mapping[str, Any], object, Sequence[str]]
"""The parent's id, metadata, name and tags of a run that begins."""

logger: Final = logging.getLogger("kp_middleware")

_NOTHING: Final[Mapping[str, object]] = MappingProxyType({})


def event(method: Callable[..., None]) -> Callable[..., None]:
    """Adapt the signature of an event to ``method``; never raise.

    Ids become integers, because a UUID is slow to hash. The usual keyword arguments are named,
    because collecting others is slow.
    """

    @wraps(method)
    def hook(
        self: object,
        first: object = None,
        second: object = None,
        /,  # a tool may have keyword arguments of these names
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: Mapping[str, object] | None = None,
        name: object = None,
        tags: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        try:
            parent_id = None if parent_run_id is None else parent_run_id.int
            origin = parent_id, metadata or _NOTHING, name, tags or ()
            method(self, first, second, run_id.int, origin, kwargs)
        except Exception as error:  # noqa: BLE001 - recording must never break the agent
            shield.swallow(method.__qualname__, error)

    return hook


class KPCallbackHandler(BaseCallbackHandler):
    """Record LangChain and LangGraph runs: each root run is a trace.

    Pass it in the config of the outermost call; one handler serves any number of concurrent runs,
    threads and event loops. Inside a captured function, a run becomes part of the function's trace.
    If a run has two handlers of one pipeline, the first records it.

    Args:
        kp: The pipeline; None means ``KnowledgePulse.default()``.
        domain: The domain, which selects the weights of the score; None means the pipeline's.
        confidence: A function from the root's output to the agent's confidence, 0 to 1, or None; or
            several, of which the first value counts. Not called if the agent sets its confidence.
            See `kp_middleware.confidence`.
        scope: With ``run``, each root run is a trace. With ``thread``, all runs of a ``thread_id``
            are one, which ends with ``kp.end_thread(thread_id)`` or after ``thread_idle_s`` (a
            setting) without a run.

    Raises:
        ValueError: If the scope is unknown.
        TypeError: If a confidence is not a function.

    Example:
        ``agent.invoke(inputs, config={"callbacks": [KPCallbackHandler(kp)]})``
    """

    run_inline = True  # else each async event waits for an executor thread
    raise_error = False
    # Plain attributes, since LangChain reads one for each event.
    ignore_llm = ignore_chain = ignore_agent = ignore_retriever = ignore_chat_model = False
    ignore_retry = True  # the failed run reports each attempt
    ignore_custom_event = True  # they belong to the program

    def __init__(
        self,
        kp: Recording | None = None,
        *,
        domain: str | None = None,
        confidence: Confidences = None,
        scope: Scope = "run",
    ) -> None:
        if scope not in {"run", "thread"}:
            raise ValueError(f"scope must be 'run' or 'thread', got {scope!r}")
        kp = default_pulse() if kp is None else kp
        self._runs = runs_of(kp)
        self._record = recordings(kp, domain=domain, confidence=confidence)
        self._scope = scope
        self._has_warned = False
        self._last_trace_id: str | None = None

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        """Return the same handler: copies of a config share it."""
        return self

    def trace_id(self, run_id: UUID | None = None) -> str | None:
        """Return the id of a run's trace, for ``kp.feedback``.

        Args:
            run_id: The ``run_id`` that you passed in the config of a root run, to tell concurrent
                runs apart. None means the last root run of this handler.

        Returns:
            The trace id, or None if no such run is recorded or it is thousands of runs old. The id
            of a run that resumed another also leads to the joined trace.

        Example:
            ``agent.invoke(inputs, {"callbacks": [handler], "run_id": run_id})`` and, when it is
            known, ``kp.feedback(handler.trace_id(run_id), success=True)``
        """
        return self._last_trace_id if run_id is None else self._runs.trace_id(run_id.int)

    @event
    def on_chain_start(
        self, _: object, inputs: object, run_id: int, origin: Origin, __: EventKwargs
    ) -> None:
        """Begin a chain, a graph or a node."""
        run = self._runs.join(run_id, origin[0]) or self._open(run_id, origin)
        if run is None:
            return
        if run.parent is None:
            watch_graphs(self)
            resumption = None if type(inputs) is dict else resumption_of(inputs, origin[1])
            if resumption is None:
                run.root.set_objective(inputs)
            else:
                run.root.resume(resumption, inputs, run.conversation)
        elif type(inputs) is not dict and (resumption := resumption_of(inputs, {})):
            run.root.record_decision(resumption, inputs)

    @event
    def on_chain_end(
        self, outputs: object, _: object, run_id: int, origin: Origin, kwargs: EventKwargs
    ) -> None:
        """End a chain, a graph or a node that succeeded, or whose stream was closed early."""
        run = self._runs.end(run_id, streamed="inputs" in kwargs)
        if run is None:
            return
        if run.parent is None:
            run.root.end_root(outputs, run, kwargs.get("inputs"))
        elif run.paused or run.paused_inside:
            is_node = any(tag.startswith("graph:step:") for tag in origin[3])
            run.parent.paused_inside |= not is_node  # after a node it went on
        if run.ends_trace:
            run.root.succeed(outputs)

    @event
    def on_chain_error(
        self, error: BaseException, _: object, run_id: int, __: Origin, kwargs: EventKwargs
    ) -> None:
        """End a chain, a graph or a node that failed."""
        closed = "inputs" in kwargs and isinstance(error, GeneratorExit)
        run = self._runs.end(run_id, streamed=closed)
        if run is not None:
            if run.is_root:
                run.root.set_objective(kwargs.get("inputs"))
            run.end_with(error)

    @shield
    def on_interrupt(self, event: "GraphInterruptEvent") -> None:
        """Record that a graph waits for a human (LangGraph 1.1.8 or later)."""
        run = None if event.run_id is None else self._runs.get(event.run_id.int)
        if run is not None and run.is_root:
            run.paused = True
            run.root.record_interrupt(event.interrupts, run)

    @event
    def on_chat_model_start(
        self,
        _: object,
        messages: list[list[BaseMessage]],
        run_id: int,
        origin: Origin,
        __: EventKwargs,
    ) -> None:
        """Begin a chat model, and record messages that no event reported."""
        run = self._begin(run_id, origin, is_model=True)
        if run is None or run.internal or not messages:
            return
        if new_messages := run.conversation.unreported(messages[0]):
            run.root.record_messages(new_messages, run)
        if not run.root.recorder.objective:
            run.root.guess_objective(messages[0])

    @event
    def on_llm_start(
        self, _: object, prompts: list[str], run_id: int, origin: Origin, __: EventKwargs
    ) -> None:
        """Begin a completion model."""
        run = self._begin(run_id, origin, is_model=True)
        if run is not None and not run.internal:
            run.root.guess_objective(prompts[:1])

    @shield
    def on_llm_new_token(self, token: object, *, run_id: UUID, **_: Any) -> None:
        """Keep a token, in case the model never ends."""
        run = self._runs.get(run_id.int)
        if run is not None and token:
            parts = run.parts = run.parts or []
            if len(parts) < 20_000:  # of a streamed answer
                parts.append(token if isinstance(token, str) else text_of(token))

    @event
    def on_llm_end(self, response: LLMResult, _: object, run_id: int, *__: object) -> None:
        """End a model, and record its turn."""
        run = self._runs.get(run_id)
        if run is None:
            return
        turn, root = turn_of(response), run.root
        if not (run.internal or run.enclosing_tool):
            root.unanswered = "EndedByMiddleware" if turn.calls and root.is_agent else None
            if root.recorder.extractors.uses_logprobs:
                root.recorder.record_logprobs(logprobs_of(response))
        self._runs.finish(run_id, turn.text or None, turn=turn)

    @event
    def on_llm_error(
        self, error: BaseException, _: object, run_id: int, __: Origin, kwargs: EventKwargs
    ) -> None:
        """End a model that failed, perhaps after part of its answer."""
        run = self._runs.end(run_id)
        if run is not None:
            if isinstance(error, GIVEN_UP):
                run.root.record_turn(turn_of(kwargs.get("response")), run)
            elif not (run.internal or run.enclosing_tool):
                run.root.unanswered = type(error).__name__
            run.end_with(error)

    @event
    def on_tool_start(
        self,
        given: Mapping[str, Any] | None,
        text: str,
        run_id: int,
        origin: Origin,
        kwargs: EventKwargs,
    ) -> None:
        """Begin a tool, and record its call unless a model's turn has it."""
        run = self._begin(run_id, origin)
        if run is None:
            return
        tool: Any = (given.get("name") if given else origin[2]) or "tool"
        run.begin_tool(tool, kwargs.get("tool_call_id"), kwargs.get("inputs"), {"input": text})
        if run.is_root:
            run.root.set_objective(f"{tool} {text}")

    @event
    def on_tool_end(self, output: object, _: object, run_id: int, *__: object) -> None:
        """End a tool, and record its result or the failure that it reports."""
        run = self._runs.get(run_id)
        if run is not None:
            result, failed = result_of(output, run.call_id)
            self._runs.finish(run_id, result, failed=failed)

    @event
    def on_tool_error(self, error: BaseException, _: object, run_id: int, *__: object) -> None:
        """End a tool or a retriever that raised; its run tells if it was cancelled."""
        run = self._runs.get(run_id)
        if run is not None and (run.is_root or not isinstance(error, CancelledError)):
            self._runs.end(run_id)
            run.end_with(error)

    @event
    def on_retriever_start(
        self, _: object, query: str, run_id: int, origin: Origin, __: EventKwargs
    ) -> None:
        """Begin a retriever, which is a tool unless a tool wraps it."""
        parent = self._runs.get(origin[0])
        run = self._begin(run_id, origin)
        if run is None:
            return
        if parent is not None and parent.tool is not None:
            run.emits_steps = False
            return
        run.begin_tool(str(origin[2] or "retriever"), None, {"query": query})
        if run.is_root:
            run.root.set_objective(query)

    @event
    def on_retriever_end(
        self, documents: Sequence[Document], _: object, run_id: int, *__: object
    ) -> None:
        """End a retriever, and record its documents."""
        texts = (str(getattr(found, "page_content", found)) for found in documents)
        self._runs.finish(run_id, "\n\n".join(texts))

    on_retriever_error = on_tool_error

    def _begin(self, run_id: int, origin: Origin, *, is_model: bool = False) -> Span | None:
        """Begin a model, a tool or a retriever; return None if its parent is unknown."""
        run = self._runs.join(run_id, origin[0]) or self._begin_without_parent(run_id, origin)
        if run is None:
            return None
        root, metadata = run.root, origin[1]
        recorder = root.recorder
        run.after = recorder.last_step
        if run.parent is not None:
            run.emits_steps, agent = True, run.enclosing_tool
            if metadata:
                if run.enclosing_tool is None and (root.is_unnamed or "thread_id" in metadata):
                    root.set_thread(metadata)
                agent = agent_inside(metadata, root.agent_name, run.enclosing_tool, root.namespace)
            if agent is not None:
                run.enter(agent)
        if is_model:
            run.started_s = recorder.clock()
            if metadata.get("lc_source") is not None:  # a middleware's, not the agent's
                run.internal = True
                run.enter(bounded_name(metadata["lc_source"]))
            if (name := metadata.get("ls_model_name")) is not None:
                run.model = str(name)
                if recorder.model is None and not run.internal:
                    recorder.model = bounded_name(name)
        return run

    def _open(self, run_id: int, origin: Origin) -> Span | None:
        """Begin a run without a recorded parent as a root, unless it is known or ignored."""
        parent_id, metadata, name, tags = origin
        if not self._runs.is_new(run_id, parent_id):
            return None
        outer = captured_recorder()
        # in a fallback, LangChain does not name the run around it; LangSmith's may be between
        if outer is None and (run := self._runs.join(run_id, current_run_id())) is not None:
            return run
        # LangGraph before 1.1.5 is known by its default name alone
        is_graph = metadata.get("ls_integration", name) in {"langgraph", "LangGraph"}
        recorder = outer or self._record("langgraph" if is_graph else "langchain")
        if recorder is None:
            self._runs.ignore(run_id)
            return None
        self._last_trace_id = recorder.trace_id
        root = RootRun(recorder, owned=outer is None, scope=self._scope)
        root.successor = self._successor
        root.place = None if outer is None else current_place()
        root.set_metadata(name, metadata, tags)
        return self._runs.open(run_id, root)

    def _successor(self, over: RootSpan, run: Span) -> RootRun | None:
        recorder = self._record(over.recorder.framework)
        if recorder is None:
            return None
        recorder.agent_name = run.enclosing_tool
        root = RootRun(recorder, owned=True, scope="run")
        root.successor, root.enclosing_agent = self._successor, over.agent_name
        root.began_late = root.is_unnamed = True
        return root

    def _begin_without_parent(self, run_id: int, origin: Origin) -> Span | None:
        parent_id = origin[0]
        if (
            parent_id is None
            or parent_id != current_run_id()  # LangSmith's own run is between
            or self._runs.is_over(parent_id)
        ):
            return self._open(run_id, origin)
        if self._runs.is_new(run_id, parent_id) and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "a model or tool is not recorded, because its parent run is unknown; pass the "
                'handler to the outermost call: config={"callbacks": [handler]}'
            )
        return None
