import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_runs import put, run, scored, step
from terminal import typed

from kp_middleware.storage import StepRecord
from kp_middleware.views.explanation import aligned

KEYS = st.tuples(st.sampled_from(["thought", "tool_call"]), st.sampled_from(["a", "b", None]))
RUNS = st.lists(KEYS, max_size=30)


def rows(keys):
    return [StepRecord(number=at, type=type, tool=tool) for at, (type, tool) in enumerate(keys)]


@pytest.fixture
def two(db):
    """A failure of one tool, and a success of two."""
    first = [step("thought"), step("tool_call", "search"), step("observation", "search")]
    left = run("Find it", *first, id="left", domain="code", success=False, confidence=0.5)
    put(db, left, scored(left))
    right = run("Find it", *first, step("tool_call", "edit"), id="right", confidence=0.9)
    put(db, right, scored(right, 0.25, "left"))


@pytest.mark.usefixtures("two")
def test_scores_are_laid_side_by_side_and_steps_aligned_by_type_and_tool(as_json):
    told = as_json("diff", "left", "right")

    parts = {part["part"]: part for part in told["scores"]}
    assert [*parts] == [
        "complexity", "novelty", "tool_diversity", "outcome_confidence", "single_tool", "score",
    ]  # fmt: skip
    assert parts["outcome_confidence"]["left"] == pytest.approx(0.15 * 0.2)
    assert parts["outcome_confidence"]["right"] == pytest.approx(0.9 * 0.25)
    assert parts["outcome_confidence"]["difference"] == pytest.approx(0.195)
    assert (parts["single_tool"]["right"], parts["single_tool"]["difference"]) == (
        None,
        pytest.approx(0.1),
    )
    *differences, total = (part["difference"] for part in told["scores"])
    assert sum(differences) == pytest.approx(total)
    assert [step["place"] for step in told["steps"]] == ["same", "same", "same", "right"]
    assert told["steps"][-1] == {
        "place": "right",
        "left": None,
        "right": 3,
        "type": "tool_call",
        "tool": "edit",
    }


@given(RUNS, RUNS)
def test_no_step_is_lost_or_moved_and_a_pair_is_in_both_just_where_it_is_the_same(left, right):
    pairs = aligned(rows(left), rows(right))

    for side, steps in enumerate((left, right)):
        assert [pair[side].number for pair in pairs if pair[side]] == [*range(len(steps))]
    for one, other in pairs:
        assert not (one and other) or (one.type, one.tool) == (other.type, other.tool)


@pytest.mark.usefixtures("two")
def test_a_trace_without_a_score_is_compared_by_its_steps(as_json, db):
    put(db, run("Find it", step("thought"), id="waits"))

    told = as_json("diff", "left", "waits")

    assert {part["difference"] for part in told["scores"]} == {None}
    assert [step["place"] for step in told["steps"]] == ["same", "left", "left"]


@pytest.mark.usefixtures("two")
def test_a_person_sees_by_signs_what_is_where(db):
    told = typed("--db", str(db), "diff", "left", "right", columns=100)
    narrow, wide = (
        typed("--db", str(db), "diff", "left", "right", columns=columns).splitlines()
        for columns in (60, 160)
    )

    assert ["≠", "outcome", "failed", "succeeded"] in [line.split() for line in told.splitlines()]
    assert re.search(
        r"outcome confidence +0.030  0.150 × 0.20 +0.225  0.900 × 0.25 +\+0.195\n", told
    )
    assert re.search("=  objective +Find it", told)
    assert re.search("≠  single tool +-0.100  rule", told)
    assert "= equal, ≠ different, < only left, > only right\n" in told
    assert re.search(r"\n= +1 Call search +1 Call search\n", told)
    assert re.search(r"\n> +3 Call edit\n", told)
    assert max(map(len, told.splitlines())) <= 100
    assert max(map(len, narrow)) <= 60
    assert max(map(len, wide)) <= 160


def test_equal_steps_with_other_arguments_show_both(db):
    for name in ("one", "two"):
        search = step("tool_call", "search", input={"q": name})
        put(db, run("Find it", step("observation", content="Find it"), search, id=name))

    told = typed("--db", str(db), "diff", "one", "two", columns=100)

    both = r'≠ +1 Call search +1 Call search\n +{"q": "one"} +{"q": "two"}\n'
    assert re.search(both, told)
    assert re.search(r"\n= +0 User +0 User\n", told)


def test_only_a_few_equal_steps_are_shown_around_a_difference(db):
    for name in ("one", "two"):
        put(db, run(name, *[step("thought")] * 50, step("tool_call", name), id=name))

    told = typed("--db", str(db), "diff", "one", "two")

    assert "  … 46 equal steps\n" in told
    assert told.count(" Agent\n") == 4
