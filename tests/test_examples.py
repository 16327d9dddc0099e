import os
import runpy
import sys

import pytest

from kp_middleware.storage import History
from kp_middleware.views.trace import run_as_json


@pytest.fixture
def run_example(db, repository, monkeypatch, capsys):
    """Runs an example on a file of its own, without the key of any provider; what it prints."""
    for name in [name for name in os.environ if name.endswith("_API_KEY")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("KP_DB", str(db))

    def run(name, embedder="none"):
        path = str(repository / "examples" / f"{name}.py")
        monkeypatch.setenv("KP_EMBEDDER", embedder)
        monkeypatch.setattr(sys, "argv", [path])
        runpy.run_path(path, run_name="__main__")
        return capsys.readouterr().out

    return run


@pytest.fixture
def newest(connection):
    """Return the number of runs, and the score of the newest."""

    def look():
        history = History(connection)
        run = run_as_json(history.run(history.find("@last")))
        return history.counts().recorded, run["state"], run["embedder"]

    return look


@pytest.mark.model
def test_an_agent_in_plain_python_is_recorded_and_scored_with_the_model(run_example, newest):
    assert "52.54" in run_example("plain_python", embedder="minilm")

    runs, state, embedder = newest()
    assert (runs, state, embedder.partition(":")[0]) == (2, "scored", "all-MiniLM-L6-v2")


def test_a_graph_is_recorded_and_scored(run_example, newest):
    assert "1.3 billion cubic kilometres" in run_example("langgraph_graph")

    assert newest() == (1, "scored", None)


def test_an_agent_is_recorded_and_scored_and_its_history_answers_in_plain_sql(run_example, newest):
    assert "Take the 07:10 from Rome" in run_example("langchain_agent")
    assert newest() == (1, "scored", None)

    printed = run_example("inspect_history")

    assert "below_threshold" in printed
    assert "trains  2" in printed
    assert printed.rstrip().endswith("How do I get from Rome to Turin by train before noon?")


def test_a_model_may_ask_for_trains_that_do_not_run(repository):
    example = runpy.run_path(str(repository / "examples" / "langchain_agent.py"))

    assert example["trains"].invoke({"start": "Rome", "goal": "Turin"}) == []


def test_without_a_file_the_history_names_the_remedy(run_example):
    with pytest.raises(SystemExit, match="run another example first"):
        run_example("inspect_history")


def test_every_example_has_a_test(repository):
    examples = {path.stem for path in (repository / "examples").glob("*.py")}

    assert examples == {"inspect_history", "langchain_agent", "langgraph_graph", "plain_python"}
