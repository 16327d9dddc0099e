"""Real processes with one key, each with a file of traces of its own."""

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import closing

import pytest
from pipeline_helpers import sending_to, trace_of
from pydantic import SecretStr

from kp_middleware.export import Registry
from kp_middleware.locations import pacing_file
from kp_middleware.storage import PacingTable, SharedPace
from kp_middleware.testing import LocalRegistry

PROCESSES, TRACES = 4, 5
RESERVE = 10

SUBMIT = """
    import sys, time
    from kp_middleware import KnowledgePulse, ReasoningTrace, Step
    kp = KnowledgePulse(embedder=None, threshold=0, sync=True)
    for number in range(int(sys.argv[2])):
        steps = [Step(step_id=0, type="thought", content=f"{sys.argv[1]} {number}")]
        kp.submit(ReasoningTrace.of("count", steps))
"""
SEND_ALL = f"""{SUBMIT}
    while kp.flush().unsent:
        time.sleep(0.02)
    kp.close()
"""
SEND_WHAT_MAY_BE_SENT_NOW = f"""{SUBMIT}
    kp.close(timeout_s=30)
"""


@pytest.fixture
def start(tmp_path):
    """Starts a process that has its own file and shares the rest; none outlives the test."""
    started = []

    def start(name, code, registry, count=1, **environment):
        child = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(code), name, str(count)],
            env={
                **os.environ,
                "KP_DB": str(tmp_path / f"{name}.db"),
                "KP_REGISTRY_URL": registry.url,
                "KP_API_KEY": registry.api_key,
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(child)
        return child

    yield start
    [child.kill() for child in started]
    [child.communicate() for child in started]


@pytest.fixture
def pulse_for(pulse):
    """Makes pipelines that send everything to a registry."""
    always = {"sync": True, "embedder": None}
    return lambda registry, **settings: pulse(**{**sending_to(registry), **always, **settings})


def end_of(child, timeout_s=50):
    out, err = child.communicate(timeout=timeout_s)
    return child.returncode, out, err


def keeper_of(registry, *, later_s=0.0):
    """As a process has it that starts so much later."""
    known = Registry(registry.url, SecretStr(registry.api_key))
    table = PacingTable(pacing_file(), registry=known.url, agent_id=None, key_hash=known.key_hash)
    return SharedPace(
        table,
        longest_request_s=known.timeout_s,
        clock=lambda: time.time() + later_s,
    )


def paces():
    with closing(sqlite3.connect(pacing_file())) as connection:
        return connection.execute("SELECT registry, agent, pace ->> 'holder' FROM paces").fetchall()


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("limits", "count", "folders_of_their_own"),
    [
        ({"burst": PROCESSES * TRACES + RESERVE, "refill_s": 3600}, TRACES, False),
        ({"refill_s": 0.1}, 40, True),
    ],
    ids=["in one folder", "in homes that share no folder"],
)
def test_processes_with_one_key_send_everything_once_and_meet_no_429(
    start, tmp_path, limits, count, folders_of_their_own
):
    with LocalRegistry(**limits) as registry:
        children = [
            start(
                f"p{n}",
                SEND_ALL,
                registry,
                count,
                **({"XDG_STATE_HOME": str(tmp_path / f"s{n}")} if folders_of_their_own else {}),
            )
            for n in range(PROCESSES)
        ]
        ends = [end_of(child, timeout_s=150) for child in children]

    assert ends == [(0, "", "")] * PROCESSES
    assert (registry.refused_at, registry.revoked) == ((), False)
    assert len(registry.documents) == PROCESSES * count
    assert folders_of_their_own or len(registry.requests) == PROCESSES * count


@pytest.mark.slow
def test_when_the_burst_is_gone_every_process_waits_its_turn(start):
    with LocalRegistry() as registry:
        children = [
            start(f"p{n}", SEND_WHAT_MAY_BE_SENT_NOW, registry, 12) for n in range(PROCESSES)
        ]
        ends = [end_of(child) for child in children]

    assert ends == [(0, "", "")] * PROCESSES
    assert len(registry.documents) == len(registry.requests) < PROCESSES * 12


def test_who_is_killed_while_it_sends_holds_up_the_others_for_one_turn_only(start):
    victims = []
    with LocalRegistry(answers=lambda _: victims[0].kill()) as registry:
        victims.append(start("killed", SEND_ALL, registry))
        code, _, _ = end_of(victims[0])

        now, later = keeper_of(registry), keeper_of(registry, later_s=40.0)

        assert code == -signal.SIGKILL
        assert 0 < now.take() <= 1
        assert later.take() == 0


def test_while_another_process_sends_a_flush_waits_for_its_turn(pulse_for, registry):
    other = keeper_of(registry)
    other.take()
    kp = pulse_for(registry)
    kp.submit(trace_of())

    in_vain = kp.flush(timeout_s=0.2)
    threading.Timer(0.1, other.release).start()
    backlog = kp.flush(timeout_s=50)

    assert (in_vain, backlog) == ((0, 1), (0, 0))
    assert len(registry.documents) == 1


def test_closing_waits_for_the_answer_to_what_is_asked_just_now(pulse_for):
    asked, let_go = threading.Event(), threading.Event()
    with LocalRegistry(answers=lambda _: asked.set() or (let_go.wait(5) and None)) as registry:
        other = keeper_of(registry)
        other.take()
        kp = pulse_for(registry)
        kp.submit(trace_of())
        kp.flush(timeout_s=0.1)
        other.release()
        asked.wait(10)

        threading.Timer(0.1, let_go.set).start()
        kp.close()

        assert [holder for _, _, holder in paces()] == [None]
        assert len(registry.documents) == 1


def test_a_dead_key_is_asked_for_once_by_all_pipelines_and_with_a_new_one_all_is_sent(
    pulse_for, registry, caplog
):
    for _ in range(3):
        with pulse_for(registry, api_key="kp_dead") as kp:
            kp.submit(trace_of())

    assert len(registry.requests) == 1
    assert caplog.text.count("KP_API_KEY") == 3

    with pulse_for(registry) as kp:
        kp.submit(trace_of())

    assert len(registry.documents) == 4


def test_a_registry_that_answers_429_is_left_alone_by_every_pipeline(pulse_for):
    with LocalRegistry(answers=lambda _: 429) as registry:
        for _ in range(5):
            with pulse_for(registry) as kp:
                kp.submit(trace_of())

    assert len(registry.requests) == 1


def test_what_is_idle_holds_no_turn_and_tells_no_key(pulse_for, registry):
    for agent in ({}, {"agent_id": "agent-7"}):
        kp = pulse_for(registry, **agent)
        kp.submit(trace_of())
        kp.flush()

    named, known_by_its_key = sorted(agent for _, agent, _ in paces())
    assert named == "agent-7"
    assert known_by_its_key.startswith("key ")
    assert {(url, holder) for url, _, holder in paces()} == {(registry.url, None)}
    assert registry.api_key.encode() not in pacing_file().read_bytes()


def test_a_folder_that_cannot_be_written_costs_the_agent_nothing(pulse_for, registry, home, caplog):
    (home / "s").write_text("in the way")
    with pulse_for(registry) as kp:
        kp.submit(trace_of())

    assert len(registry.documents) == 1
    assert caplog.text.count("pacing.db") == 1
