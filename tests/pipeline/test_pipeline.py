"""The README's story: a run is recorded, scored, kept, and sent when it is worth it."""

import json

import pytest
from pipeline_helpers import trace_of

from kp_middleware import KnowledgePulse, current_trace

SENT_BEFORE = "submit: a trace with the id of one in the file"


def captured(kp):
    """An agent that thinks, calls a tool and is sure of itself."""
    search = kp.tool(name="search")(str.upper)

    @kp.capture(domain="code")
    def agent(question):
        current_trace().thought("look it up")
        current_trace().outcome(confidence=0.9)
        return search(question)

    return agent


def test_a_run_worth_sharing_is_scored_stored_and_sent(pulse, sending, registry, stored):
    kp = pulse(**{**sending, "agent_id": "me", "threshold": 0.4})

    answer = captured(kp)("why?")
    backlog = kp.flush()

    trace = stored()
    assert (answer, bool(backlog)) == ("WHY?", False)
    assert (trace["state"], trace["decision"]) == ("scored", "forward")
    assert (trace["outbox"]["state"], trace["outbox"]["remote_id"]) == ("sent", trace["id"])
    assert list(registry.documents) == [trace["id"]]
    metadata = json.loads(registry.requests[0].body)["metadata"]
    assert metadata["quality_score"] == pytest.approx(trace["score"])
    assert metadata["agent_id"] == "me"


def test_without_a_key_a_run_says_so_and_waits_for_one(pulse, sending, registry, stored):
    without = pulse(threshold=0)
    captured(without)("why?")
    without.close()
    waiting = stored()

    having = pulse(**sending)
    captured(having)("and how?")
    having.flush()

    assert (waiting["decision"], waiting["outbox"]) == ("forward", None)
    assert "there is no API key" in waiting["reason"]
    assert len(registry.documents) == 2
    assert stored("@last")["outbox"]["state"] == "sent"


def test_private_runs_never_leave_also_where_others_are_sent_later(
    pulse, sending, registry, stored
):
    secretive = pulse(**sending, visibility="private")
    captured(secretive)("why?")
    secretive.submit(trace_of(metadata={"visibility": "network"}))
    secretive.close()
    by_setting = stored()

    open_to_all = pulse(**sending)
    open_to_all.submit(trace_of(metadata={"visibility": "private"}))
    open_to_all.flush()

    for trace in by_setting, stored():
        assert (trace["visibility"], trace["outbox"]) == ("private", None)
        assert "visibility is private" in trace["reason"]
    assert registry.requests == ()


@pytest.mark.parametrize(
    "form",
    [
        "log in with password={}",
        'mysql --user="root" --password="{}"',
        'DB_USER="bob" DB_PASSWORD="{}" ./run.sh',
        '<user username="tomcat" password="{}"/>',
        "DB_PASSWORD=ab,{}",
        "DB_PASSWORD=ab(3{}",
        "password=={{{}",
        "curl -u bob:${} https://example.org",
    ],
)
def test_a_secret_is_neither_written_nor_sent_whatever_stands_before_it(
    pulse, sending, registry, written, form
):
    kp = pulse(**sending)
    secret = "Zq81" * 3 + "-Xw"

    captured(kp)(f"run {form.format(secret)}")
    kp.flush()
    kp.close()

    sent = b"".join(request.body for request in registry.requests)
    assert b"[REDACTED" in sent
    assert b"[REDACTED" in written()
    assert secret.encode() not in written() + sent


def test_a_trace_that_is_submitted_again_is_kept_once_counted_and_said(pulse, stored, caplog):
    kp, trace = pulse(), trace_of()

    [kp.submit(trace) for _ in range(3)]
    kp.flush()

    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith(f"trace {trace.id} is already in the file")
    assert kp.stats().swallowed[SENT_BEFORE] >= 2
    assert kp.stats().recorded == 1
    assert (stored()["id"], stored()["seq"]) == (trace.id, 1)


def test_only_traces_can_be_submitted(pulse):
    with pytest.raises(TypeError, match="expected a ReasoningTrace, got dict"):
        pulse().submit({})


@pytest.mark.parametrize("decorated", [property(len), int, 42], ids=["property", "class", "number"])
def test_what_is_no_function_cannot_be_captured(pulse, decorated):
    with pytest.raises(TypeError, match="expected a function"):
        pulse().capture(decorated)


def test_a_switched_off_pipeline_leaves_functions_alone(pulse, db, monkeypatch):
    kp = pulse(enabled=False)
    monkeypatch.setenv("KP_ENABLED", "false")
    by_the_environment = pulse(enabled=True)

    kp.submit(trace_of())
    kp.flush()

    assert kp.capture(str.upper) is by_the_environment.capture(str.upper) is str.upper
    assert kp.tool(str.upper) is str.upper
    assert not db.exists()


def test_a_closed_pipeline_records_nothing_more_and_breaks_nothing(pulse, stored, caplog):
    kp = pulse()
    agent = captured(kp)
    agent("why?")
    running = kp.start_recording("python")
    running.thought("said")
    kp.close()
    kp.close()

    assert agent("again?") == "AGAIN?"
    kp.submit(trace_of())
    running.finish()

    assert stored()["objective"] == "why?"
    assert (kp.stats().dropped, kp.stats().in_memory, kp.stats().recorded) == (3, 0, 1)
    assert [r.message for r in caplog.records if "dropped" in r.message] == [
        (
            "a run was dropped: the pipeline is closed; close it after the last run;"
            " further cases are counted, not logged"
        )
    ]


def test_an_incomplete_run_is_kept_but_neither_scored_nor_sent(pulse, sending, registry, stored):
    kp = pulse(**sending)

    @kp.capture
    def words(text):
        yield from text.split()

    running = words("one two three")
    next(running)
    running.close()
    kp.flush()

    trace = stored()
    assert (trace["state"], trace["score"]) == ("incomplete", None)
    assert trace["error_type"] == "GeneratorExit"
    assert registry.requests == ()


def test_the_default_pipeline_is_made_of_the_environment_and_again_after_it_was_closed(
    db, stored, monkeypatch
):
    monkeypatch.setenv("KP_DB", str(db))
    monkeypatch.setenv("KP_EMBEDDER", "none")
    monkeypatch.setenv("KP_DOMAIN", "medical")

    for number in (1, 2):
        with KnowledgePulse.default() as kp:
            assert kp is KnowledgePulse.default()
            kp.capture(str.upper)(f"run {number}")
        run = stored()
        assert (run["seq"], run["domain"]) == (number, "medical")
        assert (run["novelty"], run["embedder"]) == (0.5, None)
