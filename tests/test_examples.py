import os
import subprocess
import sys
from pathlib import Path

import pytest

from kp_middleware.storage import History
from kp_middleware.views.trace import run_as_json

REPOSITORY = Path(__file__).parents[1]
RECORDING = [
    ("langgraph_graph", "1.3 billion cubic kilometres", 1),
    ("plain_python", "52.54", 2),
]


@pytest.fixture
def run_example(db):
    """Runs an example on a file of its own, without the key of any provider; gives its output."""
    others = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}

    def run(name):
        return subprocess.run(
            [sys.executable, REPOSITORY / "examples" / f"{name}.py"],
            env=others | {"KP_DB": str(db)},
            capture_output=True,
            text=True,
            check=True,
            timeout=50,
        ).stdout

    return run


@pytest.mark.model
@pytest.mark.parametrize(("name", "answer", "runs"), RECORDING)
def test_an_example_answers_and_its_runs_are_scored(run_example, connection, name, answer, runs):
    assert answer in run_example(name)
    assert newest_of(connection) == (runs, "scored", "all-MiniLM-L6-v2")


def newest_of(connection):
    """How many runs there are, and what is known of the newest."""
    history = History(connection)
    newest = run_as_json(history.run(history.find("@last")))
    return history.counts().recorded, newest["state"], newest["embedder"].partition("@")[0]


@pytest.mark.model
def test_the_history_of_an_example_answers_in_plain_sql(run_example, connection):
    assert "Take the 07:10 from Rome" in run_example("langchain_agent")
    assert newest_of(connection) == (1, "scored", "all-MiniLM-L6-v2")

    printed = run_example("inspect_history")

    assert "below_threshold" in printed
    assert "trains  2" in printed
    assert printed.rstrip().endswith("How do I get from Rome to Turin by train before noon?")


def test_every_example_has_a_test():
    examples = {path.stem for path in (REPOSITORY / "examples").glob("*.py")}

    assert examples == {"inspect_history", "langchain_agent", *(name for name, *_ in RECORDING)}
