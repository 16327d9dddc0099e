"""Gates: a score, a share on any stream of runs, and a daily limit."""

import math
from itertools import accumulate
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kp_middleware import Decision, Score, Settings
from kp_middleware.core.evaluation import Ending, RunFacts
from kp_middleware.core.formula import PROFILES, Nearest, Shape, Signals, Weights
from kp_middleware.core.gates import WARM_UP, Ranking, ReasonCode, ScoredRuns, SettingsGate, choose
from kp_middleware.reasons import reason_text


class Past:
    """A history of one domain: its last runs by rank key, the lowest first, of which some went."""

    rank_key = 0.0

    def __init__(self, keys=(), *, gone=0, credit=0.0, in_a_day=0):
        self.credit, self.in_a_day = credit, in_a_day
        self.runs = [(key, place >= len(keys) - gone) for place, key in enumerate(keys)]

    def ranking(self, gate, last):  # noqa: ARG002
        ranking = Ranking(last)
        for key, gone in self.runs:
            ranking.add(key, chosen=gone, credit=self.credit)
        return ranking

    def forwarded_in_a_day(self):
        return self.in_a_day


HUNDRED = [place / 100 for place in range(100)]


class WordedDecision(NamedTuple):
    """A decision whose reason is worded."""

    decision: str
    reason: str
    threshold: float


def score(value):
    signals, even = Signals(0.5, 0.5, 0.5, 0.5), Weights(0.25, 0.25, 0.25, 0.25)
    return Score(value=value, signals=signals, weights=even)


def decided(gate, value, past=None):
    settings = Settings(**dict(zip(("threshold", "max_per_day"), gate, strict=False)))
    decision, reason, threshold, *_ = settings.gate.decide(score(value), past or Past())
    return WordedDecision(decision, reason_text(*reason), threshold)


@pytest.mark.parametrize(
    ("threshold", "value", "decision", "reason"),
    [
        (0.75, 0.75, "forward", "score 0.750 is at least 0.75"),
        (0.75, 0.7499, "withhold", "score 0.7499 is below 0.75"),
        (0.7500004, 0.75, "withhold", "score 0.750 is below 0.7500004"),
        (0.6880000000000002, 0.688, "withhold", "score 0.688 is below 0.6880000000000002"),
        (0.6880001, 0.6880001, "forward", "score 0.6880001 is at least 0.6880001"),
    ],
)
def test_a_threshold_lets_through_what_reaches_it_and_tells_all_its_digits(
    threshold, value, decision, reason
):
    assert decided([threshold], value) == (decision, reason, threshold)
    assert SettingsGate(threshold).name == f"threshold {threshold!r}"


def ranked(share, key, past):
    past.rank_key = key
    return decided([share], 0.5, past)


BEST = "the best 10% of the domain's last 100 runs"
SO_FAR = "8 of the 100 were chosen; top 10% means 10"
AMONG = f"rank 0.900 is among {BEST}, which begin at 0.900: {SO_FAR}"
BELOW = f"rank 0.400 is below 0.900, where {BEST} begin: {SO_FAR}"


@pytest.mark.parametrize(
    ("share", "key", "past", "decision", "reason"),
    [
        pytest.param("top 10%", 0.9, Past(HUNDRED, gone=8), "forward", AMONG, id="among"),
        pytest.param("top 10%", 0.4, Past(HUNDRED, gone=8), "withhold", BELOW, id="below"),
        pytest.param(
            "top 10%",
            0.5,
            Past([0.5] * 100, gone=10),
            "withhold",
            "ties with",
            id="of equal runs no more than the share goes",
        ),
        pytest.param(
            "top 10%",
            0.7,
            Past(HUNDRED, credit=3.0),
            "forward",
            "the best 42.4% of the domain's last 100 runs",
            id="where runs are owed more may go",
        ),
        pytest.param("top 10%", 0.0, Past(HUNDRED, credit=5.0), "forward", "", id="then all go"),
        pytest.param("top 10%", 1.0, Past(HUNDRED, credit=-5.0), "withhold", "", id="or none"),
        pytest.param(
            "top 7%",  # 0.07 * 100 > 7
            0.6,
            Past([*[0.1] * 93, *[0.8] * 7]),
            "withhold",
            "",
            id="the share is exact where its product is not",
        ),
        pytest.param("top 7%", 0.6, Past([*[0.1] * 94, *[0.8] * 6]), "forward", "", id="six ahead"),
    ],
)
def test_the_best_share_goes_and_says_among_which(share, key, past, decision, reason):
    told = ranked(share, key, past)

    assert told.decision == decision
    assert reason in told.reason


