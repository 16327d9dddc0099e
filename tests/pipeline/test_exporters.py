"""Exporters in the registry's place, and beside it: what they are given, once, whatever happens."""

import json
import time
from contextlib import closing
from datetime import UTC, datetime

import pytest
from pipeline_helpers import echo
from rescored import rows

from kp_middleware.database import connect
from kp_middleware.errors import RegistryRejectedError, RegistryUnavailableError
from kp_middleware.export import OutboxItem, Receipt
from kp_middleware.storage import ExportCursor, History


@pytest.fixture
def record(pulse, connection):
    """Records some runs of an agent for an exporter; the rows of the outbox."""

    def run(exporter, *, count=1, patience_s=20.0, **settings):
        with pulse(exporter=exporter, **{"threshold": 0} | settings) as kp:
            [echo(kp)(f"question {number} of anna@example.org") for number in range(count)]
            kp.flush(patience_s)
        return rows(connection, "outbox")

    return run


def test_a_list_takes_what_cleared_redacted_and_without_a_key(record):
    exported = []

    kept = record(exported.append, count=3)

    documents = [json.loads(item.body) for item in exported]
    assert [row["state"] for row in kept] == ["sent"] * 3
    assert {row["registry"] for row in kept} == {"exporter list.append"}
    assert [document["metadata"]["quality_score"] >= 0.1 for document in documents] == [True] * 3
    assert "anna@example.org" not in str(exported)


@pytest.mark.parametrize("settings", [{"threshold": 1.0}, {"visibility": "private"}])
def test_what_did_not_clear_or_is_private_is_not_exported(record, settings):
    exported = []

    kept = record(exported.append, **settings)

    assert (kept, exported) == ([], [])


def test_an_exporter_s_receipt_is_kept(record):
    [row] = record(lambda item: Receipt(f"mine-{item.trace_seq}"))

    assert (row["state"], row["remote_id"], row["http_status"]) == ("sent", "mine-1", None)


async def exported_async(_):
    return Receipt("mine-1")


@pytest.mark.parametrize(
    ("exporter", "remote_id"),
    [(lambda item: len(item.body), None), (lambda _: {"id": 1}, None), (exported_async, "mine-1")],
)
def test_whatever_an_exporter_returns_the_run_is_given_once(record, exporter, remote_id):
    given = []

    [row] = record(lambda item: given.append(item) or exporter(item))

    assert (row["state"], row["remote_id"], len(given)) == ("sent", remote_id, 1)


def test_what_an_exporter_rejects_stays_with_its_reason(record):
    def reject(_):
        raise RegistryRejectedError(400, "no cats")

    [row] = record(reject)

    assert (row["state"], row["reason"]) == ("rejected", "no cats")


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit])
def test_an_exporter_that_fails_is_called_again_later_and_harms_no_agent(record, error):
    def fail(_):
        raise error

    [row] = record(fail, patience_s=1.0)

    assert row["state"] == "pending"
    assert f"raised {error.__name__}" in row["last_error"]


def test_what_waits_for_the_registry_is_not_taken_by_an_exporter(record):
    exported = []
    record(None, registry_url="http://127.0.0.1:9", api_key="kp_1", patience_s=0.5)

    waiting, sent = record(exported.append)

    assert (waiting["registry"], waiting["state"]) == ("http://127.0.0.1:9", "pending")
    assert (sent["state"], len(exported)) == ("sent", 1)


def test_a_wrong_setting_keeps_an_exporter_from_getting_anything(record, monkeypatch):
    monkeypatch.setenv("KP_REDACT_DENY", "/a/,b")
    exported = []

    record(exported.append)

    assert exported == []


ALL = {"send": "all", "name": "mine"}


@pytest.fixture
def exporting(pulse):
    """Makes pipelines with a further exporter."""

    def make(export, *, more=ALL, **settings):
        kp = pulse(**{"embedder": None, "threshold": 0.0, "api_key": None} | settings)
        kp.add_exporter(export, **more)
        return kp

    return make


def ask(kp, *questions):
    answer = kp.capture(lambda question: f"the answer to {question}")
    [answer(question) for question in questions]
    assert not kp.flush(30).unscored


def objectives(given):
    return [json.loads(run.body)["task"]["objective"] for run in given]


def test_each_run_is_given_once_in_order_with_its_score_and_the_decision(exporting):
    given = []

    ask(exporting(given.append), *(f"question {number}" for number in range(30)))

    assert [run.trace_seq for run in given] == list(range(1, 31))
    assert [f"question {number}" in words for number, words in enumerate(objectives(given))] == [
        True
    ] * 30
    run = given[0]
    assert json.loads(run.body)["metadata"]["quality_score"] == run.score
    assert {*run.signals} == {"complexity", "novelty", "tool_diversity", "outcome_confidence"}
    assert (run.decision, run.state, len(run.steps)) == ("forward", "scored", 2)


def test_calls_of_tools_have_their_words_as_for_the_registry(exporting):
    given = []
    kp = exporting(given.append)
    look = kp.tool(lambda word: word * 2, name="look")

    kp.capture(look)("one")
    kp.flush(30)

    steps = json.loads(given[0].body)["steps"]
    assert [step["content"] for step in steps if step["type"] == "tool_call"] == [
        'look(word="one")'
    ]


