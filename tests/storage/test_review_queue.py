"""The runs that a person is asked about, each in a few lines."""

from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stored_runs import kept, run, scored, tool_step, verdict

from kp_middleware import Step, Tool
from kp_middleware.core.evaluation import Evaluation
from kp_middleware.database import connect
from kp_middleware.storage import History, SqliteStore

CANDIDATES = st.lists(st.tuples(st.booleans(), st.floats(0, 0.5)), max_size=30)
LIMITS = st.integers(1, 40)
TEXTS = st.text(max_size=9).map(lambda text: 30 * text)
KINDS = st.sampled_from(["thought", "tool_call", "observation", "error_recovery"])
STEPS = st.fixed_dictionaries(
    {"step_id": st.just(0), "type": KINDS},
    optional={
        "content": TEXTS,
        "output_summary": TEXTS,
        "tool": st.builds(Tool, name=st.sampled_from(["read", "write"])),
        "input": st.dictionaries(st.text(max_size=5), st.text(max_size=90), max_size=3),
    },
).map(lambda fields: Step(**fields))


@pytest.fixture(scope="module")
def file():
    """One for all examples, each of which begins with an empty one."""
    with TemporaryDirectory() as folder, closing(connect(Path(folder) / "kp.db")) as connection:
        yield connection


@pytest.fixture(scope="module")
def asked(file):
    """Stores runs that would leave or not, this sure; returns those that are asked about."""

    def stored(candidates, limit):
        file.execute("DELETE FROM traces")
        confidences = {}
        for number, (leaves, sure) in enumerate(candidates):
            decision = "forward" if leaves else "withhold"
            source = ("assumed", "said")[number % 2]
            named = {"id": f"kp:trace:{number}", "success_source": source}
            seq = kept(SqliteStore(file), score=0.5, decision=decision, **named)
            file.execute("UPDATE traces SET p_success = ? WHERE seq = ?", (0.5 + sure, seq))
            confidences[named["id"]] = sure
        items = History(file).to_review(limit=limit)
        return [
            (item.is_forwarded, confidences[item.trace_id], int(item.trace_id[9:]))
            for item in items
        ]

    return stored


@settings(max_examples=30)
@given(CANDIDATES, LIMITS)
def test_those_that_leave_come_first_then_others_by_doubt_which_have_half_of_a_full_list(
    asked, candidates, limit
):
    found = asked(candidates, limit)

    assert len(found) == len(set(found)) == min(limit, len(candidates))
    going = [one for one in found if one[0]]
    assert found[: len(going)] == going == sorted(going, key=lambda one: -one[2])
    doubts = [(0.5 + sure) - 0.5 for _, sure, _ in found[len(going) :]]
    assert doubts == sorted(doubts)
    leaving = sum(leaves for leaves, _ in candidates)
    room = limit // 2 if leaving >= limit else limit - leaving
    assert len(doubts) == min(len(candidates) - leaving, room)


@pytest.fixture(scope="module")
def way(file):
    """Stores a run of these steps; returns its way."""

    def stored(*steps):
        file.execute("DELETE FROM traces")
        store = SqliteStore(file)
        seq = store.record(run("do it", *steps, success_source="assumed"))
        store.save_evaluation(seq, Evaluation(scored(), verdict()), took_ms=1)
        (item,) = History(file).to_review(limit=1)
        return item.way

    return stored


@settings(max_examples=15)
@given(st.lists(STEPS, min_size=1, max_size=40))
def test_a_way_has_ten_lines_of_160_characters_at_the_most(way, steps):
    lines = way(*steps)

    assert len(lines) <= min(10, len(steps))
    assert all(len(line) <= 160 and "\n" not in line for line in lines)


def test_a_result_stands_beside_its_call(way):
    lines = way(
        tool_step("tool_call", "read", input={"name": "a.py"}),
        tool_step("observation", "read", output_summary="1\n2"),
        tool_step("error_recovery", "write", output_summary="full"),
        Step(step_id=0, type="thought", content="Then not."),
    )

    assert lines == ('read(name="a.py") → 1 2', "! write: full", "Then not.")


def test_of_a_long_way_the_beginning_is_reported_and_more_of_the_end(way):
    steps = [Step(step_id=0, type="thought", content=f"thought {at}") for at in range(20)]

    lines = way(*steps)

    assert lines == (
        *(f"thought {at}" for at in range(4)),
        "… 11 more …",
        *(f"thought {at}" for at in range(15, 20)),
    )
