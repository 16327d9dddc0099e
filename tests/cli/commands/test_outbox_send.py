"""``outbox send`` sends the queue, and says why any item remains."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from contextlib import closing

import pytest
from terminal import typed
from unsent_store import UnsentStore

from kp_middleware import KnowledgePulse, ReasoningTrace, Step
from kp_middleware.database import connect
from kp_middleware.testing import Answer, Fault, LocalRegistry

TWO_HOURS = Answer.of(
    429, {}, Retry_After="7200", X_RateLimit_Limit="30", X_RateLimit_Remaining="0"
)
QUICK = {"refill_s": 0.05}

KILLED = """
    from kp_middleware import KnowledgePulse, ReasoningTrace, Step
    kp = KnowledgePulse(embedder=None, threshold=0, sync=True)
    kp.submit(ReasoningTrace.of("ask", [Step(step_id=0, type="thought", content="so")]))
    kp.flush(timeout_s=50)
"""


@pytest.fixture
def key(monkeypatch):
    """Whoever types has the key of a registry."""

    def own(registry):
        monkeypatch.setenv("KP_REGISTRY_URL", registry.url)
        monkeypatch.setenv("KP_API_KEY", registry.api_key)

    return own


@pytest.fixture
def waiting(db, key):
    """Lets so many traces wait for a registry, which nobody has asked yet."""

    def wait(registry, count=1):
        key(registry)
        store = UnsentStore.at(db)
        with KnowledgePulse(db=db, store=store, embedder=None, threshold=0, sync=True) as kp:
            for number in range(count):
                steps = [Step(step_id=0, type="thought", content=f"thought {number}")]
                kp.submit(ReasoningTrace.of(f"ask {number}", steps))

    return wait


def states(db):
    with closing(connect(db)) as connection:
        rows = connection.execute("SELECT state, count(*) FROM outbox GROUP BY state")
        return dict(rows.fetchall())


def test_all_that_waits_is_sent_however_much_may_go_at_once(waiting, type_command, db):
    with LocalRegistry(**QUICK) as registry:
        waiting(registry, 40)

        result = type_command("outbox", "send")

    assert (result.exit_code, result.stdout) == (0, "40 sent\n")
    assert "40 take about" in result.stderr
    assert (states(db), registry.refused_at) == ({"sent": 40}, ())


def test_what_is_left_when_the_time_is_over_is_reported_and_how_long_it_would_take(
    waiting, type_command
):
    with LocalRegistry() as registry:
        waiting(registry, 25)

        result = type_command("outbox", "send", "--timeout", "2", "--json")

    counts = json.loads(result.stdout)
    assert result.exit_code == 3
    assert (counts["sent"] + counts["left"], counts["left"] > 0) == (25, True)
    assert " take about" in result.stderr
    assert "timed out: raise --timeout" in result.stderr


@pytest.mark.parametrize(
    ("answer", "words"),
    [(Fault.DEAD_KEY, "KP_API_KEY"), (TWO_HOURS, "the rate limit is exceeded (429)")],
    ids=["a dead key", "two hours' patience"],
)
def test_where_nothing_can_be_sent_in_time_it_ends_and_says_why(
    waiting, type_command, answer, words
):
    with LocalRegistry(answers=[answer]) as registry:
        waiting(registry, 2)

        result = type_command("outbox", "send", "--timeout", "3600")

    assert (result.exit_code, result.stdout) == (3, "2 left\n")
    assert words in result.stderr
    assert "timed out: raise --timeout" not in result.stderr


def test_what_is_never_accepted_is_reported_too(waiting, type_command):
    with LocalRegistry(answers=[400]) as registry:
        waiting(registry, 3)

        result = type_command("outbox", "send")

    assert (result.exit_code, result.stdout) == (3, "2 sent, 1 rejected\n")


def test_where_nothing_waits_nothing_is_asked(agent, key, type_command):
    agent("one")
    with LocalRegistry() as registry:
        key(registry)

        result = type_command("outbox", "send")

    assert (result.exit_code, result.stdout) == (0, "nothing is queued\n")
    assert registry.requests == ()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [("KP_API_KEY", "", "set KP_API_KEY"), ("KP_VISIBILITY", "private", "visibility is private")],
)
def test_without_a_key_or_for_nobody_to_see_nothing_is_sent(
    waiting, type_command, monkeypatch, name, value, words
):
    with LocalRegistry() as registry:
        waiting(registry)
        monkeypatch.setenv(name, value)

        result = type_command("outbox", "send")

    assert (result.exit_code, words in result.stderr) == (1, True)
    assert registry.requests == ()


def test_a_program_that_sends_meanwhile_shares_the_pace_and_nothing_goes_twice(
    waiting, type_command, db
):
    with LocalRegistry(**QUICK) as registry:
        waiting(registry, 40)
        with KnowledgePulse(db=db, embedder=None, threshold=0, sync=True) as kp:
            sending = threading.Thread(target=kp.flush, args=(50,))
            sending.start()

            result = type_command("outbox", "send")
            sending.join()

    assert (result.exit_code, states(db)) == (0, {"sent": 40})
    assert {*registry.times_stored.values()} == {1}
    assert registry.most_at_once == 1


def test_on_a_terminal_a_bar_says_how_far_it_has_come(waiting, db):
    with LocalRegistry(**QUICK) as registry:
        waiting(registry, 3)

        shown = typed("--db", str(db), "outbox", "send")

    assert shown.splitlines()[-1] == "3 sent"


def test_what_a_killed_program_was_sending_says_so_until_another_may(
    db, key, type_command, as_json
):
    with LocalRegistry(answers=lambda _: child[0].kill()) as registry:
        key(registry)
        child = [
            subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(KILLED)],
                env={**os.environ, "KP_DB": str(db)},
            )
        ]
        code = child[0].wait(50)

    (row,) = as_json("outbox", "list")
    told = type_command("status").stdout

    assert (code, row["state"]) == (-signal.SIGKILL, "sending")
    assert row["reason"] == (
        "being sent by another program; if that program was killed, retried at"
        f" {row['claimed_until']}"
    )
    assert "being sent by another program; if that program was killed" in " ".join(told.split())
