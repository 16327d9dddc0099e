# ruff: noqa: ARG002 - LangChain's own signatures
"""The callback handler: LangChain's events become notes.

It is called in the agent's own thread or event loop, and so does little: no scoring, no file, no
network, and nothing is kept of the objects that it is shown.
"""

from collections.abc import Sequence
from typing import Any, Self
from uuid import UUID

from kp_middleware.errors import MissingExtraError
from kp_middleware.recording import shield

try:
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.documents import Document
    from langchain_core.messages import BaseMessage
    from langchain_core.outputs import LLMResult
except ModuleNotFoundError as exc:
    raise MissingExtraError("langchain") from exc

from kp_langchain._failures import Failure, failure_of
from kp_langchain._root import Confidence
from kp_langchain._roots import Recording, Roots
from kp_langchain._runs import Run
from kp_langchain._shared_runs import runs_of
from kp_langchain._tool_results import result_of
from kp_langchain._turns import turn_of

# Any below: LangChain's own signatures.


class KPCallbackHandler(BaseCallbackHandler):
    """Record every LangChain and LangGraph run it is given to: one root run, one trace.

    Give it in the config of the outermost call; one handler serves any number of runs, threads and
    event loops at once. Inside a captured function, a run becomes a part of that function's trace.
    Two handlers of one pipeline make one trace of a run: the first to be told of it.

    Args:
        kp: Takes the traces; None means ``KnowledgePulse.default()``.
        domain: Picks the weights of the score; None means the pipeline's.
        confidence: How sure the agent is, 0 to 1, told from the root's output; None where that does
            not tell. Asked where the output has no ``confidence`` field of its own.

    Example:
        ``agent.invoke(inputs, config={"callbacks": [KPCallbackHandler(kp)]})``
    """

    run_inline = True  # else each event of an async run waits for a thread of the loop's executor
    raise_error = False

    def __init__(
        self,
        kp: Recording | None = None,
        *,
        domain: str | None = None,
        confidence: Confidence | None = None,
    ) -> None:
        kp = _default() if kp is None else kp
        self._runs = runs_of(kp)
        self._roots = Roots(kp, domain=domain, confidence=confidence or _not_stated)

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        """The same handler: copies of a config report to one place."""
        return self

    @property
    def ignore_retry(self) -> bool:
        """Each attempt is told by the run that failed."""
        return True

    @property
    def ignore_custom_event(self) -> bool:
        """They are for the program's own ends."""
        return True

    @shield
    def on_chain_start(
        self,
        serialized: dict[str, Any],
        inputs: dict[str, Any],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """A chain, a graph or a node begins."""
        if self._runs.join(run_id, parent_run_id) is None:
            run = self._roots.open(run_id, parent_run_id, kwargs)
            if run is not None:
                run.root.ask(inputs)

    @shield
    def on_chain_end(self, outputs: dict[str, Any], *, run_id: UUID, **kwargs: Any) -> None:
        """A chain, a graph or a node has ended well, or a chain's stream was closed early."""
        run = self._runs.end(run_id, streamed="inputs" in kwargs)
        if run is None:
            return
        if run.is_root:
            run.root.ask(kwargs.get("inputs"))
            run.root.hear(run.ledger.results(outputs) or ())
        if run.ends_trace:
            run.root.succeed(outputs)

    @shield
    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """A chain, a graph or a node has failed."""
        closed = "inputs" in kwargs and isinstance(error, GeneratorExit)
        run = self._runs.end(run_id, streamed=closed)
        if run is not None and run.is_root:
            run.root.ask(kwargs.get("inputs"))
        self._failed(run, error)

    @shield
    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """A chat model is asked; its messages tell what no event told."""
        run = self._roots.begin(run_id, parent_run_id, kwargs)
        if run is None or not messages:
            return
        if news := run.ledger.news(messages[0]):
            run.root.hear(news)
        run.root.overhear(messages[0])

    @shield
    def on_llm_start(
        self,
        serialized: dict[str, Any],
        prompts: list[str],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """A completion model is asked."""
        run = self._roots.begin(run_id, parent_run_id, kwargs)
        if run is not None:
            run.root.overhear(prompts[:1])

    @shield
    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """A model has answered."""
        run = self._runs.end(run_id)
        if run is None:
            return
        turn = turn_of(response)
        run.ledger.announce(turn)
        run.root.say(turn)
        if run.ends_trace:
            run.root.succeed(turn.text or None)

    @shield
    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """A model has failed, perhaps after a part of its answer."""
        run = self._runs.end(run_id)
        if run is not None and failure_of(error) is Failure.GIVEN_UP:
            run.root.say(turn_of(kwargs.get("response")))
        self._failed(run, error)

    @shield
    def on_tool_start(
        self,
        serialized: dict[str, Any],
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        inputs: dict[str, Any] | None = None,
        tool_call_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        """A tool begins; its call is a step already where a model announced it."""
        run = self._roots.begin(run_id, parent_run_id, kwargs)
        if run is None:
            return
        tool = (serialized or kwargs).get("name") or "tool"
        announced = run.ledger.begin(tool, tool_call_id)
        run.use(tool, announced or tool_call_id)
        if announced is None:
            run.root.recorder.tool_call(tool, {"input": input_str} if inputs is None else inputs)
        if run.is_root:
            run.root.ask(f"{tool} {input_str}")

    @shield
    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """A tool gave its result, which may be that it failed."""
        run = self._runs.end(run_id)
        if run is None:
            return
        run.ledger.end(run.call_id)
        result = result_of(output, run.call_id)
        recorder = run.root.recorder
        if result.failed:
            recorder.error(str(result.output), tool=run.tool, latency_ms=run.latency_ms)
        else:
            recorder.observation(
                tool=run.tool, output_summary=result.output, latency_ms=run.latency_ms
            )
        if run.ends_trace:
            run.root.succeed(result.output)

    @shield
    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """A tool raised."""
        self._failed(self._runs.end(run_id), error)

    @shield
    def on_retriever_start(
        self,
        serialized: dict[str, Any],
        query: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """A retriever begins: a tool like others, except inside a tool that wraps it."""
        parent = self._runs.get(parent_run_id)
        run = self._roots.begin(run_id, parent_run_id, kwargs)
        if run is None or (parent is not None and parent.tool is not None):
            return
        run.use(str(kwargs.get("name") or "retriever"), None)
        run.root.recorder.tool_call(run.tool or "", {"query": query})
        if run.is_root:
            run.root.ask(query)

    @shield
    def on_retriever_end(
        self, documents: Sequence[Document], *, run_id: UUID, **kwargs: Any
    ) -> None:
        """A retriever gave its documents."""
        run = self._runs.end(run_id)
        if run is None or run.tool is None:
            return
        found = "\n\n".join(document.page_content for document in documents)
        run.root.recorder.observation(
            tool=run.tool, output_summary=found, latency_ms=run.latency_ms
        )
        if run.ends_trace:
            run.root.succeed(found)

    @shield
    def on_retriever_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """A retriever raised."""
        self._failed(self._runs.end(run_id), error)

    def _failed(self, run: Run | None, error: BaseException) -> None:
        if run is None:
            return
        root = run.root
        if run.fail(error):
            if run.tool is not None or not run.ends_trace:
                root.survive(error, tool=run.tool, latency_ms=run.latency_ms)
        elif run.tool is not None and failure_of(error) is Failure.ERROR:
            root.recorder.observation(
                tool=run.tool, output_summary=type(error).__name__, latency_ms=run.latency_ms
            )
        if run.ends_trace:
            root.fail(error)


def _not_stated(_output: object) -> None:
    return None


def _default() -> Recording:
    from kp_middleware import KnowledgePulse

    return KnowledgePulse.default()
