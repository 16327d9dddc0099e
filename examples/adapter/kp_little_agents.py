"""Record runs of little_agents: ``Agent(…, listeners=[KPListener(kp)])``.

An adapter to copy: events become notes, which the recorder bounds and copies as plain JSON.
"""

import time
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

from kp_middleware import KnowledgePulse
from kp_middleware.recording import (
    GIVEN_UP,
    Here,
    Place,
    Recorder,
    current_recorder,
    register_finder,
    shield,
)

_MOST_RUNS: Final = 1000  # a framework may forget to say that a run has ended
_recorder: ContextVar[Recorder | None] = ContextVar("kp_little_agents_recorder", default=None)


def _run_here() -> Here | None:
    """For ``current_trace()`` and ``@kp.tool`` inside a run; what comes after it is no part."""
    recorder = _recorder.get()
    return None if recorder is None or recorder.finished else Here(recorder)


register_finder(_run_here)


class _Run(NamedTuple):
    recorder: Recorder
    place: Place | None  # of a run inside another one, whose trace it is a part of
    calls: dict[str, float]  # when each began, in seconds


class KPListener:
    """Hears little_agents, in the agent's own thread.

    What goes wrong in here is counted, and the agent goes on. None of its objects is kept.

    Args:
        kp: Takes the traces; None means ``KnowledgePulse.default()``.
        domain: Picks the weights of the score; None means the pipeline's.
    """

    def __init__(self, kp: KnowledgePulse | None = None, *, domain: str | None = None) -> None:
        self._kp = KnowledgePulse.default() if kp is None else kp
        self._domain = domain
        self._runs: dict[str, _Run] = {}

    @shield
    def on_start(self, run_id: str, parent_id: str | None, agent: str, task: str) -> None:
        parent = self._runs.get(parent_id or "")
        around = parent.recorder if parent else current_recorder()
        recorder = around or self._kp.start_recording("little_agents")
        if recorder is None:  # recording is switched off
            return
        if around is None:
            recorder.agent_name, recorder.domain = agent, self._domain
            recorder.set_objective(task)
            _recorder.set(recorder)
        self._runs[run_id] = _Run(recorder, None if around is None else Place(agent), {})
        if len(self._runs) > _MOST_RUNS:
            self.on_end(next(iter(self._runs)), None, GeneratorExit())

    @shield
    def on_model(self, run_id: str, text: str, tokens: tuple[int, int]) -> None:
        if run := self._runs.get(run_id):
            run.recorder.note("thought", text, place=run.place)
            run.recorder.used_tokens(input_tokens=tokens[0], output_tokens=tokens[1])

    @shield
    def on_tool(self, run_id: str, call_id: str, tool: str, arguments: dict[str, Any]) -> None:
        if run := self._runs.get(run_id):
            run.calls[call_id] = time.perf_counter()
            run.recorder.note(
                "tool_call", tool=tool, input=arguments, place=run.place, call_id=call_id
            )

    @shield
    def on_tool_end(
        self, run_id: str, call_id: str, tool: str, result: object, error: BaseException | None
    ) -> None:
        run = self._runs.get(run_id)
        if run is None or call_id not in run.calls:
            return
        took_ms = (time.perf_counter() - run.calls.pop(call_id)) * 1000
        if error is None:
            run.recorder.note("observation", None, tool, result, took_ms, run.place, call_id)
        elif not run.recorder.has_just_noted(error):  # by an agent that was the tool
            run.recorder.error(
                error, tool=tool, latency_ms=took_ms, place=run.place, call_id=call_id
            )

    @shield
    def on_end(self, run_id: str, answer: str | None, error: BaseException | None) -> None:
        run = self._runs.pop(run_id, None)
        if run is not None and run.place is None:
            run.recorder.outcome(answer)
            run.recorder.finish(error, complete=not isinstance(error, GIVEN_UP))
