# ruff: noqa: ARG002 - little_agents' own signatures
"""Record runs of little_agents: ``Agent(…, listeners=[KPListener(kp)])``.

An adapter to copy. Events become spans; the recorder copies their steps as bounded JSON.
"""

from contextvars import ContextVar
from typing import Any, Final

from kp_middleware import KnowledgePulse
from kp_middleware.recording import CurrentRun, Span, SpanTree, Turn, register_finder, shield

_span: Final[ContextVar[Span | None]] = ContextVar("kp_little_agents_span", default=None)


def _current_run() -> CurrentRun | None:
    """Return the current run for ``current_trace()`` and ``@kp.tool``, until it ends."""
    span = _span.get()
    over = span is None or span.root.recorder.finished
    return None if span is None or over else CurrentRun(span.root.recorder, span.place_inside)


register_finder(_current_run)


class KPListener:
    """Records little_agents' events, in the agent's thread.

    Args:
        kp: Records the runs; None means ``KnowledgePulse.default()``.
        domain: Selects the weights of the score; None means the pipeline's.
    """

    def __init__(self, kp: KnowledgePulse | None = None, *, domain: str | None = None) -> None:
        kp = KnowledgePulse.default() if kp is None else kp
        self._spans = SpanTree(kp, "little_agents", domain=domain)

    @shield
    def on_start(self, run_id: str, parent_id: str | None, agent: str, task: str) -> None:
        span = self._spans.start(run_id, parent_id, "agent", agent, input=task)
        if span is not None and span.is_root:
            _span.set(span)

    @shield
    def on_model(self, run_id: str, text: str, tokens: tuple[int, int]) -> None:
        call_id = f"{run_id} model"  # reported only after its answer
        self._spans.start(call_id, run_id, "model")
        self._spans.finish(call_id, turn=Turn(text=text, tokens=tokens))

    @shield
    def on_tool(self, run_id: str, call_id: str, tool: str, arguments: dict[str, Any]) -> None:
        self._spans.start(call_id, run_id, "tool", tool, input=arguments, call_id=call_id)

    @shield
    def on_tool_end(
        self, run_id: str, call_id: str, tool: str, result: object, error: BaseException | None
    ) -> None:
        self._spans.finish(call_id, result, error=error)

    @shield
    def on_end(self, run_id: str, answer: str | None, error: BaseException | None) -> None:
        self._spans.finish(run_id, answer, error=error)
