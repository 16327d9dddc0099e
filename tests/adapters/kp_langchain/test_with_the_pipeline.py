"""The handler and the real pipeline, together."""

import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
from langchain_core.tools import tool
from scripted_agents import add
from scripted_models import ScriptedModel, calls, says
from versions import create_agent

from kp_langchain import KPCallbackHandler
from kp_middleware import KnowledgePulse


@pytest.fixture
def path(tmp_path):
    return tmp_path / "kp.db"


def rows(path, query):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def test_a_run_is_scored_and_stored(path):
    agent = create_agent(
        ScriptedModel(turns=[calls(add={"a": 1, "b": 2}), says("It is 3.")]), [add], name="adder"
    )

    with KnowledgePulse(db=path, embedder=None) as kp:
        agent.invoke({"messages": "1 + 2?"}, {"callbacks": [KPCallbackHandler(kp)]})

    assert rows(
        path, "SELECT state, objective, result_summary, framework, agent_name, success FROM traces"
    ) == [("scored", "1 + 2?", "It is 3.", "langchain", "adder", 1)]
    assert rows(path, "SELECT type, tool FROM steps ORDER BY step_id") == [
        ("tool_call", "add"),
        ("observation", "add"),
        ("thought", None),
    ]


def test_tools_of_the_pipeline_are_steps_of_the_run_that_they_are_called_in(path):
    with KnowledgePulse(db=path, embedder=None) as kp:

        @kp.tool
        def shout(text: str) -> str:
            return text.upper()

        @tool
        def speak(text: str) -> str:
            """Speak."""
            return shout(text)

        turns = [calls(speak={"text": "hi"}), says("done")]
        create_agent(ScriptedModel(turns=turns), [speak]).invoke(
            {"messages": "go"}, {"callbacks": [KPCallbackHandler(kp)]}
        )

    assert rows(path, "SELECT type, tool FROM steps ORDER BY step_id") == [
        ("tool_call", "speak"),
        ("tool_call", "shout"),
        ("observation", "shout"),
        ("observation", "speak"),
        ("thought", None),
    ]


def test_an_agent_in_a_captured_function_is_one_stored_run(path):
    agent = create_agent(ScriptedModel(turns=[says("Paris")]), [])

    with KnowledgePulse(db=path, embedder=None) as kp:

        @kp.capture
        def answer(question: str) -> str:
            config = {"callbacks": [KPCallbackHandler(kp)]}
            return agent.invoke({"messages": question}, config)["messages"][-1].text

        answer("What is the capital of France?")

    assert rows(path, "SELECT objective, result_summary, framework FROM traces") == [
        ("What is the capital of France?", "Paris", "python")
    ]


def test_where_recording_is_off_nothing_is_stored(path):
    agent = create_agent(ScriptedModel(turns=[says("Paris")]), [])

    with KnowledgePulse(db=path, embedder=None, enabled=False) as kp:
        agent.invoke({"messages": "go"}, {"callbacks": [KPCallbackHandler(kp)]})

    assert not path.exists()


DEFAULT = """
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from kp_langchain import KPCallbackHandler
from kp_middleware import KnowledgePulse

FakeListChatModel(responses=["Paris"]).invoke("go", {"callbacks": [KPCallbackHandler()]})
KnowledgePulse.default().close()
"""


@pytest.mark.model
def test_without_a_pipeline_it_is_the_default_one(path):
    settings = {"KP_DB": str(path), "HOME": str(path.parent)}

    subprocess.run([sys.executable, "-c", DEFAULT], env=settings, check=True)

    assert rows(path, "SELECT result_summary FROM traces") == [("Paris",)]
