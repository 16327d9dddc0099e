import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kp_middleware.forwarding import Pace
from kp_middleware.forwarding._pace import backoff_s

NOW = 1_790_000_000.0
HOUR_S = 3600.0


class FreeTier:
    """The registry's own bucket: 30 requests, one more per 2 s."""

    def __init__(self):
        self.tokens, self.at = 30.0, NOW

    def take(self, now):
        self.tokens = min(30.0, self.tokens + (now - self.at) / 2) - 1
        self.at = now
        return self.tokens


def spend(pace, now, times):
    for _ in range(times):
        pace = pace.spent(now)
    return pace


def tokens_left_after(idle_times_s):
    """What the registry's bucket holds after each of our requests, each made as soon as allowed."""
    pace, tier, now = Pace(), FreeTier(), NOW
    for idle_s in idle_times_s:
        now += idle_s
        now += pace.wait_s(now)
        pace = pace.spent(now)
        yield tier.take(now)


def limits_within_an_hour(asked_s, idle_s):
    """The most 429s within any hour, where each request we allow ourselves meets one."""
    pace, now, times = Pace(), NOW, []
    for retry_after_s, extra_s in zip(asked_s, idle_s, strict=True):
        now += pace.wait_s(now) + extra_s
        pace = pace.spent(now).limited(now, retry_after_s)
        times.append(now)
    return max(sum(0 <= at - first < HOUR_S for at in times) for first in times)


def test_at_first_nothing_has_to_wait():
    assert Pace().wait_s(NOW) == 0


def test_a_burst_may_be_spent_at_once():
    pace = spend(Pace(burst=20), NOW, times=19)

    assert pace.wait_s(NOW) == 0


def test_after_the_burst_each_waits_for_its_turn():
    pace = spend(Pace(burst=20, interval_s=2.2), NOW, times=20)

    assert pace.wait_s(NOW) == pytest.approx(2.2)
    assert pace.wait_s(NOW + 2.3) == 0


def test_an_idle_hour_saves_up_no_more_than_one_burst():
    pace = spend(Pace(burst=20, interval_s=2.2), NOW, times=20)

    pace = spend(pace, NOW + HOUR_S, times=20)

    assert pace.wait_s(NOW + HOUR_S) == pytest.approx(2.2)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=200))
def test_the_free_tier_is_never_used_up(idle_times_s):
    assert min(tokens_left_after(idle_times_s)) >= 0


def test_after_a_429_the_wait_is_longer_than_was_asked():
    pace = Pace().limited(NOW, retry_after_s=60.0)

    assert 60 < pace.wait_s(NOW) < 120


def test_after_a_429_the_burst_is_gone_too():
    pace = Pace(interval_s=2.2).limited(NOW, retry_after_s=2.0)
    resumed_at = NOW + pace.wait_s(NOW)

    pace = pace.spent(resumed_at)

    assert pace.wait_s(resumed_at) == pytest.approx(2.2)


def test_after_a_second_429_within_the_hour_the_wait_is_an_hour():
    pace = Pace().limited(NOW, retry_after_s=2.0)

    pace = pace.limited(NOW + 3599, retry_after_s=2.0)

    assert pace.wait_s(NOW + 3599) > HOUR_S


def test_a_429_an_hour_later_is_a_first_one_again():
    pace = Pace().limited(NOW, retry_after_s=2.0)

    pace = pace.limited(NOW + 3601, retry_after_s=2.0)

    assert pace.wait_s(NOW + 3601) < 60


@given(
    st.lists(
        st.tuples(st.floats(0, 90_000), st.floats(0, 2 * HOUR_S)), min_size=3, max_size=50
    ).map(lambda pairs: zip(*pairs, strict=True))
)
def test_no_three_429s_fall_within_one_hour(pairs):
    asked_s, idle_s = pairs

    assert limits_within_an_hour(asked_s, idle_s) <= 2


def test_after_forbidden_nothing_is_sent_until_the_user_acts():
    pace = Pace().forbidden()

    assert pace.wait_s(NOW + 365 * 24 * HOUR_S) == math.inf


def test_trouble_pauses_all_sending():
    pace = Pace().failed(NOW, pause_s=4.0)

    assert pace.wait_s(NOW) == 4.0
    assert pace.wait_s(NOW + 4.0) == 0


def test_trouble_does_not_shorten_a_longer_pause():
    pace = Pace().limited(NOW, retry_after_s=600.0)

    pace = pace.failed(NOW, pause_s=4.0)

    assert pace.wait_s(NOW) > 600


def test_failures_are_counted_until_an_answer_comes():
    pace = Pace().failed(NOW, pause_s=1.0).failed(NOW, pause_s=1.0)

    answered = pace.answered()

    assert (pace.failures, pace.answering) == (2, False)
    assert (answered.failures, answered.answering) == (0, True)


def test_a_clock_that_is_set_back_makes_the_wait_longer_not_shorter():
    pace = spend(Pace(), NOW, times=20)

    assert pace.wait_s(NOW - 60) >= pace.wait_s(NOW) + 60


@given(st.integers(1, 10**9), st.floats(0, 1))
def test_a_backoff_is_from_two_seconds_to_five_minutes(failures, luck):
    assert 2 <= backoff_s(failures, luck) <= 300


@given(st.integers(1, 7), st.floats(0, 1), st.floats(0, 1))
def test_a_backoff_grows_until_it_reaches_its_bound(failures, luck, luck_2):
    assert backoff_s(failures, luck) < backoff_s(failures + 1, luck_2)
