"""The README's story: a run is recorded, scored, kept, and sent when it is worth it."""

import json

import pytest

from kp_middleware import KnowledgePulse, ReasoningTrace, Step, current_trace
from kp_middleware.recording import shield


def captured(kp, *, tool=str.upper):
    """An agent that thinks, calls a tool and is sure of itself."""
    search = kp.tool(name="search")(tool)

    @kp.capture(domain="code")
    def agent(question):
        current_trace().thought("look it up")
        current_trace().outcome(confidence=0.9)
        return search(question)

    return agent


def short_trace(**metadata):
    trace = ReasoningTrace.of("asked", [Step(step_id=0, type="thought", content="said")])
    return trace.model_copy(update={"metadata": trace.metadata.model_copy(update=metadata)})


def test_a_run_worth_sharing_is_scored_stored_and_sent(pulse, registry, stored):
    kp = pulse(registry_url=registry.url, api_key=registry.api_key, agent_id="me", threshold=0.4)

    answer = captured(kp)("why?")
    backlog = kp.flush()

    trace = stored()
    assert (answer, bool(backlog)) == ("WHY?", False)
    assert (trace["state"], trace["decision"]) == ("scored", "forward")
    assert (trace["outbox"]["state"], trace["outbox"]["remote_id"]) == ("sent", trace["id"])
    assert list(registry.documents) == [trace["id"]]


def test_the_registry_gets_the_score_and_the_agent_id(pulse, registry, stored):
    kp = pulse(registry_url=registry.url, api_key=registry.api_key, agent_id="me", threshold=0.4)

    captured(kp)("why?")
    kp.flush()

    metadata = json.loads(registry.requests[0].body)["metadata"]
    assert metadata["quality_score"] == pytest.approx(stored()["score"])
    assert metadata["agent_id"] == "me"


def test_a_run_below_the_threshold_stays_with_the_reason(pulse, registry, stored):
    kp = pulse(registry_url=registry.url, api_key=registry.api_key, threshold=0.99)

    captured(kp)("why?")
    kp.flush()

    trace = stored()
    assert (trace["decision"], trace["outbox"]) == ("withhold", None)
    assert "is below 0.99" in trace["reason"]
    assert registry.requests == ()


def test_without_a_key_nothing_leaves_and_the_row_says_so(pulse, stored):
    kp = pulse(threshold=0)

    captured(kp)("why?")
    kp.flush()

    trace = stored()
    assert (trace["decision"], trace["outbox"]) == ("forward", None)
    assert "there is no API key" in trace["reason"]


def test_what_waited_for_a_key_is_sent_when_there_is_one(pulse, registry, stored):
    without = pulse(threshold=0)
    captured(without)("why?")
    without.close()

    having = pulse(registry_url=registry.url, api_key=registry.api_key, threshold=0)
    captured(having)("and how?")
    having.flush()

    assert len(registry.documents) == 2
    assert stored("@last")["outbox"]["state"] == "sent"


def test_private_runs_never_leave(pulse, registry, stored):
    kp = pulse(
        registry_url=registry.url, api_key=registry.api_key, threshold=0, visibility="private"
    )

    captured(kp)("why?")
    kp.submit(short_trace(visibility="network"))
    kp.flush()

    trace = stored()
    assert (trace["visibility"], trace["outbox"]) == ("private", None)
    assert "visibility is private" in trace["reason"]
    assert registry.requests == ()


def test_a_private_trace_stays_where_others_are_sent(pulse, registry, stored):
    kp = pulse(registry_url=registry.url, api_key=registry.api_key, threshold=0)

    kp.submit(short_trace(visibility="private"))
    kp.flush()

    assert "visibility is private" in stored()["reason"]
    assert registry.requests == ()


def test_private_runs_of_the_past_do_not_leave_when_the_setting_changes(pulse, registry):
    secretive = pulse(threshold=0, visibility="private")
    captured(secretive)("why?")
    secretive.close()

    having = pulse(registry_url=registry.url, api_key=registry.api_key, threshold=0)
    captured(having)("and how?")
    having.flush()

    assert len(registry.documents) == 1


def test_secrets_are_gone_before_anything_is_written(pulse, db):
    kp = pulse(threshold=0)
    secret = "hunter2-" + "Zq81" * 5

    captured(kp)(f"log in with password={secret}")
    kp.close()

    written = b"".join(path.read_bytes() for path in db.parent.iterdir())
    assert secret.encode() not in written
    assert b"[REDACTED" in written


