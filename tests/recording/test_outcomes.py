"""Outcomes read from the whole run: tests and builds, refusals, a tool's result."""

import gzip
import json
import re
from pathlib import Path

import pytest

from kp_middleware import ReasoningTrace, Step, Tool, current_trace
from kp_middleware.confidence import Field
from kp_middleware.outcomes import OfRun, ToolResult, checks, refusal
from kp_middleware.recording import Extractors, shield

_SECTIONS = re.split(
    r"^>>> (\S+)\n",
    (Path(__file__).parent / "outputs_of_tools.txt").read_text(),
    flags=re.MULTILINE,
)
OUTPUTS = dict(zip(_SECTIONS[1::2], _SECTIONS[2::2], strict=True))
MEANING = {"passed": 0.9, "failed": 0.1, "none": None}


def trace_of(*uses, result=""):
    """A run that called tools: each use is (command, output), or an output alone."""
    steps, shell = [], Tool(name="shell")
    for use in uses:
        command, output = use if isinstance(use, tuple) else (None, use)
        if command is not None:
            given = {"type": "tool_call", "tool": shell, "input": {"command": command}}
            steps.append(Step(step_id=len(steps), **given))
        answer = {"type": "observation", "tool": shell, "output_summary": output}
        steps.append(Step(step_id=len(steps), **answer))
    return ReasoningTrace.of("fix it", steps, result_summary=result)


@pytest.mark.parametrize("name", OUTPUTS)
def test_the_outputs_of_these_tools_are_read(name):
    for output in (OUTPUTS[name], OUTPUTS[name].replace("\n", "\r\n")):
        assert checks.read(trace_of(output)) == MEANING[name.rsplit("-", 1)[1]]


def test_the_last_check_counts():
    failed, passed = OUTPUTS["pytest-failed"], OUTPUTS["pytest-passed"]

    assert checks.read(trace_of(failed, passed)) == 0.9
    assert checks.read(trace_of(passed, failed)) == 0.1
    assert checks.read(trace_of(passed, "README.md")) == 0.9
    assert checks.read(trace_of(failed, ("pytest | head -1", "====== test session"))) is None


@pytest.mark.parametrize(
    ("command", "output", "outcome"),
    [
        ("gcc a.c -o a", "", 0.9),
        ("cd src && make -j4", "gcc -c a.c", 0.9),
        ("make", "(exit code 2)", 0.1),
        ("python -m pytest -q", '{"exit_code": 1, "stdout": ""}', 0.1),
        ("npm test", "<returncode>0</returncode>", 0.9),
        ("timeout 60 npx jest", "Exit code 1", 0.1),
        ("CI=1 npx vitest run", "exit status 0", 0.9),
        ("pytest | tail -1", "exit code: 0", None),
        ("pytest --version || true", "exit code: 0", 0.9),
        ("pytest", "no words about it", None),
        ("cat pytest.ini", "exit code: 0", None),
        ("ls", "exit code: 1", None),
        ("grep -rn pytest .", "exit code: 1", None),
        ("cat makefile", "all: a.c", None),
        (["python", "-m", "pytest"], "exit code: 1", 0.1),
        ("pytest", '{"stdout": "F\\n1 failed in 0.12s", "stderr": ""}', 0.1),
        ("gcc b.c", "gcc: error: b.c: No such file or directory", 0.1),
        ("go build ./...", "# a.com/x\n./x.go:6:2: undefined: y", 0.1),
        ("vitest run", " Test Files  1 passed (1)\n     Errors  1 error", 0.1),
        ("tsc -p .", "sh: 1: tsc: not found", None),
        ("cargo build", "error: could not find `Cargo.toml` in `/x`", None),
    ],
)
def test_an_exit_code_counts_where_the_command_is_a_check(command, output, outcome):
    assert checks.read(trace_of((command, output))) == outcome


@pytest.mark.parametrize(
    "said",
    [
        "OK",
        "FAILED",
        "error: pathspec 'x' did not match any file(s) known to git",
        "Found 3 errors in your essay",
        "12 passed the exam in 2019",
        "The build failed. ok then",
        "Test Files are in tests/",
    ],
)
def test_other_words_are_no_results(said):
    assert checks.read(trace_of(said)) is None


