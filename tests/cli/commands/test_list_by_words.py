"""Finding traces by their words."""

import json

import pytest
from sample_runs import put, run, step, with_value
from terminal import typed


@pytest.fixture
def traces(db):
    thought = step("thought", content="hm")
    put(db, run("Count the orders", thought, result_summary="There are 7."), with_value(0.3))
    put(db, run("Order: an order, to order", thought, domain="code"), with_value(0.8))
    put(db, run("Something else", thought), with_value(0.9))


@pytest.mark.usefixtures("traces")
def test_the_best_match_comes_first(as_json):
    assert [row["snippet"] for row in as_json("list", "-q", "order")] == [
        "[Order]: an [order], to [order]",
        "Count the [orders]",
    ]


@pytest.mark.usefixtures("traces")
@pytest.mark.parametrize(
    "text",
    [
        'count "the',
        "count: orders",
        "(count",
        "count*)",
        "'count",
        "count -",
        "~count!",
        "count the orders",
    ],
)
def test_what_somebody_types_is_never_an_error(as_json, text):
    assert [row["objective"] for row in as_json("list", "-q", text)] == ["Count the orders"]


@pytest.mark.usefixtures("traces")
def test_a_person_sees_the_words_in_brackets_or_that_nothing_was_found(db):
    assert "Count the [orders]" in typed("--db", str(db), "list", "-q", "order")
    assert typed("--db", str(db), "list", "-q", "unicorn").endswith("\nnothing matches\n")


def test_a_long_word_near_a_match_is_shortened(db, as_json):
    put(db, run("Decode this", step("thought", content="attached " + "A" * 50_000)))

    (row,) = as_json("list", "-q", "attached")

    assert "[attached] AAA" in row["snippet"]
    assert len(row["snippet"]) < 200


@pytest.fixture
def international_traces(db):
    """Traces in scripts without blanks, and with emoji."""
    for objective, result in (
        ("明日の天気を調べる", "東京は晴れ ☀️ 100%"),
        ("Book a hotel in 東京", "done 🎉"),
    ):
        put(db, run(objective, step("thought"), result_summary=result), with_value(0.5))


@pytest.mark.usefixtures("international_traces")
@pytest.mark.parametrize(
    ("words", "snippets"),
    [
        (["天気"], ["明日の[天気]を調べる"]),
        (["東京"], ["Book a hotel in [東京]", "[東京]は晴れ ☀️ 100%"]),
        (["天気", "東京"], ["明日の[天気]を調べる"]),
        (['"天気"', "AND", "晴れ"], ["明日の[天気]を調べる"]),
        (["東京", "HOTEL"], ["Book a hotel in [東京]"]),
        (["🎉"], ["done [🎉]"]),
        (["☀️", "0%"], ["東京は晴れ [☀️] 100%"]),
        (["天%気"], []),
        (["天", "OR", "leak"], []),
    ],
    ids=str,
)
def test_scripts_without_blanks_and_emoji_are_found_anywhere(as_json, words, snippets):
    assert [row["snippet"] for row in as_json("list", "-q", " ".join(words))] == snippets


@pytest.mark.usefixtures("international_traces")
def test_a_list_and_its_count_find_the_same(type_command):
    result = type_command("list", "--text", "東京", "-n", "1", "--json")

    assert json.loads(result.stdout)[0]["objective"] == "Book a hotel in 東京"
    assert result.stderr == "2 in all: -n shows more\n"


def test_an_excerpt_of_a_long_text_says_that_it_is_one(db, as_json):
    long = "あ" * 200
    put(db, run(f"{long}天気{long}", step("thought")), with_value(0.5))

    assert as_json("list", "-q", "天気")[0]["snippet"] == f"…{'あ' * 24}[天気]{'あ' * 70}…"


def test_of_equal_matches_the_same_ones_come_first_however_many_are_shown(db, as_json):
    for number in range(6):
        put(db, run(f"count item {number}", step("thought", content="hm")))

    everything = [row["objective"] for row in as_json("list", "-q", "count")]

    assert [row["objective"] for row in as_json("list", "-q", "count", "-n", "3")] == everything[:3]
