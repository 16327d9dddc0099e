import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traces import step, trace

from kp_middleware.embedding import embedded_text
from kp_middleware.testing import StandInEmbedder

PAGE = step("observation", "page " * 300, tool="read")


def numbered(count):
    return " ".join(map(str, range(count)))


contents = st.integers(0, 300).map(numbered) | st.text(max_size=400)
steps = st.builds(
    step,
    st.sampled_from(["thought", "tool_call", "observation", "error_recovery"]),
    contents,
    st.sampled_from([None, "tool"]),
)
traces = st.builds(
    lambda recorded, objective: trace(*recorded, objective=objective),
    st.lists(steps, min_size=1, max_size=12),
    contents.filter(bool),
)


def test_the_specified_text_is_the_objective_and_each_content_with_single_spaces():
    recorded = trace(step(content="a"), step("tool_call", tool="t"), objective="goal")

    assert embedded_text(recorded) == "goal a "


def test_an_embedder_may_choose_what_it_reads_of_a_long_trace(tiny):
    recorded = trace(PAGE)
    specified = embedded_text(recorded)

    assert embedded_text(recorded, StandInEmbedder()) == specified
    assert embedded_text(recorded, tiny) == tiny.text_of(recorded) != specified


@pytest.mark.parametrize(
    ("spare", "specified"), [(0, True), (-1, False)], ids=["just fits", "one token too long"]
)
def test_a_text_that_fits_is_the_specified_one(tiny, spare, specified):
    recorded = trace(
        step("observation", "a " * (252 - spare), tool="read"), step(content="b"), objective="c"
    )

    assert (tiny.text_of(recorded) == embedded_text(recorded)) == specified


def test_what_was_said_is_whole_and_a_tool_result_is_cut_to_its_ends(tiny):
    recorded = trace(
        step(content="I look it up"),
        step("observation", f"from {'page ' * 300} to", tool="read"),
        step("observation", "and the price?"),
        step(content="it costs 5 euros"),
        objective="where is it sold",
    )

    text = tiny.text_of(recorded)

    result = f"from {'page ' * 14}page {'page ' * 15} to"
    assert text == f"where is it sold I look it up {result} and the price? it costs 5 euros"


def test_of_a_long_objective_32_tokens_of_the_beginning_and_64_of_the_end_are_read(tiny):
    recorded = trace(step(content="done"), objective=numbered(300))

    text = tiny.text_of(recorded)

    beginning, end = map(str, range(32)), map(str, range(236, 300))
    assert text.split() == [*beginning, *end, "done"]


@pytest.mark.parametrize(
    ("kind", "ends"), [("observation", 32), ("thought", 16)], ids=["person", "agent"]
)
def test_of_what_is_said_at_length_the_beginning_and_the_end_are_read(tiny, kind, ends):
    recorded = trace(step(kind, numbered(300)), objective="go")

    text = tiny.text_of(recorded)

    assert text.split() == ["go", *map(str, range(ends)), *map(str, range(300 - ends, 300))]


def test_people_have_the_first_claim_on_the_window_then_thoughts(tiny):
    thought, turn = step(content="t " * 32), step("observation", "p " * 64)
    recorded = trace(PAGE, thought, thought, turn, thought, turn, turn, objective="go")

    text = tiny.text_of(recorded).split()

    assert [text.count(word) for word in ("p", "t", "page")] == [192, 64, 0]


def test_the_rest_of_a_run_that_only_used_tools_has_the_room_of_one_part(tiny):
    recorded = trace(PAGE, PAGE, PAGE, objective="go")

    text = tiny.text_of(recorded)

    assert text.split() == ["go", *["page"] * 32]


@given(traces)
@settings(deadline=None)
def test_the_text_is_the_specified_one_if_that_fits_else_bounded_and_always_the_same(
    tiny, tokenizer, recorded
):
    text, specified = tiny.text_of(recorded), embedded_text(recorded)

    if text != specified:
        assert tokenizer.encode(specified).overflowing
        assert len(text) <= 9 * (96 + 64 * len(recorded.steps))
    assert tiny.text_of(recorded) == text


@given(st.lists(st.sampled_from(["thought", "observation", "error_recovery"]), min_size=1))
@settings(deadline=None)
def test_no_step_is_moved(tiny, kinds):
    recorded = trace(
        *(step(kind, f"{place} " * 40) for place, kind in enumerate(kinds)),
        objective="go " * 300,
    )

    places = [int(word) for word in tiny.text_of(recorded).split() if word != "go"]

    assert places == sorted(places)
