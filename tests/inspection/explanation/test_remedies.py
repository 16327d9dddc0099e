"""What `explain` promises is so, by the scorer's own functions; what it calls impossible is."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kp_middleware.inspection.explanation._alternatives import Case
from kp_middleware.inspection.explanation._facts import Facts
from kp_middleware.inspection.explanation._remedies import remedy
from kp_middleware.inspection.explanation.rescoring import SIGNALS, Parts
from kp_middleware.scores import Shape, Signals
from kp_middleware.scoring import PROFILES
from kp_middleware.scoring import _signals as formula
from kp_middleware.traces import Outcome

UNIT = st.floats(0, 1)
KINDS = ("thought", "tool_call", "observation", "error_recovery")
WEIGHTS = st.sampled_from([*PROFILES.values()])
NO_RECOVERY = frozenset(KINDS) - {"error_recovery"}
THRESHOLDS = UNIT | st.sampled_from([0.1, 0.5, 0.6, 0.7, 0.75, 0.8])
NUMBER = r"(\d\.\d{3})"


@st.composite
def runs(draw):
    """A run that there can be, as the scorer sees it."""
    counts = {kind: draw(st.integers(0, 6)) for kind in KINDS}
    counts["thought"] = max(counts["thought"], not any(counts.values()))
    return Facts(
        kinds=frozenset(kind for kind, count in counts.items() if count),
        steps=sum(counts.values()),
        tools=draw(st.integers(0, min(5, sum(counts.values())))),
        recoveries=counts["error_recovery"],
        novelty=draw(UNIT),
        confidence=draw(UNIT),
        success=draw(st.booleans()),
    )


CASES = st.builds(
    lambda run, weights, threshold, signal: Case(run, made(run, weights), threshold, signal),
    runs(),
    WEIGHTS,
    THRESHOLDS,
    st.sampled_from(SIGNALS),
)


def shape(run):
    return Shape(steps=run.steps, types=run.kinds, tools=run.tools, recoveries=run.recoveries)


def measured(run, **changes):
    """The scorer's four measures of a run."""
    outcome = Outcome(result_summary="", confidence=run.confidence)
    signals = Signals(
        complexity=formula.complexity(shape(run)),
        novelty=run.novelty,
        tool_diversity=formula.tool_diversity(shape(run)),
        outcome_confidence=formula.outcome_confidence(outcome, success=run.success),
    )
    return signals.model_copy(update=changes)


def rescored(run, weights, **changes):
    """The scorer's score of a run, and the rules that fired."""
    base = formula.weighted(measured(run, **changes), weights)
    return formula.adjusted(base, shape(run), success=run.success)


def made(run, weights):
    signals, (_, adjustments) = measured(run), rescored(run, weights)
    values = (tuple(getattr(one, name) for name in SIGNALS) for one in (signals, weights))
    return Parts(*values, tuple(one.rule for one in adjustments))


def weights_of(case):
    return next(
        one
        for one in PROFILES.values()
        if tuple(getattr(one, name) for name in SIGNALS) == case.parts.weights
    )


def clears(case, run, **changes):
    return rescored(run, weights_of(case), **changes)[0] >= case.threshold


@given(runs(), WEIGHTS)
def test_the_facts_of_a_run_make_the_scorers_own_parts(run, weights):
    assert run.parts(made(run, weights).weights) == made(run, weights)


@given(CASES)
def test_each_change_that_is_found_gives_the_other_verdict(case):
    other = case.alternative()

    assert other is None or clears(case, other) != case.cleared


@given(CASES)
def test_the_words_say_the_change_that_was_found(case):
    words, other = remedy(case), case.alternative()

    if tools := re.search(r"(\d+) different tools? in its", words):
        assert other == case.run._replace(tools=int(tools[1]))
    if similarity := re.search(rf"at (?:most|least) {NUMBER} like it", words):
        changed = case.run._replace(novelty=1 - float(similarity[1]))
        assert clears(case, changed) != case.cleared
    if steps := re.search(r"(\d+) further steps?; that", words):
        longer = case.run._replace(steps=case.run.steps + int(steps[1]))
        assert clears(case, longer) or " and " in words
    if confidence := re.search(rf"(?<!its )(?:a confidence of) {NUMBER}", words):
        success = "a failure" not in words if case.run.success else "a success" in words
        changed = case.run._replace(confidence=float(confidence[1]), success=success)
        assert clears(case, changed) != case.cleared
    if (total := re.search(rf"that makes {NUMBER}$", words)) and other:
        assert float(total[1]) == pytest.approx(rescored(other, weights_of(case))[0], abs=6e-4)


