"""The commands of the outbox on one host, and what the others send then."""

import pytest
from pods import end, record, run_of

from kp_middleware.testing import LocalRegistry

WORD = "Bluebird"

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def registry():
    """A registry that refuses the key once."""
    with LocalRegistry(burst=10**6, refill_s=0.001, answers=[401]) as registry:
        yield registry


@pytest.fixture
def hosts(shared, registry, pods, start):
    """Two hosts; the first has queued four runs that say the word, and the key is refused."""
    hosts = pods(2, shared=shared, registry=registry, threshold=0.3)
    assert end([start(hosts[0], record_secret_word, flush_s=3)]) == [0]
    return hosts


def record_secret_word(pod, *, flush_s):
    with pod.pulse() as kp:
        for seed in range(4):
            kp.submit(run_of(seed, WORD))
        kp.flush(flush_s)


@pytest.fixture
def go_on(hosts, start):
    """A person says that the key is good again; then both hosts record and send."""

    def go_on():
        typed = hosts[0].command("outbox", "retry", "--failed")
        end([start(host, record, [f"new {host.folder}"], flush_s=10) for host in hosts])
        return typed.stderr

    return go_on


def items(ask, shared):
    return ask(
        shared,
        "SELECT state, coalesce(position(%s in convert_from(body, 'UTF8')), 0) > 0 FROM kp.outbox"
        " ORDER BY 1, 2",
        WORD,
    )


def test_what_a_person_does_on_one_host_holds_for_all(hosts, shared, registry, ask, go_on):
    (cancelled,), (retried,), (deleted,), (told,) = hosts[0].rows("SELECT id FROM traces")
    assert items(ask, shared) == [("pending", True)] * 4

    for host, words in (
        (hosts[0], ("outbox", "cancel", cancelled, retried)),
        (hosts[0], ("outbox", "retry", retried)),
        (hosts[1], ("shared", "delete", deleted)),
        (hosts[0], ("feedback", told, "--confidence", "0.77")),
    ):
        typed = host.command(*words)
        assert typed.returncode == 0, typed.stderr
    go_on()

    assert len(registry.documents) == 2 + 2
    assert {retried, told} < registry.documents.keys()
    assert registry.documents[told].outcome.confidence == 0.77
    states = dict(hosts[0].rows("SELECT id, o.state FROM outbox o JOIN traces ON seq = trace_seq"))
    assert (states[cancelled], states[deleted], states[retried]) == (
        "cancelled",
        "cancelled",
        "sent",
    )


def test_what_is_redacted_again_is_sent_in_no_other_way(hosts, shared, registry, ask, go_on):
    hosts[0].told["KP_REDACT_DENY"] = f'["{WORD}"]'
    typed = hosts[0].command("outbox", "rescan", "--force")
    assert typed.returncode == 0, typed.stderr
    assert items(ask, shared) == [("cancelled", False)] * 4

    assert "retrying the refused API key" in go_on()

    assert len(registry.documents) == 4 + 2
    assert WORD not in str(registry.documents)


def test_a_person_is_told_where_other_hosts_cannot_be(hosts):
    del hosts[0].told["KP_SHARED"]

    typed = hosts[0].command("outbox", "cancel", "@last")

    assert typed.returncode == 1
    assert "may still be sent by another host" in typed.stderr


def test_what_a_person_sends_is_counted_though_no_program_runs(hosts, registry):
    copy = str(hosts[1].folder / "copy.db")
    hosts[1].command("pull", "--db", copy)
    assert "by the hosts of the shared log" in hosts[1].command("status", "--db", copy).stdout
    hosts[0].command("outbox", "retry", "--failed")

    typed = hosts[0].command("outbox", "send", "--timeout", "60")

    assert (typed.returncode, typed.stdout) == (0, "4 sent\n"), typed.stderr
    assert len(registry.documents) == 4


def test_what_another_host_has_sent_cannot_be_cancelled(hosts, start):
    hosts[0].command("outbox", "retry", "--failed")
    assert end([start(hosts[1], record, ["another"], flush_s=30)]) == [0]

    typed = hosts[0].command("outbox", "cancel", "@last")

    assert (typed.returncode, typed.stdout) == (1, "1 sent\n"), typed.stderr
