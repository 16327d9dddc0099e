import math
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kp_middleware.rate_limit import Allowance, Pace, backoff_s, burst_at

NOW = 1_790_000_000.0
HOUR_S = 3600.0
DAY_S = 24 * HOUR_S


def spend(pace, now, times):
    for _ in range(times):
        pace = pace.spent(now)
    return pace


def test_a_burst_may_be_spent_at_once_and_then_each_waits_for_its_turn():
    almost = spend(Pace(), NOW, times=19)
    pace = spend(almost, NOW, times=1)
    after_an_idle_hour = spend(pace, NOW + HOUR_S, times=20)

    assert Pace().wait_s(NOW) == almost.wait_s(NOW) == pace.wait_s(NOW + 2.3) == 0
    assert pace.wait_s(NOW) == pytest.approx(2.2)
    assert after_an_idle_hour.wait_s(NOW + HOUR_S) == pytest.approx(2.2)
    assert pace.wait_s(NOW - 60) >= pace.wait_s(NOW) + 60  # by a clock that was set back


def test_after_a_429_the_wait_is_longer_than_was_asked_and_the_burst_is_gone():
    pace = Pace(interval_s=2.2).limited(NOW, retry_after_s=60.0)
    wait_s = pace.wait_s(NOW)

    assert 60 < wait_s < 120
    assert pace.spent(NOW + wait_s).wait_s(NOW + wait_s) == pytest.approx(2.2)


@pytest.mark.parametrize(
    "before",
    [
        lambda: Pace().limited(NOW, retry_after_s=2.0),
        lambda: Pace().limited(NOW, retry_after_s=2.0).answered(),
        lambda: Pace().spent(NOW).answer_lost().spent(NOW),
    ],
    ids=["a 429", "a 429 and an answer", "an answer that nobody saw"],
)
def test_after_a_second_429_within_the_hour_the_wait_is_an_hour(before):
    second = before().limited(NOW + 3599, retry_after_s=2.0)
    an_hour_later = before().limited(NOW + 3601, retry_after_s=2.0)

    assert second.wait_s(NOW + 3599) > HOUR_S
    assert an_hour_later.wait_s(NOW + 3601) < 60


def test_after_forbidden_nothing_is_sent_until_the_key_is_taken_again():
    pace = Pace().forbidden(NOW)

    assert pace.wait_s(NOW) == pace.wait_s(NOW + 365 * DAY_S) == math.inf
    assert pace.plausible(NOW - 365 * DAY_S).wait_s(NOW) == math.inf
    assert pace.answered().wait_s(NOW) == 0


@pytest.mark.parametrize(
    "pace",
    [Pace(interval_s=2.2).spent(NOW).answer_lost(), Pace(interval_s=2.2).without_burst(NOW)],
    ids=["lost", "without a burst"],
)
def test_an_answer_that_nobody_saw_costs_the_burst_and_no_time(pace):
    assert pace.wait_s(NOW) == 0
    assert pace.spent(NOW).wait_s(NOW) == pytest.approx(2.2)


@pytest.mark.parametrize(
    "first",
    [lambda pace: pace.limited(NOW, 2.0), lambda pace: pace.answer_lost()],
    ids=["a 429", "another that nobody saw"],
)
def test_an_answer_that_nobody_saw_may_be_the_second_429_of_an_hour(first):
    pace = first(Pace().spent(NOW)).spent(NOW + 60).answer_lost()

    assert HOUR_S - 60 < pace.wait_s(NOW + 60) < HOUR_S
    assert pace.problem == "unheard"


@given(
    st.lists(
        st.tuples(st.booleans(), st.floats(0, 90_000), st.floats(0, 2 * HOUR_S)),
        min_size=3,
        max_size=50,
    )
)
def test_no_three_that_may_have_been_429s_fall_within_one_hour(requests):
    pace, now, times = Pace(), NOW, []
    for heard, retry_after_s, idle_s in requests:
        now += pace.wait_s(now) + idle_s
        pace = pace.spent(now)
        pace = pace.limited(now, retry_after_s) if heard else pace.answer_lost()
        times.append(now)

    assert min(third - first for first, third in zip(times, times[2:], strict=False)) >= HOUR_S