def test_until_enough_runs_are_known_the_protocols_threshold_holds():
    before = decided(["top 10%"], 0.74, Past([0.2] * 9))
    after = ranked("top 10%", 0.3, Past([0.2] * 10))

    assert (before.decision, before.threshold) == ("withhold", 0.75)
    assert "until the domain has 10 runs (it had 9)" in before.reason
    assert (after.decision, after.threshold) == ("forward", 0.2)


def test_a_day_has_room_for_so_many_and_is_not_blamed_for_what_is_withheld_anyway():
    assert decided([0.5, 20], 0.6, Past(in_a_day=19)).decision == "forward"
    assert decided([0.5, 20], 0.6, Past(in_a_day=20))[:2] == (
        "withhold",
        "score 0.600 is at least 0.5, but max_per_day = 20 were forwarded in the last 24 hours",
    )
    assert decided([0.5, 0], 0.4).reason == "score 0.400 is below 0.5"


def test_a_daily_limit_does_not_use_up_less_of_the_share():
    past = Past(HUNDRED, in_a_day=20)
    past.rank_key = 0.99

    told = SettingsGate("top 10%", 20).decide(score(0.5), past)

    assert told.decision == "withhold"
    assert told.chosen
    assert told.credit == pytest.approx(-0.9)


def test_words_of_a_users_gate_are_a_custom_reason():
    told = Decision("withhold", "legal says no, but max_per_day = unknown", 0.1)

    assert told.reason_code == ReasonCode.CUSTOM
    assert reason_text(*told.structured_reason) == "legal says no, but max_per_day = unknown"


@pytest.mark.parametrize("code", [*ReasonCode, "of a newer version"])
def test_a_reason_has_words_without_its_arguments_and_with_those_of_an_older_file(code):
    assert isinstance(reason_text(code, {}), str)
    if code in [*ReasonCode]:
        assert reason_text(code, {"words": "as it was told then"}) == "as it was told then"


@pytest.mark.parametrize(
    ("success", "source", "p"),
    [
        *((True, "said", 0.4), (True, "assumed", 0.4), (False, "said", 0.0)),
        *((True, "feedback", 1.0), (True, "extracted", 1.0), (False, "verdict", 0.0)),
    ],
)
def test_an_agent_that_says_it_succeeded_is_not_believed(success, source, p):
    assert Ending(success, 0.9, source).p_success(0.4) == p


WEIGHTS = Weights(0.2, 0.3, 0.2, 0.3)


def chosen(keys, share, score=0.0):
    """Return whether each run is chosen, by its key; 0 is not enough for the warm-up."""
    return SettingsGate(f"top {100 * share:g}%").chosen(ScoredRuns([score] * len(keys), keys, []))


def largest_error(went, share):
    """Return the error of the number of chosen runs, at the worst end."""
    return max(abs(off) for off in accumulate(gone - share for gone in went))


def spread(went, share):
    """Return the error in the worst stretch of runs."""
    offs = [0.0, *accumulate(gone - share for gone in went)]
    return max(offs) - min(offs)


def longest_gap(went):
    return max(map(len, "".join("x" if gone else " " for gone in went).split("x")))


unit = st.floats(0.0, 1.0, allow_nan=False)
count = st.integers(30, 1000)
shares = st.sampled_from([0.01, 0.02, 0.05, 0.1, 0.2, 1 / 3, 0.5])


@st.composite
def streams(draw):
    """Keys of runs: alike, drifting, periodic, in bursts, or of two agents."""
    runs, chance = draw(count), draw(st.randoms(use_true_random=False))
    kind = draw(st.sampled_from(sorted(KINDS)))
    return [min(1.0, max(0.0, KINDS[kind](place / runs, place, chance))) for place in range(runs)]


KINDS = {
    "alike": lambda _, __, chance: chance.random(),
    "decaying": lambda part, _, chance: math.exp(-5 * part) * (0.8 + 0.2 * chance.random()),
    "strictly falling": lambda part, *_: 1 - part,
    "strictly rising": lambda part, *_: part,
    "drifting": lambda part, _, chance: part / 2 + chance.random() / 2,
    "periodic": lambda _, place, chance: math.sin(place / 16) / 2 + 0.5 + chance.random() / 100,
    "all equal": lambda *_: 0.3,
    "two values": lambda _, __, chance: chance.choice((0.2, 0.7)),
    "a burst": lambda part, _, chance: chance.random() / 2 + (0.4 < part < 0.5) / 2,
    "a step down": lambda part, _, chance: chance.random() / 2 + (part < 0.5) / 2,
    "two agents": lambda _, place, chance: (0.5 if place % 3 else 0.0) + chance.random() / 3,
}


