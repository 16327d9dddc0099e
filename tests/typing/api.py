"""The library as type checkers see it: mypy reads this file, nothing runs it."""

from typing import Any, assert_type

from kp_langchain import KPCallbackHandler, recording_runs
from kp_middleware import (
    Decision,
    Embedder,
    Gate,
    KnowledgePulse,
    ReasoningTrace,
    Score,
    Scorer,
    Step,
    current_trace,
    evaluate_value,
)
from kp_middleware.confidence import Field, log_probabilities
from kp_middleware.testing import LocalRegistry, StandInEmbedder

kp = KnowledgePulse(db="kp.db", embedder=StandInEmbedder(), threshold="top 10%")


@kp.capture
def answer(question: str, *, times: int = 1) -> list[str]:
    current_trace().thought("one of each")
    return [question] * times


@kp.capture(domain="code", confidence=[Field("certainty", of=100), log_probabilities])
async def answer_later(question: str) -> dict[str, float]:
    return {question: 1.0}


@kp.tool(name="shout")
def shout(text: str) -> str:
    return text.upper()


def told_apart() -> None:
    """A decorated function keeps its types."""
    assert_type(answer("why", times=2), list[str])
    assert_type(shout("why"), str)
    assert_type(kp.wrap_context(shout)("why"), str)
    answer(1)  # type: ignore[arg-type]
    shout(word="why")  # type: ignore[call-arg]


async def told_apart_later() -> None:
    assert_type(await answer_later("why"), dict[str, float])


class FiveADay:
    """A gate of a user's own: nothing is inherited."""

    name = "five a day"

    def decide(self, score: Score, history: Any) -> Decision:
        goes = score.value >= 0.5 and history.forwarded_in_a_day() < 5
        return Decision("forward" if goes else "withhold", "five a day", 0.5)


class Zeros:
    """An embedder that is none: without a name, and without a vector."""

    def embed(self, text: str, /) -> str:
        return text


gate: Gate = FiveADay()
embedder: Embedder = Zeros()  # type: ignore[assignment]
gated = KnowledgePulse(gate=FiveADay())

trace = ReasoningTrace.of("add 1 and 2", [Step(step_id=0, type="thought", content="3")])
trace.task.objective = "another"  # type: ignore[misc]
Step(step_id=0, type="guess")  # type: ignore[arg-type]

assert_type(evaluate_value(trace), float)
assert_type(Scorer(embedder=None).score(trace), Score)

with recording_runs(kp, scope="thread") as handler:
    assert_type(handler, KPCallbackHandler)
    assert_type(handler.trace_id(), str | None)

with LocalRegistry(answers=[429, 201]) as registry:
    assert_type(registry.url, str)
