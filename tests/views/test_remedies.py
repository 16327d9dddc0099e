"""What `explain` promises is so, by the scorer's own functions; what it calls impossible is."""

import re
from dataclasses import replace
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kp_middleware.core.alternatives import Case, Facts
from kp_middleware.core.evaluation import Run, score_run
from kp_middleware.core.formula import PROFILES, SIGNALS, Parts, Score, combine
from kp_middleware.views.remedies import remedy

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


def scored(run, weights) -> Score:
    """The score of a run, by the formula itself."""
    return score_run(Run(run.shape, run.confidence, run.success), weights)


def measured(run, weights, **changes):
    return replace(scored(run, weights).signals, **({"novelty": run.novelty} | changes))


def rescored(run, weights, **changes):
    """The score of a run with these signals, and the rules that fired."""
    return combine(measured(run, weights, **changes), weights, scored(run, weights).rules)


def made(run, weights):
    return Parts(measured(run, weights), weights, scored(run, weights).rules)


def clears(case, run, **changes):
    return rescored(run, case.parts.weights, **changes)[0] >= case.threshold


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

    if tools := re.search(r"(\d+) different tools? instead of", words):
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
        assert float(total[1]) == pytest.approx(rescored(other, case.parts.weights)[0], abs=6e-4)


@given(CASES, UNIT)
def test_a_value_that_is_named_gives_the_other_verdict_while_the_rules_stay(case, share):
    words = remedy(case)

    if raised := re.match(rf"{NUMBER} instead of", words):
        assert case.parts.changed(case.signal, float(raised[1])).score >= case.threshold
    if lowered := re.match(rf"at most {NUMBER} instead of", words):
        value = float(lowered[1]) * share
        assert case.parts.changed(case.signal, value).score < case.threshold


@given(CASES.filter(lambda case: case.signal != "complexity"), UNIT, st.booleans())
def test_what_is_called_impossible_is_impossible_whatever_its_value(case, value, success):
    run, weights = case.run, case.parts.weights
    others = {
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


KIND_SETS = [frozenset(kinds) for count in range(4) for kinds in combinations(KINDS[:3], count)]
RECOVERIES = range(8)
STEPS = range(1, 104)


def all_runs(run):
    """Every run with its tools, of some kinds, recoveries and numbers of steps."""
    for kinds, recoveries, steps in product(KIND_SETS, RECOVERIES, STEPS):
        had = kinds | {"error_recovery"} if recoveries else kinds
        others = steps - recoveries
        if steps >= run.tools and others >= len(kinds) and bool(kinds) == bool(others):
            yield run._replace(kinds=had, recoveries=recoveries, steps=steps)


def is_way(case, other):
    """Whether it is more complex, or less where it cleared, and gets the other verdict."""
    if other.complexity == case.run.complexity:
        beyond = other.rules != case.run.rules
    else:
        beyond = (other.complexity < case.run.complexity) == case.cleared
    has_tools = other.tools == 0 or other.kinds != {"thought"} or case.run.kinds == {"thought"}
    needs_none = other.tools > 0 or other.kinds <= case.run.kinds | {"thought", "error_recovery"}
    return has_tools and needs_none and beyond and clears(case, other) != case.cleared


def distance(run, other):
    """How many steps are others: recoveries, the first of a kind, and further ones."""
    kinds = [one.kinds - {"error_recovery"} for one in (run, other)]
    had, has = (
        one.steps - one.recoveries - len(of) for one, of in zip((run, other), kinds, strict=True)
    )
    return len(kinds[0] ^ kinds[1]) + abs(run.recoveries - other.recoveries) + abs(had - has)


@settings(max_examples=12, deadline=None)
@given(CASES.map(lambda case: case._replace(signal="complexity")))
def test_the_nearest_run_is_found_of_all_that_differ_in_complexity(case):
    found = case.alternative()

    nearest = min(
        (distance(case.run, other) for other in all_runs(case.run) if is_way(case, other)),
        default=None,
    )
    assert (distance(case.run, found) if found else None) == nearest


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
            "2 different tools instead of 1 in its 20 steps; that makes 0.670",
        ),
        (
            case_of("tool_diversity", 0.6, tools=2),
            "1 different tool instead of 2 in its 20 steps; that makes 0.547",
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
            "cannot alone: at most 0.595",
        ),
        (
            case_of(
                "complexity",
                0.8,
                kinds=frozenset({"thought", "tool_call", "error_recovery"}),
                tools=3,
                steps=5,
                recoveries=3,
                novelty=0.3775,
            ),
            "0.872 instead of 0.725: one observation and 2 further steps; that makes 0.802",
        ),
        (
            case_of("complexity", 0.8, tools=5, steps=1000, recoveries=2, novelty=0.9),
            "3 recoveries from errors; that makes 0.867",
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
        "a new kind and further steps",
        "a very long run",
        "novelty cannot",
        "less novelty",
    ],
)
def test_the_words_name_what_would_do(case, words):
    assert words in remedy(case)
