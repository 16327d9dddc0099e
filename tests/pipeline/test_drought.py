"""That nothing comes through is said, once."""

import pytest

from kp_middleware import ReasoningTrace, Step

TOLD = "nothing leaves: none of the last 100 scored runs cleared the gate"


def trace_of(confidence):
    steps = [Step(step_id=0, type="thought", content="x"), Step(step_id=1, type="observation")]
    return ReasoningTrace.of("Ask", steps, confidence=confidence)


@pytest.fixture
def score(pulse):
    """Scores so many runs in a pipeline of their own; returns how often it was said until then."""

    def submit(count, caplog, confidence=0.5, **settings):
        kp = pulse(embedder=None, sync=True, **settings)
        for _ in range(count):
            kp.submit(trace_of(confidence))
        kp.close()
        return caplog.text.count(TOLD)

    return submit


def test_when_none_of_100_cleared_it_is_said_with_the_setting(score, caplog):
    assert score(99, caplog) == 0
    assert score(1, caplog) == 1

    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert 'KP_THRESHOLD="top 10%"' in record.message


def test_it_is_said_once_a_day_whoever_looks(score, caplog, connection):
    score(101, caplog)

    assert score(1, caplog) == 1
    assert score(250, caplog) == 1
    connection.execute("UPDATE meta SET value = value - 86401 WHERE key LIKE 'said%'")
    assert score(1, caplog) == 2


def test_a_program_says_it_at_its_100th_run_that_stays(score, caplog):
    assert score(100, caplog) == 1


def test_where_one_cleared_nothing_is_said(score, caplog):
    score(60, caplog)
    score(1, caplog, threshold=0.0)
    score(60, caplog)

    assert score(1, caplog) == 0


def test_what_is_private_and_clears_is_not_what_it_speaks_of(score, caplog):
    score(101, caplog, threshold=0.0, visibility="private")

    assert score(1, caplog) == 0
