"""Several handlers on one run: one trace in each pipeline."""

import asyncio
import gc
import weakref

import pytest
from langchain_core.runnables import RunnableLambda
from langchain_notebook import Notebook
from scripted_agents import ADDED, GO, agent
from scripted_models import ScriptedModel, answer_of, calls
from ways_to_run import WAYS

from kp_langchain import KPCallbackHandler


@pytest.mark.parametrize("way", WAYS)
def test_handlers_make_one_trace_in_each_pipeline(adding, notebook, other, way):
    way(adding, GO, {"callbacks": [KPCallbackHandler(kp) for kp in (notebook, notebook, other)]})

    assert notebook.story == other.story == ADDED
    assert notebook.started == other.started == 1


def test_case_18_handlers_for_all_runs_and_for_this_make_one_trace(
    adding, handler, config, notebook
):
    prepared = adding.with_config(callbacks=[handler, KPCallbackHandler(notebook)])

    prepared.invoke(GO, config)

    assert notebook.story == ADDED


def test_a_handler_in_a_models_constructor_beside_one_of_the_run_adds_nothing(config, notebook):
    model = ScriptedModel(turns=[answer_of("hi")], callbacks=[KPCallbackHandler(notebook)])

    RunnableLambda(model.invoke).invoke("go", config)

    assert notebook.story == ["thought: hi"]


def test_a_run_inside_with_handlers_again_stays_in_the_trace(adding, handler, config, notebook):
    again = {"callbacks": [handler, KPCallbackHandler(notebook)]}

    RunnableLambda(lambda _: adding.invoke(GO, again)).invoke("outer", config)

    assert notebook.story == ADDED
    assert notebook.trace.task.objective == "outer"


def test_a_run_inside_with_a_handler_of_another_pipeline_is_a_trace_there(
    adding, config, notebook, other
):
    elsewhere = {"callbacks": [KPCallbackHandler(other)]}

    RunnableLambda(lambda _: adding.invoke(GO, elsewhere)).invoke("outer", config)

    assert other.story == ADDED
    assert other.trace.task.objective == "go"
    assert notebook.started == 1


def test_case_25_a_handler_for_each_of_many_concurrent_runs_keeps_them_apart(notebook):
    adding = agent(calls("I add.", add={"a": 1, "b": 2}), answer_of("3"))
    asked = [{"messages": f"question {number}"} for number in range(50)]

    async def run_many():
        handlers = [{"callbacks": [KPCallbackHandler(notebook)]} for _ in asked]
        await asyncio.gather(*map(adding.ainvoke, asked, handlers))

    asyncio.run(run_many())

    assert len({run.trace.task.objective for run in notebook.runs}) == 50
    assert {len(run.trace.steps) for run in notebook.runs} == {4}


def test_a_pipeline_is_not_kept_by_handlers_that_are_gone(adding):
    short_lived = Notebook()
    pipeline = weakref.ref(short_lived)
    adding.invoke(GO, {"callbacks": [KPCallbackHandler(short_lived)]})

    del short_lived
    gc.collect()

    assert pipeline() is None
