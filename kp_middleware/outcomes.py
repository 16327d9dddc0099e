"""Outcome extractors: did a run do its task? They read the whole run after its end.

An extractor runs on the worker, never on the agent's thread. It returns True or False, a
probability from 0 to 1, or None if unknown. Pass it as ``confidence``, alone or in a list; none is
on by default. ``docs/outcomes.md`` lists how often each was right.
"""

import json
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, final

from kp_middleware.traces import ReasoningTrace, Step, Tool, texts_in

__all__ = ["Judge", "OfRun", "ReportedOutcome", "ToolResult", "checks", "refusal"]

ReportedOutcome: TypeAlias = bool | float | None
"""The outcome of a run: True, False, the probability of success, 0 to 1, or None if unknown."""

LIKELY: Final = 0.5
"""The probability from which a run counts as a success."""

_PASSED: Final = 0.9
_FAILED: Final = 0.1
_RESULTS: Final = re.compile(
    r"""
    ^(?:
      (?P<fail_pytest>=*\ ?(?:\d+\ [a-z]+,\ ){0,9}\d+\ (?:failed|errors?)\b.*\ in\ [\d.]+s\b.*$)
    | (?P<pass_pytest>=*\ ?(?:\d+\ [a-z]+,\ ){0,9}\d+\ passed\b.*\ in\ [\d.]+s\b.*$)
    | Ran\ [1-9]\d*\ tests?\ in\ [\d.]+s\s+(?:(?P<pass_unittest>OK)|(?P<fail_unittest>FAILED)\ \()
    | \ *(?:Test\ Suites:|Test\ Files)\ +                                    # jest, vitest
        (?:(?P<fail_jest>\d+\ failed)|(?:.*[ ])?(?P<pass_jest>\d+\ passed)).*$
    | \ *(?P<fail_vitest>Errors\ +\d+\ errors?)$                           # outside of a test
    | \ +\d+\ (?:(?P<pass_mocha>passing)\ \(.*\)|(?P<fail_mocha>failing))$
    | (?:\#|ℹ)\ fail\ (?:(?P<pass_node>0)|(?P<fail_node>\d+))$              # node --test
    | (?P<pass_go>ok\ +\t?\S+\t(?:[\d.]+s|\(cached\)).*$) | (?P<fail_go>FAIL(?:\t\S+.*)?$)
    | test\ result:\ (?:(?P<pass_cargo>ok)|(?P<fail_cargo>FAILED))\..*$
    | (?P<fail_rust>error(?:\[E\d+\]:
        |:\ (?:could\ not\ compile|aborting|test\ failed|\d+\ target)).*$)
    | (?P<fail_compiler>\S+?(?::\d+){1,2}:\ (?:fatal\ )?error:\ .*$)         # gcc, javac, mypy
    | (?P<fail_driver>(?:collect2|cc1(?:plus)?|gcc|g\+\+|clang(?:\+\+)?):\ (?:fatal\ )?error:\ .*$)
    | (?P<fail_go_build>(?:vet:\ )?\S+\.go:\d+:\d+:\ .*$)
    | (?P<fail_make>g?make(?:\[\d+\])?:\ \*\*\*\ .*$)
    | (?P<fail_tsc>(?:\S.*\b)?error\ TS\d+:\ .*$)
    | (?P<fail_found>Found\ [1-9]\d*\ errors?
        (?:\.|\ in\ (?:\d+\ files?|the\ same\ file|\S+:\d+)\b).*$)
    | (?P<pass_mypy>Success:\ no\ issues\ found\b.*$) | (?P<pass_ruff>All\ checks\ passed!$)
    | (?:\[INFO\]\ )?BUILD\ (?:(?P<pass_build>SUCCESS)|(?P<fail_build>FAIL))\S*.*$   # maven, gradle
    )""",
    re.MULTILINE | re.VERBOSE,
)
"""Result lines of tests and builds; the last match counts."""

_COMPILERS: Final = (
    r"gcc|g\+\+|cc|c\+\+|clang\+*|tsc|javac|rustc|make|ninja|cmake\s--build"
    r"|cargo\s(?:build|check)|go\s(?:build|vet)"
)
_RUNNERS: Final = (
    r"pytest|unittest|tox|nox|jest|vitest|mocha|node\s--test|(?:npm|yarn|pnpm|bun)\s(?:run\s)?test"
    r"|go\stest|cargo\stest|ctest|mvn|gradlew?|mypy|ruff\scheck|pyright"
)
_CALLED: Final = (
    r"(?:^|[;&|(\n\"'])\s*"
    r"(?:(?:python[\d.]* -m|npx|uv run|poetry run|time|env|timeout \S+|\w+=\S*) )*"
    r"(?:\S*/)?(?:{})(?![\w.+/-])"
)
_COMPILES: Final = re.compile(_CALLED.format(_COMPILERS))
_CHECKS: Final = re.compile(_CALLED.format(f"{_COMPILERS}|{_RUNNERS}"))
_EXIT_CODE: Final = re.compile(
    r"(?:exit(?:ed with)?[ _-]?(?:code|status)|return[ _-]?code)\W{0,4}(-?\d+)", re.IGNORECASE
)
_TROUBLE: Final = re.compile(
    r"\b(?:error|fatal|cannot|not found|no (?:such|go files|required)|does not|not in std)\b",
    re.IGNORECASE,
)
_PIPE: Final = re.compile(r"(?<!\|)\|(?!\|)")
_COLOUR: Final = re.compile(r"\x1b\[[\d;]*m|\r(?=\n)")  # and line ends of terminals
_CUT: Final = re.compile(r"… \[cut: \d+ characters in all\]\Z")
_REFUSAL: Final = re.compile(
    r"\b(?:I(?:['’]m| am) (?:\w+ )?(?:sorry|unable|not able|afraid)|I apologi[sz]e|unfortunately"
    r"|I (?:cannot|can['’]t|could not|couldn['’]t))\b",
    re.IGNORECASE,
)


