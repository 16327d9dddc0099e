"""Finding traces by their words."""

import json

import pytest
from hand_made import put, run, step, with_value
from terminal import typed


@pytest.fixture
def traces(db):
    thought = step("thought", content="hm")
    put(db, run("Count the orders", thought, result_summary="There are 7."), with_value(0.3))
    put(db, run("Order: an order, to order", thought, domain="code"), with_value(0.8))
    put(db, run("Something else", thought), with_value(0.9))


@pytest.fixture
def found(type_command):
    return lambda *words: json.loads(type_command("search", "--json", *words).stdout)


@pytest.mark.usefixtures("traces")
def test_the_best_match_comes_first(found):
    assert [row["snippet"] for row in found("order")] == [
        "[Order]: an [order], to [order]",
        "Count the [orders]",
    ]


@pytest.mark.usefixtures("traces")
@pytest.mark.parametrize("words", [["--below"], ["-d", "general"], ["--since", "1h", "-n", "5"]])
def test_it_has_the_filters_of_the_list(found, words):
    assert "Count the [orders]" in [row["snippet"] for row in found("order", *words)]


@pytest.mark.usefixtures("traces")
@pytest.mark.parametrize(
    "text", ['count "the', "count: orders", "(count", "count*)", "'count", "count -", "~count!"]
)
def test_what_somebody_types_is_never_an_error(found, text):
    assert [row["objective"] for row in found("--", text)] == ["Count the orders"]


@pytest.mark.usefixtures("traces")
def test_it_does_not_ask_for_text_twice(type_command):
    assert "-q" in type_command("search", "x", "-q", "y").stderr


@pytest.mark.usefixtures("traces")
def test_more_than_is_shown_is_said(type_command):
    assert type_command("search", "order", "-n", "1").stderr == "2 traces in all: -n shows more\n"


@pytest.mark.usefixtures("traces")
def test_nothing_found_can_be_a_failure(type_command):
    assert type_command("search", "unicorn").exit_code == 0
    assert type_command("search", "unicorn", "--fail-empty").exit_code == 4


@pytest.mark.usefixtures("traces")
def test_a_person_sees_the_words_in_brackets(db):
    assert "Count the [orders]" in typed("--db", str(db), "search", "order")


@pytest.mark.usefixtures("traces")
def test_several_words_need_no_quotes(found):
    assert [row["objective"] for row in found("count", "the", "--below", "orders")] == [
        "Count the orders"
    ]


@pytest.mark.usefixtures("traces")
def test_that_nothing_was_found_is_said(type_command):
    assert type_command("search", "unicorn").stderr == "nothing matches\n"
