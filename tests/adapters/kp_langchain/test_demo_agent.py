"""The demo's agent does real work, and its runs are worth what they should be worth."""

import pytest
from langchain_core.tools import ToolException
from langchain_notebook import Notebook
from versions import run_tasks

from kp_langchain.demo import Project, convert, monthly_payment
from kp_middleware.embedding import MiniLMEmbedder, Scorer


@pytest.fixture(scope="module")
def runs():
    run_tasks(notebook := Notebook())
    return notebook.runs


def test_there_are_at_least_six_tasks_in_two_domains_one_of_which_fails_and_one_is_repeated(runs):
    objectives = [run.trace.task.objective for run in runs]

    assert len(runs) >= 6
    assert {run.trace.metadata.task_domain for run in runs} == {"finance", "code"}
    assert [run.error_type for run in runs if not run.trace.metadata.success] == ["PermissionError"]
    assert len(set(objectives)) < len(objectives)


def test_the_agent_recovers_from_a_tools_error(runs):
    loan = next(run for run in runs if "mortgage" in run.trace.task.objective)

    assert loan.shape.recoveries == 1
    assert "1583.51 euros a month" in loan.trace.outcome.result_summary
    assert loan.trace.outcome.confidence == 0.96


def test_the_repair_is_real(runs):
    repair = next(run for run in runs if "repair it" in run.trace.task.objective)

    tested = [s for s in repair.trace.steps if s.tool and s.tool.name == "run_test" and not s.input]
    results = [step.output_summary for step in tested if step.type == "observation"]
    assert results[0] == "failed: [0-9]{6} refuses 2026-000123"
    assert results[1] == "passed: ([0-9]{4}-)?[0-9]{6} takes 104233, 2026-000123"


@pytest.mark.model
def test_some_clear_the_gate_and_the_others_do_not(runs):
    scorer = Scorer(embedder=MiniLMEmbedder())

    scores = {run.trace.id: scorer.score(run.trace).value for run in runs}

    worth_sharing = [run.trace.task.objective for run in runs if scores[run.trace.id] >= 0.75]
    assert len(worth_sharing) == 2
    assert "mortgage" in worth_sharing[0]
    assert "repair it" in worth_sharing[1]


@pytest.mark.parametrize(
    ("use", "says"),
    [
        (lambda: convert(1, "EUR", "XXX"), "no rate for 'XXX'"),
        (lambda: monthly_payment(1, 4, 1), "4 % is 0.04"),
        (lambda: Project().read("x.py"), "no file x.py"),
        (lambda: Project().replace("README.md", "z", "y"), "occurs 0 times"),
    ],
    ids=["currency", "rate", "file", "text"],
)
def test_a_tool_that_is_used_wrongly_says_what_is_right(use, says):
    with pytest.raises(ToolException, match=says):
        use()
