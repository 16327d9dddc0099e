"""Agents of real frameworks, with scripted models: `make test-frameworks`."""

import asyncio
import importlib
from typing import NamedTuple

import pytest
from framework_dumps import RunCollector, as_expected
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from scenes import ASKED, EXPERT, FAILS, REFUND, WAITS, desk

from kp_middleware.recording import shield
from kp_otel import KPSpanProcessor

pytestmark = [pytest.mark.timeout(60), pytest.mark.filterwarnings("ignore")]  # theirs

LETTERS = {"thought": "t", "tool_call": "c", "observation": "o", "error_recovery": "e"}
WHOLE = "ottccootcetcot"


class Expectation(NamedTuple):
    """The differences of one framework's reports from the others'.

    Attributes:
        needs: The module without which it is not here.
        answer: The kinds of the steps of an answer.
        left: Those of a stream that is left, or None if nothing is known of it.
        cancelled: Those of a run that is stopped in a tool.
        failed: Those of a run whose model fails.
        fails: What the run is then.
        leaves_open: Whether the agent's span never ends then.
        agent: The name of its agent.
        expert: The argument of an agent that is a tool.
        beside: The name of the agent inside, or None if its steps are not told from the others.
    """

    needs: str
    answer: str = WHOLE
    left: str | None = None
    cancelled: str = "oco"
    failed: str = "ocoo"
    fails: str = "ConnectionError"
    leaves_open: bool = False
    agent: str = "support"
    expert: str = "input"
    beside: str | None = "expert"


FRAMEWORKS = {
    "pydantic_ai": Expectation("pydantic_ai", left="ot", cancelled="oce"),
    "openai_agents_native": Expectation("agents", fails="Error getting response"),
    "openai_agents_openinference": Expectation(
        "openinference.instrumentation.openai_agents", fails="Error getting response"
    ),
    "agent_framework": Expectation("agent_framework", left="o"),
    "google_adk": Expectation("google.adk", left="ottcc", expert="request"),
    "strands": Expectation("strands", left="o"),
    "smolagents": Expectation(
        "openinference.instrumentation.smolagents",
        answer="otccootcetcoco",
        left="otcc",
        fails="BadRequestError",
        leaves_open=True,
        agent="support.run",
        expert="task",
        beside=None,
    ),
    "llama_index": Expectation(
        "openinference.instrumentation.llama_index",
        answer="otcocotcetcot",
        left="ot",
        cancelled="oce",
        agent="FunctionAgent.run",
        beside=None,
    ),
}


@pytest.fixture(scope="module")
def provider():
    provider = TracerProvider(shutdown_on_exit=False)
    trace.set_tracer_provider(provider)
    return provider


@pytest.fixture(scope="module")
def collector(provider):
    """The runs of all frameworks, whose instrumentors are switched on once."""
    book = RunCollector()
    book.processor = KPSpanProcessor(book)
    provider.add_span_processor(book.processor)
    return book


@pytest.fixture(scope="module", params=FRAMEWORKS)
def name(request):
    needed = FRAMEWORKS[request.param].needs
    pytest.importorskip(needed, reason=f"needs {needed}")
    return request.param


@pytest.fixture(scope="module")
def framework(name, provider, collector):
    module = importlib.import_module(f"live_{name}")
    module.connect(provider, collector)
    return module


@pytest.fixture
def expectation(name):
    return FRAMEWORKS[name]


@pytest.fixture
def runs(collector):
    """Ends what is open, and returns what was recorded."""
    collector.ended.clear()

    def end():
        collector.processor.shutdown()
        recorded = collector.runs
        assert not [one for one in shield.failures if not one.startswith("a run without content")]
        return recorded

    yield end
    collector.processor.shutdown()


def kinds(run):
    return "".join(LETTERS[step.type] for step in run.trace.steps)


def run_with_limit(scene):
    asyncio.run(asyncio.wait_for(scene, 30))


@pytest.mark.parametrize("way", ["ask", "stream"])
def test_an_answer_with_tools_at_once_and_one_that_fails_once(framework, runs, expectation, way):
    run_with_limit(getattr(framework, way)(framework.support(*REFUND), ASKED))

    [run] = runs()
    assert (kinds(run), run.complete, run.error_type) == (expectation.answer, True, None)
    assert (run.trace.task.objective, run.agent_name) == (ASKED, expectation.agent)
    assert run.trace.outcome.result_summary.strip() == "Refunded 12 EUR for order A1."
    calls = [(step.tool.name, step.input) for step in run.trace.steps if step.type == "tool_call"]
    assert calls[:2] == [("look_up", {"order": "A1"}), ("search", {"topic": "refund policy"})]


def test_a_stream_that_is_left_is_incomplete(framework, runs, expectation):
    run_with_limit(framework.stream(framework.support(*REFUND), ASKED, leave=True))

    assert [(kinds(run), run.complete) for run in runs()] == (
        [] if expectation.left is None else [(expectation.left, False)]
    )


def test_a_run_that_is_cancelled_is_incomplete(framework, runs, expectation):
    async def cancel():
        agent = framework.support(*WAITS)
        task = asyncio.create_task(framework.ask(agent, ASKED))
        if (kit := getattr(agent, "kit", None)) is not None:  # or it stops itself
            await kit.waits.wait()
            task.cancel()
        await task

    with pytest.raises((asyncio.CancelledError, Exception)):
        run_with_limit(cancel())

    [run] = runs()
    assert (kinds(run), run.complete) == (expectation.cancelled, False)


def test_a_model_that_fails_fails_the_run_and_the_next_is_its_own(framework, runs, expectation):
    with pytest.raises(Exception, match="the model is away"):
        run_with_limit(framework.ask(framework.support(*FAILS), ASKED))
    run_with_limit(framework.ask(framework.support(*REFUND), ASKED))

    failed, well = sorted(runs(), key=lambda run: run.trace.metadata.created_at)
    assert (kinds(failed), failed.error_type) == (expectation.failed, expectation.fails)
    assert (failed.complete, failed.trace.metadata.success) == (not expectation.leaves_open, False)
    assert (kinds(well), well.complete) == (expectation.answer, True)


def test_an_agent_in_an_agent_is_a_part_of_its_run(framework, runs, expectation):
    agent = framework.with_expert(desk(**{expectation.expert: "May I?"}), EXPERT)

    run_with_limit(framework.ask(agent, "May I have my money back?"))

    [run] = runs()
    steps = as_expected(run)["steps"]
    inner = [step for step in steps if step.get("beside") == expectation.beside]
    assert "Yes, within 30 days." in str(inner)
    assert run.trace.task.objective == "May I have my money back?"
    assert run.trace.outcome.result_summary.strip() == "You may."
    assert run.complete


def test_two_turns_are_two_runs_each_with_its_question(framework, runs):
    agent = framework.support(["Hello."], ["It is A1."])

    run_with_limit(framework.ask(agent, "Good morning.", "Which order?"))

    found = [(run.trace.task.objective, run.trace.outcome.result_summary.strip()) for run in runs()]
    assert found == [("Good morning.", "Hello."), ("Which order?", "It is A1.")]


def test_two_at_once_stay_apart(framework, runs, expectation):
    async def both():
        asked = [f"Refund order A{number}, please." for number in range(2)]
        await asyncio.gather(*(framework.ask(framework.support(*REFUND), one) for one in asked))

    run_with_limit(both())

    found = runs()
    assert [kinds(run) for run in found] == [expectation.answer] * 2
    assert {run.trace.task.objective for run in found} == {
        "Refund order A0, please.",
        "Refund order A1, please.",
    }
