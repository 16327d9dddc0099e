# ruff: noqa: ARG002 - little_agents' own signatures
"""Record runs of little_agents: ``Agent(…, listeners=[KPListener(kp)])``.

An adapter to copy: events become spans, whose steps the recorder bounds and copies as plain JSON.
"""

from contextvars import ContextVar
from typing import Any, Final

from kp_middleware import KnowledgePulse
from kp_middleware.recording import (
    GIVEN_UP,
    Here,
    ModelCall,
    RootSpan,
    Span,
    SpanTree,
    current_recorder,
    place_here,
    register_finder,
    shield,
)

_span: Final[ContextVar[Span | None]] = ContextVar("kp_little_agents_span", default=None)


def _run_here() -> Here | None:
    """For ``current_trace()`` and ``@kp.tool`` inside a run; what comes after it is no part."""
    span = _span.get()
    over = span is None or span.root.recorder.finished
    return None if span is None or over else Here(span.root.recorder, span.place_inside)


register_finder(_run_here)


class KPListener:
    """Hears little_agents, in the agent's own thread.

    What goes wrong in here is counted, and the agent goes on. None of its objects is kept. Of runs
    that never end, the oldest is given up when there are thousands.

    Args:
        kp: Takes the traces; None means ``KnowledgePulse.default()``.
        domain: Picks the weights of the score; None means the pipeline's.
    """

    def __init__(self, kp: KnowledgePulse | None = None, *, domain: str | None = None) -> None:
        self._kp = KnowledgePulse.default() if kp is None else kp
        self._domain = domain
        self._spans = SpanTree(self._kp)

    @shield
    def on_start(self, run_id: str, parent_id: str | None, agent: str, task: str) -> None:
        span = self._spans.join(_key(run_id), None if parent_id is None else _key(parent_id))
        if span is not None:
            span.agent = agent  # inside another one, whose trace it is a part of
            return
        around = current_recorder()
        recorder = around or self._kp.start_recording("little_agents")
        if recorder is None:  # recording is switched off
            return
        root = RootSpan(recorder, owned=around is None)
        root.place = place_here()
        if root.owned:
            recorder.agent_name, recorder.domain = agent, self._domain
            recorder.set_objective(task)
        _span.set(self._spans.open(_key(run_id), root))

    @shield
    def on_model(self, run_id: str, text: str, tokens: tuple[int, int]) -> None:
        if span := self._spans.get(_key(run_id)):
            recorder, call = span.root.recorder, ModelCall(None, *tokens)
            recorder.note("thought", text, took=call, place=span.place)
            recorder.used_tokens(input_tokens=tokens[0], output_tokens=tokens[1])

    @shield
    def on_tool(self, run_id: str, call_id: str, tool: str, arguments: dict[str, Any]) -> None:
        if span := self._spans.join(_key(call_id), _key(run_id)):
            span.agent = None if span.parent is None else span.parent.agent
            span.use(tool, call_id)
            span.root.recorder.note(
                "tool_call", tool=tool, input=arguments, place=span.place, call_id=call_id
            )

    @shield
    def on_tool_end(
        self, run_id: str, call_id: str, tool: str, result: object, error: BaseException | None
    ) -> None:
        span = self._spans.end(_key(call_id))
        if span is None:
            return
        if error is None:
            span.root.record_result(result, span)
        elif not span.root.recorder.has_just_noted(error):  # by an agent that was the tool
            span.root.record_error(error, span)

    @shield
    def on_end(self, run_id: str, answer: str | None, error: BaseException | None) -> None:
        span = self._spans.end(_key(run_id))
        if span is not None and span.ends_trace:
            span.root.recorder.outcome(answer)
            span.root.recorder.finish(error, complete=not isinstance(error, GIVEN_UP))


def _key(name: str) -> int:
    """Return the number that stands for an id: little_agents has hexadecimal ones."""
    return int(name, 16)