def test_a_quiet_compiler_has_passed_unless_its_call_failed():
    call, answer = trace_of(("gcc a.c", "")).steps
    failed = answer.model_copy(update={"type": "error_recovery"})

    assert checks.read(ReasoningTrace.of("fix it", [call, failed])) is None


def test_an_output_that_was_cut_tells_nothing():
    cut = f"{OUTPUTS['pytest-passed']}… [cut: 90000 characters in all]"

    assert checks.read(trace_of(("pytest", cut))) is None


def test_a_named_tool_says_how_it_ended_by_its_last_result():
    read = ToolResult("shell", lambda result: result["ok"]).read

    assert read(trace_of('{"ok": false}', '{"ok": true}')) is True
    assert read(trace_of('{"ok": 0.25}')) == 0.25
    assert ToolResult("other", bool).read(trace_of("1")) is None


def test_a_named_tool_that_raises_means_failure():
    step = Step(
        step_id=0, type="error_recovery", tool=Tool(name="submit"), output_summary="KeyError"
    )

    assert ToolResult("submit", bool).read(ReasoningTrace.of("do it", [step])) is False


def test_a_refusal_is_a_failure_where_it_is_asked_for():
    assert refusal.read(trace_of("x", result="I'm sorry, but I cannot do that.")) == 0.1
    assert refusal.read(trace_of("x", result="Done: 3 files.")) is None


class Broken(OfRun):
    """Says what cannot be."""

    def read(self, trace):  # noqa: ARG002
        return 7


FAILED, PASSED = "1 failed in 0.1s", "1 passed in 0.1s"
BY_FIELD = Field("certainty")


@pytest.mark.parametrize(
    ("extractors", "output", "said", "stored"),
    [
        (checks, FAILED, {}, (False, 0.1, "extracted", "extracted")),
        ([refusal, checks], PASSED, {}, (True, 0.9, "extracted", "extracted")),
        (checks, "nothing", {}, (True, 0.8, "assumed", "assumed")),
        (None, FAILED, {}, (True, 0.8, "assumed", "assumed")),
        (checks, FAILED, {"success": True, "confidence": 0.7}, (True, 0.7, "said", "said")),
        (checks, FAILED, {"confidence": 0.7}, (False, 0.7, "extracted", "said")),
        ([BY_FIELD, checks], FAILED, {}, (False, 0.1, "extracted", "extracted")),
        ([BY_FIELD, checks], "nothing", {}, (True, 0.6, "assumed", "extracted")),
        ([Broken(), checks], PASSED, {}, (True, 0.9, "extracted", "extracted")),
    ],
    ids=[
        *("failed", "passed", "no check", "not asked for", "the agent says more"),
        *("the agent is sure", "a field says less", "a field alone", "the first is broken"),
    ],
)
def test_an_outcome_is_extracted_where_the_agent_says_none(
    notebook, extractors, output, said, stored
):
    def agent():
        current_trace().tool_call("shell", {"command": "pytest"})
        current_trace().observation(tool="shell", output_summary=output)
        current_trace().outcome(**said)
        return {"certainty": 0.6}

    notebook.capture(agent, confidence=Extractors(extractors))()

    run = notebook.run
    outcome = run.trace.metadata.success, run.trace.outcome.confidence
    assert (*outcome, run.success_source, run.confidence_source) == stored
    assert shield.failures.total() == ("Broken" in str(extractors))


def test_checks_are_silent_about_runs_without_any(shared):
    """Customer service: no tool runs a test, and no word of a customer is taken for one."""
    runs = shared / "data" / "tau_airline_gpt4o_open.jsonl.gz"
    for line in gzip.decompress(runs.read_bytes()).splitlines():
        outputs = [m["content"] for m in json.loads(line)["messages"] if m["role"] == "tool"]
        assert checks.read(trace_of(*outputs or [""])) is None
