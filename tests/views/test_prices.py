"""Costs of runs, by the user's prices of the models in their steps."""

import json

import pytest
from sample_runs import put, run, step

from kp_middleware.database import connect
from kp_middleware.locations import prices_file
from kp_middleware.storage import History
from kp_middleware.views.prices import read_prices

PRICES = """
currency = "EUR"
[models."big-1"]
input = 2.5
output = 10
[models.small]
input = 0.5
output = 1
"""


@pytest.fixture
def prices_are():
    """Writes ``prices.toml``."""

    def write(text):
        prices_file().parent.mkdir(parents=True, exist_ok=True)
        prices_file().write_text(text)

    return write


@pytest.fixture
def called(db):
    """Records a run that used these tokens in all, and these of its calls: model, in, out."""

    def called(name, tokens, *calls, model="big-1"):
        put(db, run(name, *(step("thought", content="hm") for _ in calls or [0]), id=name))
        with connect(db) as connection:
            connection.execute(
                "UPDATE traces SET model = ?, input_tokens = ?, output_tokens = ? WHERE id = ?",
                (model, *tokens, f"kp:trace:{name}"),
            )
            for place, call in enumerate(calls):
                connection.execute(
                    "UPDATE steps SET model = ?, input_tokens = ?, output_tokens = ?"
                    " WHERE step_id = ? AND trace_seq = (SELECT max(seq) FROM traces)",
                    (*call, place),
                )
            connection.commit()

    return called


@pytest.fixture
def costs(db):
    def costs():
        prices = read_prices()
        with History.open(db) as history:
            return prices.costs(history, [one.seq for one in history.runs(limit=9)])

    return costs


@pytest.mark.parametrize(
    ("tokens", "calls", "cost"),
    [
        pytest.param((1000, 100), [], 0.0035, id="told for the run alone"),
        pytest.param((1000, 100), [("small", 1000, 100)], 0.0006, id="by its calls"),
        pytest.param((1000, 100), [("small", 600, 0)], 0.0023, id="what no call told"),
        pytest.param((None, None), [("small", 0, 100)], 0.0001, id="told for calls alone"),
        pytest.param((1000, 100), [("other", 5, 5)], None, id="a call without a price"),
        pytest.param((None, None), [], None, id="no tokens"),
    ],
)
def test_a_run_costs_what_its_calls_do(prices_are, called, costs, tokens, calls, cost):
    prices_are(PRICES)
    called("one", tokens, *calls)

    assert costs().get(1) == (None if cost is None else pytest.approx(cost))


def test_without_prices_nothing_costs_anything(called, costs):
    called("one", (1000, 100))

    assert costs() == {}
    assert read_prices().problem == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[models", "Expected"),
        ("models = 3", "models must be a table"),
        ("[models.a]\ninput = 1", "a needs input and output"),
        ("[models.a]\ninput = -1\noutput = 1", "a needs input and output"),
        ("[models.a]\ninput = nan\noutput = 1", "a needs input and output"),
        ("[models.a]\ninput = '1'\noutput = 1", "a needs input and output"),
        ("currency = 3", "currency must be a short text"),
    ],
)
def test_a_file_that_cannot_be_read_is_reported_and_costs_nothing(prices_are, text, why):
    prices_are(text)

    prices = read_prices()

    assert prices.models == {}
    assert str(prices_file()) in prices.problem
    assert why in prices.problem


def test_commands_print_costs_where_there_are_prices(prices_are, called, type_command):
    called("one", (1000, 100))
    assert "cost" not in json.loads(type_command("list", "--json").stdout)[0]

    prices_are(PRICES)

    for shown in (
        json.loads(type_command("list", "--json").stdout)[0],
        json.loads(type_command("show", "one", "--json").stdout),
    ):
        assert (shown["cost"], shown["currency"]) == (0.0035, "EUR")


def test_a_command_says_once_that_the_prices_cannot_be_read(prices_are, called, type_command):
    called("one", (1000, 100))
    prices_are("models = 3")

    said = type_command("list", "--json")

    assert said.stderr.count("no costs are shown") == 1
    assert "cost" not in json.loads(said.stdout)[0]