@pytest.mark.parametrize(
    ("send", "settings", "count"),
    [
        ("all", {"threshold": 0.99}, 1),
        ("cleared", {"threshold": 0.99}, 0),
        ("all", {"visibility": "private"}, 0),
        ("cleared", {"visibility": "private"}, 0),
    ],
)
def test_a_person_chooses_what_is_given_and_nothing_private_is(exporting, send, settings, count):
    given = []

    ask(exporting(given.append, more={"send": send}, **settings), "one")

    assert len(given) == count


def test_nothing_is_given_where_a_setting_is_wrong(exporting, monkeypatch):
    monkeypatch.setenv("KP_MAX_PER_DAY", "many")
    given = []

    ask(exporting(given.append), "one")

    assert given == []


def test_what_leaves_is_redacted(exporting):
    given = []

    ask(exporting(given.append), "write to anna.example@gmail.com with password=hunter2horse")

    assert "anna.example" not in given[0].body.decode()
    assert "hunter2horse" not in given[0].body.decode()


def test_forward_only_confirmed_waits_for_the_confirmation(exporting):
    given = []
    kp = exporting(given.append, more={"send": "cleared"}, forward_only="confirmed")
    ask(kp, "one", "two")
    assert given == []

    first = kp.runs()[-1]
    kp.feedback(first.id, success=True)
    kp.flush(30)

    assert [run.trace_id for run in given] == [first.id]


def test_who_comes_next_goes_on_where_the_last_one_was(exporting):
    first, second = [], []
    kp = exporting(first.append)
    ask(kp, "one")
    kp.close()

    ask(exporting(second.append), "two")

    assert [len(first), len(second)] == [1, 1]
    assert "two" in objectives(second)[0]


def test_what_was_there_before_is_given_where_that_is_asked_for(exporting):
    before, later, whole = [], [], []
    kp = exporting(before.append)
    ask(kp, "one")

    kp.add_exporter(later.append, send="all", name="later")
    kp.add_exporter(whole.append, send="all", name="whole", since=datetime(2020, 1, 1, tzinfo=UTC))
    ask(kp, "two")

    assert [len(before), len(later), len(whole)] == [2, 1, 2]


def test_what_fails_is_given_again_and_what_is_refused_is_passed(exporting, monkeypatch):
    monkeypatch.setattr("kp_middleware.export._sender.backoff_s", lambda *_: 0.0)
    seen = []

    def export(run):
        words = objectives([run])[0]
        seen.append(words)
        if "one" in words:
            raise RegistryRejectedError(400, "never")
        if len(seen) < 4:
            raise RegistryUnavailableError("not now")

    kp = exporting(export)
    ask(kp, "one", "two")
    kp.flush(30)

    assert ["one" in words for words in seen] == [True, False, False, False]


def test_no_run_waits_for_an_instant_that_is_far_since_the_clock_was_set_back(
    exporting, monkeypatch
):
    monkeypatch.setattr("kp_middleware.export._sender.backoff_s", lambda *_: 1e7)
    given = []
    kp = exporting(lambda _: 1 / 0)
    ask(kp, "one")
    kp.close()

    exporting(given.append).flush(30)

    assert len(given) == 1


def cursor(connection):
    return ExportCursor(
        connection,
        "mine",
        history=History(connection),
        choose=lambda run: run.state == "scored",
        prepare=lambda run, document, attempts: OutboxItem(
            run.seq, document.encode(), "", attempts
        ),
        since="2020-01-01T00:00:00.000Z",
    )


def test_what_a_killed_process_was_giving_is_given_again_and_two_at_once_are_none(exporting, db):
    ask(exporting([].append), "one", "two")
    now = time.time()
    with closing(connect(db)) as here, closing(connect(db)) as there:
        ours, theirs = cursor(here), cursor(there)
        lost = ours.claim(now)

        assert theirs.claim(now) is None
        assert now < theirs.next_due() <= time.time() + 1
        again = theirs.claim(now + 41)
        ours.sent(lost, Receipt())  # too late: the other has it
        assert (lost.trace_seq, again.trace_seq) == (1, 1)
        theirs.sent(again, Receipt())
        assert ours.claim(now + 42).trace_seq == 2


def test_two_of_one_name_are_refused(exporting):
    kp = exporting([].append)

    with pytest.raises(ValueError, match="its own name"):
        kp.add_exporter([].append, name="mine")
    with pytest.raises(ValueError, match="cleared"):
        kp.add_exporter([].append, send="some")
    with pytest.raises(TypeError, match="function"):
        kp.add_exporter(3)


def test_status_tells_what_became_of_the_runs_of_each_exporter(exporting, db):
    def refuse(_):
        raise RegistryRejectedError(422, "no room for it")

    ask(exporting(refuse, more={"send": "all", "name": "strict"}), "one")
    ask(exporting(lambda _: None), "two")

    with History.open(db) as history:
        mine, strict = history.exporters()
    assert (mine.name, mine.sent, mine.failed, mine.last_error) == ("exporter mine", 1, 0, None)
    assert (strict.name, strict.sent, strict.failed) == ("exporter strict", 0, 1)
    assert "no room for it" in strict.last_error
