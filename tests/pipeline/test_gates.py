"""Each gate's decisions are the same for all processes that share the file."""

import math
import sqlite3

import numpy as np
import pytest
from pipeline_helpers import trace_of

from kp_middleware import Decision
from kp_middleware.core.gates import Reason, ReasonCode
from kp_middleware.reasons import reason_text

SURE = 0.9


@pytest.fixture
def scored(pulse):
    """Scores runs of these confidences, the most of the score, in a pipeline that ends."""

    def submit(confidences, **settings):
        kp = pulse(embedder=None, sync=True, **settings)
        for confidence in confidences:
            kp.submit(trace_of(domain="medical", confidence=confidence))
        kp.close()

    return submit


def rows(connection):
    found = connection.execute(
        "SELECT decision, gate, threshold, score, reason_code, reason_args FROM traces ORDER BY seq"
    )
    return [(*decided, reason_text(code, args)) for *decided, code, args in found]


def test_two_pipelines_share_one_day_s_room(scored, connection):
    scored([SURE] * 3, threshold=0.1, max_per_day=4)
    scored([SURE] * 3, threshold=0.1, max_per_day=4)

    decisions = [row[0] for row in rows(connection)]

    assert decisions == ["forward"] * 4 + ["withhold"] * 2
    assert rows(connection)[-1][1] == "threshold 0.1, at most 4 a day"
    assert "max_per_day = 4 were forwarded" in rows(connection)[-1][4]


class OnlyEven:
    """A rule of a user's own."""

    name = "every other"

    def __init__(self):
        self.asked = 0

    def decide(self, score, history):  # noqa: ARG002
        self.asked += 1
        history.ranking(self.name, 100).runs_ahead(history.rank_key)
        if self.asked % 2:
            return Decision("withhold", "odd", 0.5)
        return Decision("forward", "even", 0.5)


def test_a_rule_of_the_user_s_own_decides(scored, connection):
    scored([SURE] * 2, gate=OnlyEven())

    assert [row[:3] for row in rows(connection)] == [
        ("withhold", "every other", 0.5),
        ("forward", "every other", 0.5),
    ]


class Broken:
    name = "broken"

    def __init__(self, answer):
        self.answer = answer

    def decide(self, score, history):  # noqa: ARG002
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    "answer",
    [
        *(KeyError("x"), SystemExit(1), sqlite3.OperationalError("no such table: mine")),
        sqlite3.DatabaseError("database disk image is malformed"),
        *(None, True, Decision("perhaps", "", 0.5), Decision("forward", "", math.nan)),
        *(Decision("forward", "", 7), Decision("forward", "", "half")),
        Decision("forward", Reason("mine", {}), 0.5),
        Decision("forward", Reason(ReasonCode.CUSTOM, {"words": math.nan}), 0.5),
    ],
    ids=repr,
)
def test_what_a_gate_fails_to_decide_stays_here_with_one_warning(
    scored, connection, caplog, answer
):
    scored([SURE] * 2, gate=Broken(answer))

    assert {row[0] for row in rows(connection)} == {"withhold"}
    assert all(row[4].startswith("the gate failed: ") for row in rows(connection))
    assert caplog.text.count("the gate failed") == 1


def test_what_a_gate_tells_is_stored_as_far_as_it_can_be(scored, connection):
    told = Broken(Decision("forward", "all \ud800 right", np.float32(0.5)))
    told.name = "mine"
    scored([SURE], gate=told)

    assert [row[:3] for row in rows(connection)] == [("forward", "mine", 0.5)]
    assert rows(connection)[0][4].startswith("all ? right")


def test_a_run_may_name_any_year(pulse, connection):
    kp = pulse(embedder=None, sync=True, threshold="top 10%")

    kp.submit(trace_of(confidence=SURE, metadata={"created_at": "0001-01-01T00:00:00Z"}))

    assert "used until the domain has" in rows(connection)[0][4]


TOLD = "no recent run was forwarded: none of the last 100 scored runs cleared the gate"


def test_that_none_of_100_cleared_is_said_with_the_setting_and_once_a_day_whoever_looks(
    scored, caplog, connection
):
    scored([0.5] * 100)

    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert TOLD in record.message
    assert 'KP_THRESHOLD="top 10%"' in record.message

    scored([0.5] * 250)
    assert caplog.text.count(TOLD) == 1

    connection.execute("UPDATE meta SET value = value - 86401 WHERE key LIKE 'said%'")
    scored([0.5])
    assert caplog.text.count(TOLD) == 2


def test_where_one_cleared_or_all_that_cleared_is_private_nothing_is_said(scored, caplog):
    scored([0.5] * 101, threshold=0.0, visibility="private")
    scored([0.5] * 60)
    scored([0.5], threshold=0.0)
    scored([0.5] * 61)

    assert TOLD not in caplog.text
