import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from kp_middleware.database import connect
from kp_middleware.storage import History
from kp_middleware.views.trace import run_as_json

REPOSITORY = Path(__file__).parents[1]
RECORDING = {
    "langchain_agent": ("Take the 07:10 from Rome", 1),
    "langgraph_graph": ("1.3 billion cubic kilometres", 1),
    "plain_python": ("52.54", 2),
}


@pytest.fixture
def run_example(tmp_path):
    """Runs an example on a file of its own, without the key of any provider; gives its output."""
    others = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}

    def run(name):
        return subprocess.run(
            [sys.executable, REPOSITORY / "examples" / f"{name}.py"],
            env=others | {"KP_DB": str(tmp_path / "kp.db")},
            capture_output=True,
            text=True,
            check=True,
            timeout=50,
        ).stdout

    return run


@pytest.mark.model
@pytest.mark.parametrize("name", RECORDING)
def test_an_example_answers_and_its_runs_are_scored(run_example, tmp_path, name):
    answer, runs = RECORDING[name]

    printed = run_example(name)

    with closing(connect(tmp_path / "kp.db", read_only=True)) as connection:
        history = History(connection)
        newest = run_as_json(history.run(history.find("@last")))
        count = history.counts().recorded
    assert answer in printed
    assert (count, newest["state"]) == (runs, "scored")
    assert newest["embedder"].startswith("all-MiniLM-L6-v2")


@pytest.mark.model
def test_the_history_answers_in_plain_sql(run_example):
    run_example("langchain_agent")

    printed = run_example("inspect_history")

    assert "below_threshold" in printed
    assert "trains  2" in printed
    assert printed.rstrip().endswith("How do I get from Rome to Turin by train before noon?")


def test_every_example_has_a_test():
    examples = {path.stem for path in (REPOSITORY / "examples").glob("*.py")}

    assert examples == {*RECORDING, "inspect_history"}