@given(CASES, UNIT)
def test_a_value_that_is_named_gives_the_other_verdict_while_the_rules_stay(case, share):
    words = remedy(case)

    if raised := re.match(rf"{NUMBER} instead of", words):
        assert case.parts.changed(case.signal, float(raised[1])).score >= case.threshold
    if lowered := re.match(rf"below {NUMBER} instead of", words):
        value = float(lowered[1]) * min(share, 0.999)
        assert case.parts.changed(case.signal, value).score < case.threshold


@given(CASES, UNIT, st.booleans(), st.integers(0, 9))
def test_what_is_called_impossible_is_impossible_whatever_its_value(case, value, success, count):
    run, weights = case.run, weights_of(case)
    others = {
        "complexity": lambda: [
            rescored(
                run._replace(recoveries=count, steps=max(2, run.steps)),
                weights,
                complexity=value,
                tool_diversity=measured(run).tool_diversity,
            )
        ],
        "novelty": lambda: [rescored(run._replace(novelty=value), weights)],
        "tool_diversity": lambda: [
            rescored(run._replace(tools=tools), weights) for tools in range(run.steps + 1)
        ],
        "outcome_confidence": lambda: [
            rescored(run._replace(success=success, confidence=one), weights)
            for one in (0.0, value, run.confidence, 1.0)
        ],
    }[case.signal]()

    if remedy(case).startswith("cannot alone"):
        assert {score >= case.threshold for score, _ in others} == {case.cleared}


def case_of(signal, threshold, **changes):
    run = Facts(
        kinds=frozenset(KINDS),
        steps=20,
        tools=1,
        recoveries=1,
        novelty=0.5,
        confidence=0.8,
        success=True,
    )._replace(**changes)
    return Case(run, made(run, PROFILES["default"]), threshold, signal)


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (
            case_of("tool_diversity", 0.6),
            "2 different tools in its 20 steps, it had 1; that makes 0.670",
        ),
        (
            case_of("tool_diversity", 0.6, tools=2),
            "1 different tool in its 20 steps, it had 2; that makes 0.547",
        ),
        (
            case_of("outcome_confidence", 0.75, tools=5, recoveries=3, success=False),
            "a success, with its confidence of 0.800; that makes 0.838",
        ),
        (
            case_of("outcome_confidence", 0.7, tools=5, recoveries=3),
            "a failure, with its confidence of 0.800; that makes 0.597",
        ),
        (
            case_of("complexity", 0.6, tools=7, kinds=NO_RECOVERY, recoveries=0, novelty=0.1),
            "0.860 instead of 0.575: a first recovery from an error; that makes 0.635",
        ),
        (
            case_of("complexity", 0.8, tools=5, steps=20, recoveries=2),
            "3 recoveries from errors; that makes 0.8",
        ),
        (
            case_of("complexity", 0.8, tools=5, steps=20, recoveries=3),
            "2 recoveries from errors; that makes 0.7",
        ),
        (
            case_of("complexity", 0.61, tools=3, steps=10, success=False),
            "0.961 instead of 0.900: more steps alone do not do it, they cut tool diversity",
        ),
        (case_of("novelty", 0.98), "cannot alone: at most 0.723"),
        (case_of("novelty", 0.4), "0.078 instead of 0.500: "),
    ],
    ids=[
        "a second tool ends the rule against one",
        "one tool alone brings the rule",
        "success after many recoveries brings the rule",
        "failure ends the rule",
        "a first recovery",
        "a third recovery brings the rule",
        "fewer recoveries end the rule",
        "more steps are no help",
        "novelty cannot",
        "less novelty",
    ],
)
def test_the_words_name_what_would_do(case, words):
    assert words in remedy(case)