def test_a_later_answer_clears_up_what_nobody_saw():
    pace = Pace().spent(NOW).answer_lost().spent(NOW + 60).answered()

    assert pace.spent(NOW + 120).answer_lost().wait_s(NOW + 120) == 0


@pytest.mark.parametrize(
    "event",
    [
        lambda pace: pace.answered(),
        lambda pace: pace.failed(NOW, 1.0),
        lambda pace: pace.limited(NOW, 1.0),
        lambda pace: pace.forbidden(NOW),
        lambda pace: pace.cancelled(),
    ],
    ids=["answered", "failed", "limited", "forbidden", "not made after all"],
)
def test_a_request_that_was_answered_cannot_be_lost(event):
    pace = event(Pace().spent(NOW))

    assert pace.answer_lost() == pace


instants = st.floats(-1e9, 1e9)
paces = st.builds(
    Pace,
    full_at=instants,
    paused_until=instants,
    limited_at=instants,
    asked_at=instants,
    lost_at=instants,
    stopped_at=instants,
    failures=st.integers(0, 9),
    answering=st.booleans(),
)


@given(paces.map(Pace.answered), instants)
def test_no_clock_holds_up_sending_for_longer_than_a_day_and_the_margin(pace, now):
    assert pace.plausible(now).wait_s(now) <= DAY_S + 33


@given(st.lists(st.sampled_from(["spent", "answered", "failed", "limited", "forbidden"])))
def test_what_came_about_on_one_clock_is_plausible(events):
    pace, now = Pace(), NOW
    for event in events:
        now += min(pace.wait_s(now), DAY_S)
        pace = pace.spent(now)
        asked = {"failed": (now, DAY_S), "limited": (now, DAY_S), "forbidden": (now,)}
        pace = pace if event == "spent" else getattr(pace, event)(*asked.get(event, ()))

        assert pace.plausible(now) == pace


paces_at_any_rate = st.builds(replace, paces, interval_s=st.floats(0.1, 100))


@given(paces_at_any_rate, paces_at_any_rate, instants)
def test_the_stricter_of_two_paces_waits_for_both(pace, other, now):
    both = pace.stricter(other)

    assert both.wait_s(now) >= max(pace.wait_s(now), other.wait_s(now))
    assert both == other.stricter(pace)


@given(st.lists(st.integers(1, 1000), max_size=5), st.integers(1, 1000))
def test_a_burst_depends_on_the_last_rate_alone(before, last):
    pace = Pace()
    for per_minute in (*before, last):
        pace = pace.with_allowance(NOW, Allowance(per_minute=per_minute))

    assert pace.interval_s == Pace().with_allowance(NOW, Allowance(per_minute=last)).interval_s
    assert burst_at(pace.interval_s) >= 1


def test_trouble_pauses_all_sending_and_shortens_no_longer_pause():
    pace = Pace().failed(NOW, pause_s=4.0)
    longer = Pace().limited(NOW, retry_after_s=600.0).failed(NOW, pause_s=4.0)

    assert (pace.wait_s(NOW), pace.wait_s(NOW + 4.0)) == (4.0, 0)
    assert longer.wait_s(NOW) > 600


def test_failures_are_counted_until_an_answer_comes():
    pace = Pace().failed(NOW, pause_s=1.0).failed(NOW, pause_s=1.0)

    answered = pace.answered()

    assert (pace.failures, pace.answering) == (2, False)
    assert (answered.failures, answered.answering) == (0, True)


@given(st.integers(1, 10**9), st.floats(0, 1), st.floats(0, 1))
@example(10**9, 1.0, 0.0)
def test_a_backoff_grows_from_two_seconds_to_an_hour(failures, luck, luck_2):
    few = 1 + failures % 10

    assert 2 <= backoff_s(failures, luck) <= HOUR_S
    assert backoff_s(few, luck) < backoff_s(few + 1, luck_2)
