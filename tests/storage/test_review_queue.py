"""Which runs a person is asked about, and the way of a run in few lines."""

from hypothesis import given
from hypothesis import strategies as st

from kp_middleware.storage import StepRecord
from kp_middleware.storage._review import Unsure, asked_first, way_of

SURENESS = st.floats(0, 0.5)
CANDIDATES = st.lists(st.tuples(st.booleans(), SURENESS), max_size=30).map(
    lambda rows: [Unsure(seq, *row) for seq, row in enumerate(rows)]
)
TEXTS = st.none() | st.text(max_size=300)
TYPES = st.sampled_from(["thought", "tool_call", "observation", "error_recovery"])
STEPS = st.lists(
    st.builds(
        StepRecord,
        number=st.just(0),
        type=TYPES,
        tool=st.none() | st.sampled_from(["read", "write"]),
        content=TEXTS,
        output_summary=TEXTS,
        input=st.none() | st.dictionaries(st.text(max_size=5), st.text(max_size=90), max_size=3),
    ),
    max_size=40,
)


@given(CANDIDATES, st.integers(1, 40))
def test_as_many_as_there_are_those_that_leave_first_then_by_doubt(candidates, limit):
    asked = asked_first(candidates, limit)

    assert len(asked) == len(set(asked)) == min(limit, len(candidates))
    going = [one for one in asked if one.is_forwarded]
    assert asked[: len(going)] == going == sorted(going)
    rest = asked[len(going) :]
    assert rest == sorted(rest, key=lambda one: (one.sureness, one.seq))


@given(CANDIDATES, st.integers(1, 40))
def test_half_of_a_list_is_for_others_where_there_are_enough(candidates, limit):
    going = sum(one.is_forwarded for one in candidates)
    others = sum(not one.is_forwarded for one in asked_first(candidates, limit))

    if going >= limit:
        assert others == min(len(candidates) - going, limit // 2)
    else:
        assert others == min(len(candidates) - going, limit - going)


@given(STEPS)
def test_a_way_has_ten_lines_of_160_characters_at_the_most(steps):
    way = way_of(steps)

    assert len(way) <= min(10, len(steps))
    assert all(len(line) <= 160 and "\n" not in line for line in way)


def test_a_result_stands_beside_its_call():
    steps = [
        StepRecord(number=0, type="tool_call", tool="read", input={"name": "a.py"}),
        StepRecord(number=1, type="observation", tool="read", output_summary="1\n2"),
        StepRecord(number=2, type="error_recovery", tool="write", output_summary="full"),
        StepRecord(number=3, type="thought", content="Then not."),
    ]

    assert way_of(steps) == ('read(name="a.py") → 1 2', "! write: full", "Then not.")
