"""Several handlers on one run: one trace in each pipeline."""

import asyncio
import gc
import weakref

import pytest
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from scripted_agents import add, agent
from scripted_models import ScriptedModel, calls, says
from ways_to_run import WAYS

from kp_langchain import KPCallbackHandler

GO = {"messages": "go"}
STORY = ["thought: I need to add.", "tool_call add(a=1, b=2)", "observation add: 3"]
STORY = [*STORY, "thought: The answer is 3."]


@pytest.fixture
def other(notebook):
    """Another pipeline."""
    return type(notebook)()


@pytest.mark.parametrize("way", WAYS)
def test_two_handlers_of_one_pipeline_make_one_trace(adding, notebook, way):
    way(adding, GO, {"callbacks": [KPCallbackHandler(notebook), KPCallbackHandler(notebook)]})

    assert notebook.story == STORY
    assert notebook.started == 1


def test_a_handler_for_all_runs_and_one_for_this_make_one_trace(adding, notebook):
    prepared = adding.with_config(callbacks=[KPCallbackHandler(notebook)])

    prepared.invoke(GO, {"callbacks": [KPCallbackHandler(notebook)]})

    assert notebook.story == STORY


def test_a_handler_in_a_models_constructor_beside_one_of_the_run_adds_nothing(notebook):
    model = ScriptedModel(turns=[says("hi")], callbacks=[KPCallbackHandler(notebook)])

    RunnableLambda(model.invoke).invoke("go", {"callbacks": [KPCallbackHandler(notebook)]})

    assert notebook.story == ["thought: hi"]


def test_a_run_inside_with_a_handler_of_its_own_stays_in_the_trace(adding, config, notebook):
    def again(_):
        adding.invoke(GO, {"callbacks": [KPCallbackHandler(notebook)]})

    RunnableLambda(again).invoke("outer", config)

    assert notebook.story == STORY
    assert notebook.trace.task.objective == "outer"


@pytest.mark.parametrize("way", WAYS)
def test_handlers_of_two_pipelines_make_one_trace_in_each(adding, notebook, other, way):
    way(adding, GO, {"callbacks": [KPCallbackHandler(notebook), KPCallbackHandler(other)]})

    assert notebook.story == other.story == STORY


def test_a_run_inside_with_a_handler_of_another_pipeline_is_a_trace_there(
    adding, config, notebook, other
):
    def again(_):
        adding.invoke(GO, {"callbacks": [KPCallbackHandler(other)]})

    RunnableLambda(again).invoke("outer", config)

    assert other.story == STORY
    assert other.trace.task.objective == "go"
    assert notebook.started == 1


def test_a_fallback_stays_in_the_trace_of_the_run_that_fell_back(config, notebook):
    failing = RunnableLambda(lambda _: 1 / 0)
    model = ScriptedModel(turns=[says("hi")])

    failing.with_fallbacks([model]).invoke("go", config)

    assert notebook.started == 1
    assert notebook.story[-1] == "thought: hi"


class Book(BaseRetriever):
    """Finds nothing."""

    def _get_relevant_documents(self, *_, **__):
        return []


@pytest.mark.parametrize(
    ("runnable", "given", "story"),
    [
        (ScriptedModel(turns=[says("hi")]), "go", ["thought: hi"]),
        (add, {"a": 1, "b": 2}, ["tool_call add(a=1, b=2)", "observation add: 3"]),
        (Book(), "go", ["tool_call Book(query='go')", "observation Book"]),
    ],
    ids=["model", "tool", "retriever"],
)
def test_roots_of_any_kind_are_one_trace(notebook, runnable, given, story):
    twice = {"callbacks": [KPCallbackHandler(notebook), KPCallbackHandler(notebook)]}

    runnable.invoke(given, twice)

    assert notebook.story == story


def test_case_25_a_handler_for_each_of_many_concurrent_runs_keeps_them_apart(notebook):
    adding = agent(calls("I add.", add={"a": 1, "b": 2}), says("3"))

    async def run_many():
        await asyncio.gather(
            *[
                adding.ainvoke(
                    {"messages": f"question {number}"},
                    {"callbacks": [KPCallbackHandler(notebook)]},
                )
                for number in range(50)
            ]
        )

    asyncio.run(run_many())

    assert len({run.trace.task.objective for run in notebook.runs}) == 50
    assert {len(run.trace.steps) for run in notebook.runs} == {4}


def test_a_pipeline_is_not_kept_by_handlers_that_are_gone(adding, notebook):
    short_lived = type(notebook)()
    pipeline = weakref.ref(short_lived)
    adding.invoke(GO, {"callbacks": [KPCallbackHandler(short_lived)]})

    del short_lived
    gc.collect()

    assert pipeline() is None
