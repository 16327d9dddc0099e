"""A sender whose registry is down, refuses, or asks for patience."""

import logging
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr
from scripted_registry import (
    DEAD,
    HOUR_S,
    LIMITED,
    REFUSED,
    REJECTED,
    TROUBLE,
    ScriptedRegistry,
    live,
    outbox_of,
    sender_of,
)

from kp_middleware.export import OutboxItem, Registry
from kp_middleware.testing import FakeClock, LocalRegistry, Row


def most_within_an_hour(times):
    return max((sum(0 <= at - first < HOUR_S for at in times) for first in times), default=0)


@pytest.mark.parametrize("options", [{"may_write": False}, {}], ids=["403", "a dead key"])
def test_once_refused_a_key_is_not_tried_again(clock, options):
    outbox = outbox_of(clock, 5)

    with LocalRegistry(clock=clock, **options) as local:
        registry = Registry(local.url, SecretStr(local.api_key if options else "kp_dead"))
        sender = sender_of(outbox, registry, clock)
        waits = [(sender.send_due(), clock.advance(25 * HOUR_S))[0] for _ in range(5)]
        registry.close()

    assert (len(local.requests), waits) == (1, [math.inf] * 5)
    assert outbox.states() == ["pending"] * 5


def test_a_row_that_met_a_dead_key_is_due_when_the_user_has_acted(clock):
    outbox = outbox_of(clock, 1)
    sender_of(outbox, ScriptedRegistry(clock, [DEAD]), clock).send_due()

    sender_of(outbox, ScriptedRegistry(clock), clock).send_due()

    assert outbox.states() == ["sent"]
    assert outbox.rows[0].item.attempts == 0


def test_after_a_429_nothing_is_sent_for_longer_than_was_asked_and_no_attempt_counts(clock):
    outbox, registry = outbox_of(clock, 2), ScriptedRegistry(clock, [LIMITED])
    sender = sender_of(outbox, registry, clock)

    more_in_s = sender.send_due()

    assert more_in_s > 2.0
    assert len(registry.asked) == 1

    live(sender, clock)

    assert outbox.states() == ["sent", "sent"]
    assert [row.item.attempts for row in outbox.rows] == [0, 0]


@given(
    st.lists(st.sampled_from([LIMITED, LIMITED, TROUBLE, REJECTED, None]), max_size=60),
    st.floats(0, 600),
    st.floats(0, 1),
)
def test_no_three_429s_fall_within_one_hour(answers, every_s, luck):
    clock = FakeClock()
    registry = ScriptedRegistry(clock, answers)
    sender = sender_of(outbox_of(clock, 40, every_s=every_s), registry, clock, luck=luck)

    live(sender, clock, for_s=200 * HOUR_S)

    assert most_within_an_hour([at for at, answer in registry.asked if answer is LIMITED]) <= 2


@pytest.mark.parametrize("trouble", [REFUSED, TROUBLE], ids=["refused", "500"])
def test_an_outage_uses_up_no_attempts_and_everything_is_sent_after_it(clock, trouble):
    outbox, registry = outbox_of(clock, 30), ScriptedRegistry(clock, [trouble] * 100)
    sender = sender_of(outbox, registry, clock)

    live(sender, clock, for_s=5 * HOUR_S)

    assert [row.item.attempts for row in outbox.rows] == [0] * 30
    assert set(outbox.states()) == {"pending"}

    live(sender, clock)

    assert set(outbox.states()) == {"sent"}


@pytest.mark.parametrize("luck", [0.0, 1.0])
@pytest.mark.parametrize("rows", [1, 100])
def test_days_of_trouble_are_some_dozens_of_requests(clock, luck, rows):
    outbox, registry = outbox_of(clock, rows), ScriptedRegistry(clock, [REFUSED] * 5000)

    live(sender_of(outbox, registry, clock, luck=luck), clock, for_s=5 * 24 * HOUR_S)

    assert 1200 <= registry.asked[-1][0] - registry.asked[-2][0] <= HOUR_S
    assert len(registry.asked) < 5 * 24 * 3 + 12


def test_the_first_sign_of_life_ends_all_waits_of_an_outage(clock):
    outbox, registry = outbox_of(clock, 3), ScriptedRegistry(clock, [REFUSED] * 40)
    sender = sender_of(outbox, registry, clock)

    live(sender, clock)

    lives_again_at = registry.asked[40][0]
    assert outbox.states() == ["sent"] * 3
    assert registry.asked[-1][0] - lives_again_at < 10


def test_a_document_that_the_registry_chokes_on_holds_up_others_for_minutes_at_most(clock):
    outbox, registry = outbox_of(clock, 1), ScriptedRegistry(clock, chokes_on={1})
    sender = sender_of(outbox, registry, clock)
    live(sender, clock, for_s=24 * HOUR_S)

    outbox.rows.append(Row(OutboxItem(2, b"{}", "key-2"), clock()))
    live(sender, clock, for_s=150)

    assert outbox.states() == ["pending", "sent"]


def test_a_document_that_the_registry_chokes_on_does_not_hold_up_those_that_wait_with_it(clock):
    outbox, registry = outbox_of(clock, 10), ScriptedRegistry(clock, chokes_on={1})

    live(sender_of(outbox, registry, clock), clock, for_s=60)

    assert outbox.states() == ["pending"] + ["sent"] * 9


def test_a_document_that_fails_beside_others_success_is_blocked_after_eight_attempts(clock, caplog):
    outbox, registry = outbox_of(clock, 100, every_s=600), ScriptedRegistry(clock, chokes_on={1})

    live(sender_of(outbox, registry, clock), clock)

    assert outbox.states() == ["blocked"] + ["sent"] * 99
    assert outbox.rows[0].news == "retries_exhausted"
    assert "was not sent after 8 attempts" in caplog.text


@pytest.mark.parametrize(
    ("answers", "words", "remedy"),
    [
        ([REJECTED] * 3, "was not sent", "kp-middleware outbox --failed"),
        ([DEAD], "nothing more is sent", "kp-middleware outbox retry --failed"),
        ([LIMITED] * 3, "sending pauses", "no action is needed"),
        ([REFUSED, TROUBLE, REFUSED], "sending is paused", "correct KP_REGISTRY_URL"),
    ],
    ids=["rejected", "forbidden", "limited", "in trouble"],
)
def test_each_kind_of_trouble_is_reported_once_with_what_to_do(
    clock, caplog, answers, words, remedy
):
    caplog.set_level(logging.WARNING)
    sender = sender_of(outbox_of(clock, 5), ScriptedRegistry(clock, answers), clock)

    live(sender, clock)

    (record,) = caplog.records
    assert words in record.getMessage()
    assert remedy in record.getMessage()