@given(streams(), shares)
@settings(max_examples=75, deadline=None)
def test_a_share_holds_on_any_stream(keys, share):
    went = chosen(keys, share)

    after = went[WARM_UP:]
    assert not any(went[:WARM_UP])
    assert largest_error(went, share) <= 6
    assert spread(after, share) < 11
    assert longest_gap(after) <= 11 / share


@pytest.mark.parametrize("share", [0.01, 0.05, 0.1, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("score", [0.0, 1.0], ids=["none", "all"])
@pytest.mark.parametrize("change", [-1, 1], ids=["falling", "rising"])
def test_a_share_holds_after_a_warm_up_that_let_through(score, change, share):
    keys = [0.5 + change * place / 6000 for place in range(2400)]

    after = chosen(keys, share, score)[WARM_UP:]

    assert spread(after, share) < 11
    assert longest_gap(after) <= 11 / share


@given(st.lists(unit, min_size=WARM_UP, max_size=400), shares)
@settings(max_examples=75, deadline=None)
@example([0.4] * 110, 0.1)
def test_a_share_holds_for_any_keys(keys, share):
    assert largest_error(chosen(keys, share), share) <= 6


@given(st.lists(st.tuples(unit, st.booleans()), max_size=60), unit, st.integers(1, 20))
def test_a_ranking_counts_the_last_runs(runs, key, last):
    ranking = Ranking(last)
    for earlier, gone in runs:
        ranking.add(earlier, chosen=gone)

    kept = runs[-last:]
    assert len(ranking) == len(kept)
    assert ranking.chosen_count == sum(gone for _, gone in kept)
    assert ranking.runs_ahead(key) == sum(
        earlier > key or (earlier == key and gone) for earlier, gone in kept
    )


def test_the_protocols_threshold_holds_in_the_warm_up():
    assert choose(0.2, credit=0.0, runs=9, ahead=9, score=0.75)[0]
    assert not choose(0.2, credit=0.0, runs=9, ahead=0, score=0.74)[0]


@given(
    st.lists(unit | st.sampled_from([0.2, 0.5, 0.8]), min_size=90, max_size=300),
    st.sampled_from(["top 5%", "top 20%", "top 50%", "top 100%"]),
)
def test_a_replay_chooses_what_the_gate_chose_run_by_run(keys, share):
    gate, past, live = SettingsGate(share), Past(), []
    ranking = Ranking(gate.window)
    past.ranking = lambda gate, last: ranking  # noqa: ARG005
    for key in keys:
        past.rank_key = key
        decision = gate.decide(score(key), past)
        ranking.add(key, chosen=decision.chosen, credit=decision.credit)
        live.append(decision.chosen)

    assert gate.chosen(ScoredRuns(keys, keys, [])) == live


def run_of(signals, p_success=None):
    shape = Shape(4, frozenset({"thought"}), 2, 0)
    return RunFacts(shape, Ending(True, 0.8), measured=signals, p_success=p_success)


def test_a_confirmed_run_ranks_before_an_unknown_one_and_that_before_a_failure():
    def key(p_success):
        return run_of(Signals(0.5, 0.3, 0.5, 0.8), p_success).rank_key(WEIGHTS)

    assert key(1.0) > key(0.6) > key(None) == key(0.5) > key(0.0) == 0.0


@pytest.mark.parametrize("worse", [Signals(0.9, 0.3, 0.5, 0.8), Signals(0.5, 0.2, 0.5, 0.8)])
def test_the_calmer_and_newer_of_two_runs_ranks_higher(worse):
    better = Signals(0.5, 0.3, 0.5, 0.8)
    keys = [run_of(signals).rank_key(WEIGHTS) for signals in (better, worse)]

    assert keys[0] > keys[1]


@pytest.mark.parametrize("weights", PROFILES.values(), ids=PROFILES)
def test_a_new_run_of_a_single_thought_ranks_after_an_old_one_that_did_something(weights):
    def key(shape, similarity):
        nearest = Nearest("kp:trace:1", similarity)
        return RunFacts(shape, Ending(True, 0.8), nearest).rank_key(weights)

    thought = Shape(1, frozenset({"thought"}), 0, 0)
    usual = Shape(12, frozenset({"thought", "tool_call", "observation"}), 3, 0)

    assert key(usual, 0.9) > key(thought, 0.0) > key(thought, 0.5)
