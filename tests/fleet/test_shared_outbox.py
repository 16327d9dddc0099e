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
    """Two hosts; the first has queued a run that says the word, and the key is refused."""
    hosts = pods(2, shared=shared, registry=registry, threshold=0.3)
    assert end([start(hosts[0], record_the_word, flush_s=3)]) == [0]
    return hosts


def record_the_word(pod, *, flush_s):
    with pod.pulse() as kp:
        kp.submit(run_of(1, WORD))
        kp.flush(flush_s)


def items(ask, shared):
    return ask(
        shared,
        "SELECT state, coalesce(position(%s in convert_from(body, 'UTF8')), 0) > 0 FROM kp.outbox",
        WORD,
    )


def try_the_key_again(host):
    """A person says that it is good again."""
    return host.command("outbox", "retry", "--failed")


def test_a_key_that_is_good_again_is_tried_by_all(hosts, shared, registry, start, ask):
    assert items(ask, shared) == [("pending", True)]

    typed = try_the_key_again(hosts[0])
    end([start(hosts[1], record, [2], flush_s=10)])

    assert "retrying the refused API key" in typed.stderr
    assert len(registry.documents) == 2


def test_what_is_cancelled_on_its_host_is_sent_by_no_other(hosts, shared, registry, start, ask):
    typed = hosts[0].command("outbox", "cancel", "@last")
    told = items(ask, shared)
    try_the_key_again(hosts[0])
    end([start(hosts[1], record, [2], flush_s=10)])

    assert typed.returncode == 0, typed.stderr
    assert told == [("cancelled", False)]
    assert len(registry.documents) == 1


def test_what_is_deleted_in_the_log_waits_nowhere(hosts, registry, start):
    [(id,)] = hosts[0].rows("SELECT id FROM traces")
    hosts[1].command("shared", "delete", id)
    try_the_key_again(hosts[0])
    end([start(hosts[0], record, [2], flush_s=10)])

    assert hosts[0].rows("SELECT state FROM outbox ORDER BY trace_seq") == [
        ("cancelled",),
        ("sent",),
    ]
    assert len(registry.documents) == 1


def test_what_was_cancelled_is_sent_where_it_is_retried(hosts, registry, start):
    hosts[0].command("outbox", "cancel", "@last")
    hosts[0].command("outbox", "retry", "@last")
    try_the_key_again(hosts[0])
    end([start(hosts[0], record, [2], flush_s=10)])

    assert len(registry.documents) == 2


def test_what_is_redacted_again_is_sent_in_no_other_way(hosts, shared, registry, start, ask):
    hosts[0].told["KP_REDACT_DENY"] = f'["{WORD}"]'
    typed = hosts[0].command("outbox", "rescan", "--force")
    told = items(ask, shared)
    try_the_key_again(hosts[0])
    end([start(hosts[0], record, [2], flush_s=10)])

    assert typed.returncode == 0, typed.stderr
    assert told == [("cancelled", False)]
    assert len(registry.documents) == 2
    assert WORD not in str(registry.documents)


def test_feedback_changes_what_waits_to_be_sent(hosts, registry, start):
    [(id,)] = hosts[0].rows("SELECT id FROM traces")
    hosts[0].command("feedback", id, "--confidence", "0.77")
    try_the_key_again(hosts[0])
    end([start(hosts[0], record, [2], flush_s=10)])

    assert registry.documents[id].outcome.confidence == 0.77


def test_a_person_is_told_where_other_hosts_cannot_be(hosts):
    del hosts[0].told["KP_SHARED"]

    typed = hosts[0].command("outbox", "cancel", "@last")

    assert typed.returncode == 1
    assert "may still be sent by another host" in typed.stderr
