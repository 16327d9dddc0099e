"""With ``forward_only="confirmed"`` nothing leaves before somebody told that it succeeded."""

from datetime import UTC, datetime, timedelta

import pytest
from pipeline_helpers import trace_of

from kp_middleware import current_trace
from kp_middleware.outcomes import Judge

WAITS = "waits for a confirmation that it succeeded"


@pytest.fixture
def kp(pulse, sending):
    return pulse(**sending, embedder=None, forward_only="confirmed")


@pytest.fixture
def submit(kp):
    """Submits a run that clears the gate, and waits; returns its id."""

    def put(*, days_ago=0.0, **facts):
        began = (datetime.now(UTC) - timedelta(days=days_ago)).isoformat().replace("+00:00", "Z")
        trace = trace_of(metadata={"created_at": began}, **facts)
        kp.submit(trace)
        kp.flush()
        return trace.id

    return put


@pytest.mark.parametrize("said", [{}, {"success": True}, {"confidence": 0.99}])
def test_neither_an_assumption_nor_the_agents_own_word_lets_a_run_leave(
    submit, registry, stored, type_command, said
):
    name = submit(**said)

    assert (registry.documents, stored(name)["outbox"]) == ({}, None)
    assert stored(name)["decision"] == "forward"
    assert WAITS in type_command("show", name).output
    assert "not queued" in type_command("list").output
    assert "kp-middleware review" in type_command("status").output


def test_what_waits_goes_as_soon_as_somebody_says_that_it_succeeded(
    kp, submit, registry, stored, type_command
):
    name, other = submit(), submit()

    kp.feedback(name, success=True)
    kp.flush()

    assert [*registry.documents] == [name]
    assert WAITS not in type_command("show", name).output
    assert WAITS in stored(other)["reason"]


def test_it_goes_after_an_answer_on_the_command_line_as_well(
    kp, submit, registry, stored, type_command, monkeypatch
):
    name = submit()
    kp.close()
    monkeypatch.setenv("KP_FORWARD_ONLY", "confirmed")
    monkeypatch.setenv("KP_THRESHOLD", "0.1")
    monkeypatch.setenv("KP_REGISTRY_URL", registry.url)
    monkeypatch.setenv("KP_API_KEY", registry.api_key)

    answered = type_command("feedback", name, "--success")

    assert answered.exit_code == 0, answered.output
    assert stored(name)["outbox"]["state"] == "pending"


def test_what_somebody_says_has_failed_stays(kp, submit, registry, stored, type_command):
    name = submit()

    kp.feedback(name, success=False)
    kp.feedback(name, confidence=1)
    kp.flush()

    assert registry.documents == {}
    assert "its task is known to have failed" in stored(name)["reason"]
    assert WAITS not in stored(name)["reason"]
    told = "of 1 chosen by the gate with a known end 0 succeeded"
    assert told in type_command("status").output


def test_a_judge_confirms_a_run(kp, registry):
    @kp.capture(domain="medical", confidence=Judge(lambda _: 0.9))
    def answer(question):
        current_trace().thought(question)
        return "42"

    answer("What is six times seven?")
    kp.flush()

    assert len(registry.documents) == 1


@pytest.mark.parametrize(("days_ago", "goes"), [(29, True), (31, False)])
def test_a_confirmation_after_thirty_days_is_too_late(kp, submit, registry, stored, days_ago, goes):
    name = submit(days_ago=days_ago)

    kp.feedback(name, success=True)
    kp.flush()

    assert (name in registry.documents) == goes
    assert ("it was confirmed too late" in stored(name)["reason"]) != goes


def test_what_waits_stays_with_the_next_process_and_goes_without_the_setting(
    kp, submit, pulse, sending, registry
):
    name = submit()
    kp.close()

    with pulse(**sending, embedder=None, sync=True, forward_only="confirmed") as held:
        held.flush()
    before = [*registry.documents]
    pulse(**sending, embedder=None, sync=True).flush()

    assert (before, [*registry.documents]) == ([], [name])