class OfRun:
    """The base of all extractors of the outcome: `checks`, `refusal`, `ToolResult`, `Judge`."""

    def read(self, trace: ReasoningTrace) -> ReportedOutcome:  # noqa: ARG002 - subclasses read it
        """Return the outcome of a finished run, or None if unknown; a `Judge` is asked later."""
        return None


@final
@dataclass(frozen=True, slots=True)
class ToolResult(OfRun):
    """Use the result of a tool that checks the task, such as one that submits the answer.

    The last result of the tool counts; one that ended in an error means failure.

    Args:
        tool: The name of the tool.
        read_result: Returns True, False, a probability or None for the result, which is parsed if
            it is JSON, else text.

    >>> from kp_middleware import Tool
    >>> fields = {"tool": Tool(name="submit"), "output_summary": '{"ok": true}'}
    >>> trace = ReasoningTrace.of("add", [Step(step_id=0, type="observation", **fields)])
    >>> ToolResult("submit", lambda result: result["ok"]).read(trace)
    True
    """

    tool: str
    read_result: Callable[[Any], ReportedOutcome]

    def read(self, trace: ReasoningTrace) -> ReportedOutcome:
        """Return the outcome in the last result of the tool."""
        for step in reversed(trace.steps):
            if step.tool is not None and step.tool.name == self.tool:
                if step.type == "error_recovery":
                    return False
                if step.output_summary is not None:
                    try:
                        result = json.loads(step.output_summary)
                    except ValueError:
                        result = step.output_summary
                    return self.read_result(result)
        return None


@final
@dataclass(frozen=True, slots=True)
class Judge(OfRun):
    """Ask a function for the outcome of a finished run: a test suite, a rubric, another model.

    It runs in the background, one run at a time, if the outcome is not stated otherwise; the run is
    scored after its answer. An error or a timeout counts as no answer, and is counted under
    ``swallowed`` in ``kp.stats()``. Its own model and tool calls are not recorded.

    Args:
        judge: Returns True, False, a probability from 0 to 1, or None for a redacted trace; sync
            or async.
        timeout_s: The timeout for one run.

    Raises:
        ValueError: If the timeout is not above 0.
    """

    judge: Callable[[ReasoningTrace], ReportedOutcome | Awaitable[ReportedOutcome]]
    timeout_s: float = 10.0

    def __post_init__(self) -> None:
        if not self.timeout_s > 0:
            raise ValueError(f"timeout_s must be above 0, got {self.timeout_s!r}")


@final
class _Checks(OfRun):
    """Read the result of the last test run, build or type check of the run."""

    def read(self, trace: ReasoningTrace) -> ReportedOutcome:
        for at in range(len(trace.steps) - 1, -1, -1):
            step = trace.steps[at]
            output = step.output_summary
            if step.tool is None or output is None or step.type == "tool_call":
                continue
            is_cut = _CUT.search(output)  # the result at the end is missing
            if not is_cut and (lines := [*_RESULTS.finditer(_text(output))]):
                has_passed = (lines[-1].lastgroup or "").startswith("pass")
                return _PASSED if has_passed else _FAILED
            command = _command(trace.steps[:at], step.tool)
            if _CHECKS.search(command):  # it counts even without a result line
                codes = _EXIT_CODE.findall(output)
                if codes and not _PIPE.search(command):
                    return _FAILED if int(codes[-1]) else _PASSED
                has_ended = step.type == "observation" and not is_cut
                is_quiet = has_ended and not _TROUBLE.search(output)
                return _PASSED if _COMPILES.search(command) and is_quiet else None
        return None


@final
class _Refusal(OfRun):
    """Treat a run that ends in an apology or a refusal as a failure."""

    def read(self, trace: ReasoningTrace) -> ReportedOutcome:
        return _FAILED if _REFUSAL.search(trace.outcome.result_summary) else None


checks: Final[OfRun] = _Checks()
"""Reads the results of tests and builds from the outputs of tools; the last one counts.

Knows pytest, unittest, jest, vitest, mocha, ``node --test``, ``go test``, ``cargo``, gcc, clang,
``make``, tsc, javac, mypy, ruff, Maven and Gradle, and the exit code of a command that starts one.
"""

refusal: Final[OfRun] = _Refusal()
"""Treats a run that ends in an apology or a refusal as a failure, which is often wrong."""


def probability(reported: ReportedOutcome) -> float | None:
    """Return an extractor's result as a probability of success.

    Raises:
        ValueError: If it is not True, False, None or a number from 0 to 1.
    """
    if reported is None:
        return None
    if isinstance(reported, bool | int | float) and 0 <= reported <= 1:
        return float(reported)
    raise ValueError(f"outcome must be True, False or a number (0 to 1), got {reported!r:.50}")


def _command(before: tuple[Step, ...], tool: Tool) -> str:
    for step in reversed(before):
        if step.type == "tool_call" and step.tool == tool:
            return "\n".join(texts_in(step.input))
    return ""


def _text(output: str) -> str:
    if output[:1] in {"{", "["}:
        with suppress(ValueError):
            output = "\n".join(texts_in(json.loads(output)))
    return _COLOUR.sub("", output)