@pytest.mark.parametrize(
    "form",
    [
        'mysql --user="root" --password="{}"',
        'DB_USER="bob" DB_PASSWORD="{}" ./run.sh',
        '<user username="tomcat" password="{}"/>',
        "DB_PASSWORD=ab,{}",
        "DB_PASSWORD=ab(3{}",
        "password=={{{}",
        "curl -u bob:${} https://example.org",
    ],
)
def test_a_secret_is_neither_written_nor_sent_whatever_stands_before_it(pulse, registry, db, form):
    kp = pulse(registry_url=registry.url, api_key=registry.api_key, threshold=0)
    secret = "Zq81" * 3 + "-Xw"

    captured(kp)(f"run {form.format(secret)}")
    kp.flush()
    kp.close()

    written = b"".join(path.read_bytes() for path in db.parent.iterdir())
    sent = b"".join(request.body for request in registry.requests)
    assert b"[REDACTED" in sent
    assert secret.encode() not in written + sent


def test_what_may_not_leave_at_this_level_is_kept_here_but_not_sent(pulse, registry, stored):
    kp = pulse(registry_url=registry.url, api_key=registry.api_key, threshold=0)

    captured(kp)("write to anna@example.org")
    kp.flush()

    trace = stored()
    assert "anna@example.org" in trace["objective"]
    assert b"anna@example.org" not in registry.requests[0].body
    assert trace["outbox"]["redactions"]["email"] >= 1


def test_a_submitted_trace_keeps_its_id(pulse, stored):
    kp = pulse()
    trace = short_trace()

    kp.submit(trace)
    kp.submit(trace)
    kp.flush()

    assert stored()["id"] == trace.id
    assert stored()["seq"] == 1


def test_a_trace_that_is_submitted_again_is_counted_and_said(pulse, caplog):
    kp, trace = pulse(), short_trace()
    shield.failures.pop("submit: a trace with the id of one in the file", None)

    [kp.submit(trace) for _ in range(3)]
    kp.flush()

    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith(f"trace {trace.id} is already in the file")
    assert kp.stats().swallowed["submit: a trace with the id of one in the file"] >= 2
    assert kp.stats().recorded == 1


def test_only_traces_can_be_submitted(pulse):
    with pytest.raises(TypeError, match="expected a ReasoningTrace, got dict"):
        pulse().submit({})


def test_the_nearest_run_is_remembered_by_the_next_process(pulse, stored):
    first = pulse()
    captured(first)("why?")
    first.close()

    second = pulse()
    captured(second)("why?")
    second.flush()

    trace = stored()
    assert trace["novelty"] == pytest.approx(0, abs=1e-6)
    assert trace["nearest_id"] == stored("@best")["id"]


def test_a_synchronous_pipeline_has_scored_when_the_run_returns(pulse, stored):
    kp = pulse(sync=True)

    captured(kp)("why?")

    assert stored()["state"] == "scored"


def test_novelty_can_be_switched_off_in_the_environment(db, stored, monkeypatch):
    monkeypatch.setenv("KP_EMBEDDER", "none")

    with KnowledgePulse(db=db) as kp:
        captured(kp)("why?")

    assert (stored()["novelty"], stored()["embedder"]) == (0.5, None)


def test_a_switched_off_pipeline_leaves_functions_alone(pulse, db):
    kp = pulse(enabled=False)

    kp.submit(short_trace())
    kp.flush()

    assert kp.capture(str.upper) is str.upper
    assert kp.tool(str.upper) is str.upper
    assert not db.exists()


def test_a_closed_pipeline_records_nothing_more_and_breaks_nothing(pulse, stored, caplog):
    kp = pulse()
    agent = captured(kp)
    agent("why?")
    kp.close()
    kp.close()

    assert agent("again?") == "AGAIN?"
    kp.submit(short_trace())
    kp.submit(short_trace())

    assert stored()["objective"] == "why?"
    assert [r.message for r in caplog.records if "dropped" in r.message] == [
        (
            "a run was dropped: the pipeline is closed; close it after the last run;"
            " more are counted, not logged"
        )
    ]


def test_an_incomplete_run_is_kept_but_neither_scored_nor_sent(pulse, registry, stored):
    kp = pulse(registry_url=registry.url, api_key=registry.api_key, threshold=0)

    @kp.capture
    def words(text):
        yield from text.split()

    running = words("one two three")
    next(running)
    running.close()
    kp.flush()

    trace = stored()
    assert (trace["state"], trace["score"], trace["error_type"]) == (
        "incomplete",
        None,
        "GeneratorExit",
    )
    assert registry.requests == ()
