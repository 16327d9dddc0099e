"""What may leave: by a score, by a share of the last runs, and no more than so many a day."""

from typing import NamedTuple

import pytest

from kp_middleware import Score, Settings
from kp_middleware.core.formula import Signals, Weights
from kp_middleware.core.gates import Decision, ReasonCode, gate_of
from kp_middleware.reasons import reason_text


class Past(NamedTuple):
    """A history of one domain that answers as it was told."""

    runs: int = 100
    ahead: int = 0
    bar: float = 0.5
    in_a_day: int = 0

    def standing(self, score, *, share):  # noqa: ARG002
        return self.runs, self.ahead, self.bar

    def forwarded_in_a_day(self):
        return self.in_a_day


class Told(NamedTuple):
    """A decision whose reason is worded."""

    decision: str
    reason: str
    threshold: float


def score(value):
    signals, even = Signals(0.5, 0.5, 0.5, 0.5), Weights(0.25, 0.25, 0.25, 0.25)
    return Score(value=value, signals=signals, weights=even)


def decided(gate, value, past=None):
    settings = Settings(**dict(zip(("threshold", "max_per_day"), gate, strict=False)))
    decision, reason, threshold = gate_of(settings).decide(score(value), past or Past())
    return Told(decision, reason_text(*reason), threshold)


def test_a_threshold_lets_through_what_reaches_it():
    assert decided([0.75], 0.75) == ("forward", "score 0.750 is at least 0.75", 0.75)
    assert decided([0.75], 0.7499) == ("withhold", "score 0.7499 is below 0.75", 0.75)


@pytest.mark.parametrize(
    ("threshold", "value", "reason"),
    [
        (0.7500004, 0.75, "score 0.750 is below 0.7500004"),
        (0.6880000000000002, 0.688, "score 0.688 is below 0.6880000000000002"),
        (0.6880001, 0.6880001, "score 0.6880001 is at least 0.6880001"),
    ],
)
def test_a_threshold_of_many_digits_is_told_with_all_of_them(threshold, value, reason):
    assert decided([threshold], value).reason == reason
    assert gate_of(Settings(threshold=threshold)).name == f"threshold {threshold!r}"


def test_the_best_share_goes_and_says_among_which():
    told = decided(["top 10%"], 0.6, Past(runs=200, ahead=19, bar=0.58))

    assert told == (
        "forward",
        "score 0.600 is among the top 10% of the domain's last 200 runs",
        0.58,
    )


def test_what_is_not_among_the_best_share_says_where_it_begins():
    told = decided(["top 10%"], 0.4, Past(runs=200, ahead=20, bar=0.58))

    reason = "score 0.400 is below 0.580, where the top 10% of the domain's last 200 runs begin"
    assert told == ("withhold", reason, 0.58)


def test_of_equal_scores_no_more_than_the_share_goes():
    told = decided(["top 10%"], 0.58, Past(runs=200, ahead=20, bar=0.58))

    assert told.decision == "withhold"
    assert "only as good as" in told.reason


@pytest.mark.parametrize(("words", "needed"), [("top 10%", 50), ("top 1%", 100), ("top 100%", 50)])
def test_until_enough_runs_are_known_the_protocols_threshold_holds(words, needed):
    before = decided([words], 0.74, Past(runs=needed - 1, ahead=0, bar=0.2))
    after = decided([words], 0.74, Past(runs=needed, ahead=0, bar=0.2))

    assert (before.decision, before.threshold) == ("withhold", 0.75)
    assert f"until the domain has {needed} runs, not {needed - 1}" in before.reason
    assert (after.decision, after.threshold) == ("forward", 0.2)


def test_a_day_has_room_for_so_many():
    assert decided([0.5, 20], 0.6, Past(in_a_day=19)).decision == "forward"

    told = decided([0.5, 20], 0.6, Past(in_a_day=20))

    assert told.decision == "withhold"
    assert told.reason == (
        "score 0.600 is at least 0.5, but max_per_day = 20 were let through in the last 24 hours"
    )


def test_what_is_withheld_anyway_does_not_blame_the_day():
    assert decided([0.5, 0], 0.4).reason == "score 0.400 is below 0.5"


def test_the_share_is_exact_where_its_product_is_not():
    assert 0.07 * 100 > 7

    assert decided(["top 7%"], 0.6, Past(runs=100, ahead=7)).decision == "withhold"
    assert decided(["top 7%"], 0.6, Past(runs=100, ahead=6)).decision == "forward"


def test_words_of_a_users_gate_are_a_custom_reason():
    told = Decision("withhold", "legal says no, but max_per_day = unknown", 0.1)

    assert told.reason_code == ReasonCode.CUSTOM
    assert reason_text(*told.told) == "legal says no, but max_per_day = unknown"


@pytest.mark.parametrize("code", [*ReasonCode, "of a newer version"])
def test_a_reason_without_its_arguments_is_worded_all_the_same(code):
    assert isinstance(reason_text(code, {}), str)


@pytest.mark.parametrize("code", ReasonCode)
def test_every_reason_has_its_words_also_where_its_arguments_are_those_of_an_older_file(code):
    assert reason_text(code, {"words": "as it was told then"}) == "as it was told then"
