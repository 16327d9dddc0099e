"""The outbox: the exact bytes, why an item is blocked, and retrying."""

import json

import pytest
from terminal import typed
from unsent_store import UnsentStore

from kp_middleware import KnowledgePulse, current_trace
from kp_middleware.database import connect
from kp_middleware.errors import RegistryRejectedError
from kp_middleware.storage import OutboxTable
from kp_middleware.testing import StandInEmbedder

REGISTRY = "http://127.0.0.1:9"
NO_RULES = "gitleaks:/none.toml"


@pytest.fixture
def record(db):
    """Records a run that is worth sending, under these settings, and waits to be sent."""

    def once(answer="mail anna@example.org", **settings):
        pipeline = KnowledgePulse(
            db=db,
            store=UnsentStore.at(db),
            embedder=StandInEmbedder(),
            sync=True,
            threshold=0.1,
            registry_url=REGISTRY,
            api_key="kp_" + "0" * 64,
            agent_id="agent-1",
            **settings,
        )
        with pipeline as kp:
            kp.capture(_agent(answer))()

    return once


@pytest.fixture(autouse=True)
def agent_id(monkeypatch):
    monkeypatch.setenv("KP_AGENT_ID", "agent-1")


@pytest.fixture
def rejected(record, db):
    """One trace, which the registry has refused."""
    record()
    outbox = OutboxTable(connect(db), registry=REGISTRY, agent_id="agent-1")
    outbox.rejected(outbox.claim(4e9), RegistryRejectedError(422, "not so"))


def _agent(answer):
    def ask():
        current_trace().tool_call("convert", {"amount": 250})
        current_trace().thought(f"Project Bluebird: {answer}")
        current_trace().outcome(confidence=0.9)
        return "done"

    return ask


def test_the_outbox_is_listed_with_what_was_taken_out(record, type_command, as_json, db):
    record("mail anna@example.org, password=hunter2")

    lines = type_command("outbox").stdout.splitlines()
    heading, row, *_ = typed("--db", str(db), "outbox").splitlines()
    shown = as_json("show", "@last")

    assert lines[0].split("\t")[:3] == heading.split()[:3] == ["id", "state", "attempts"]
    assert lines[1].split("\t")[1] == row.split()[1] == "pending"
    assert lines[1].split("\t")[4] == '{"email": 1, "password": 1}'
    assert lines == type_command("outbox", "list").stdout.splitlines()
    assert shown["outbox"]["redactions"] == {"email": 1, "password": 1}
    redacted = "\n    redacted 1 email, 1 password\n"
    assert redacted in typed("--db", str(db), "show", "@last")


def test_what_is_blocked_says_why_and_has_no_bytes(record, type_command, as_json):
    record(redact_engines=[NO_RULES])

    (row,) = as_json("outbox", "list", "--blocked")
    body = type_command("outbox", "show", "@last")

    assert (row["state"], row["size_bytes"]) == ("blocked", None)
    assert row["reason"].startswith(f"engine_missing at {NO_RULES}: ")
    assert as_json("outbox", "list", "--pending") == []
    assert as_json("outbox", "list", "--failed") == [row]
    assert (body.stdout, body.exit_code) == ("", 1)
    assert "nothing would be sent: blocked: engine_missing" in body.stderr


def test_the_exact_bytes_are_shown(record, type_command, db):
    record("mail anna@example.org, naïve 日本")

    shown = type_command("outbox", "show", "@last").stdout_bytes

    (body,) = connect(db).execute("SELECT CAST(body AS BLOB) FROM outbox").fetchone()
    assert shown == body
    assert "naïve 日本".encode() in shown


def test_the_bytes_on_a_terminal_are_the_same_json_and_harmless(record, type_command, db):
    record("look \x9b2J \x85 \u202e\u2066 ü検")

    told = typed("--db", str(db), "outbox", "show", "@last")

    assert json.loads(told) == json.loads(type_command("outbox", "show", "@last").stdout)
    assert "ü検" in told
    assert told.strip().isprintable()


def test_a_diff_shows_what_redaction_changed_and_the_words_of_a_tool_call(record, type_command):
    record()

    lines = type_command("outbox", "show", "@last", "--diff").stdout.splitlines()

    assert lines[:2] == ["--- local", "+++ sent"]
    assert '-      "content": "Project Bluebird: mail anna@example.org"' in lines
    assert '+      "content": "Project Bluebird: mail [REDACTED:email]"' in lines
    assert '+      "content": "convert(amount=250)",' in lines
    assert not any(line.startswith("-") and "convert" in line for line in lines)


@pytest.mark.usefixtures("rejected")
def test_what_was_rejected_waits_again(type_command, as_json):
    (before,) = as_json("outbox", "list", "--failed")

    result = type_command("outbox", "retry", before["id"][9:15])

    assert (result.stdout, result.exit_code) == ("1 waiting\n", 0)
    (after,) = as_json("outbox", "list")
    assert (after["state"], after["attempts"], after["reason"]) == (
        "pending",
        0,
        None,
    )


def test_what_could_not_be_redacted_goes_by_the_same_rules_or_by_force(
    record, type_command, as_json, monkeypatch
):
    record(redact_engines=[NO_RULES])

    for words in (["rescan"], ["retry", "--failed"]):  # in a shell without the program's engine
        left = type_command("outbox", *words)
        assert (left.stdout, left.exit_code) == ("1 left\n", 6)
        assert "use those, or --force" in left.stderr
    monkeypatch.setenv("KP_REDACT_ENGINES", NO_RULES)
    blocked = type_command("outbox", "retry", "--failed")
    monkeypatch.delenv("KP_REDACT_ENGINES")
    assert [row["state"] for row in as_json("outbox", "list")] == ["blocked"]
    forced = type_command("outbox", "retry", "--failed", "--force")

    assert (blocked.stdout, blocked.exit_code) == ("1 blocked\n", 6)
    assert blocked.stderr == "see kp-middleware outbox --blocked\n"
    assert (forced.stdout, forced.exit_code) == ("1 released\n", 0)
    assert [row["redactions"] for row in as_json("outbox", "list", "--pending")] == [{"email": 1}]


@pytest.mark.parametrize(
    ("words", "exit_code", "complaint"),
    [
        ("retry", 2, "pass one ID"),
        ("retry @last --failed", 2, "pass one ID"),
        ("retry @last", 1, "nothing to retry: the item is pending"),
        ("-n -3", 2, "-n"),
    ],
)
def test_what_makes_no_sense_is_refused(record, type_command, words, exit_code, complaint):
    record()

    result = type_command("outbox", *words.split())

    assert (result.exit_code, complaint in result.stderr) == (exit_code, True)


def test_what_is_cancelled_does_not_go_until_it_is_tried_again(
    record, type_command, as_json, monkeypatch
):
    record("one")
    record("two and more")
    first, second = (row["id"] for row in as_json("outbox", "list"))

    result = type_command("outbox", "cancel", first, second)

    assert (result.stdout, result.exit_code) == ("2 cancelled\n", 0)
    record("the third")  # a program looks for what was left
    states = [(row["state"], row["reason"]) for row in as_json("outbox", "list")]
    assert states == [
        ("pending", None),
        ("cancelled", "by you"),
        ("cancelled", "by you"),
    ]
    assert [row["id"] for row in as_json("outbox", "list", "--cancelled")] == [first, second]
    monkeypatch.setenv("KP_REDACT_DENY", "bluebird")
    again = type_command("outbox", "retry", first)
    assert (again.stdout, again.exit_code) == ("1 waiting\n", 0)
    assert [row["id"] for row in as_json("outbox", "list", "--cancelled")] == [second]
    assert "Bluebird" not in type_command("outbox", "show", first).stdout


def test_what_arrived_cannot_be_called_back(record, type_command, db):
    record()
    connect(db).execute("UPDATE outbox SET state = 'sent'")

    result = type_command("outbox", "cancel", "@last")

    assert (result.stdout, result.exit_code) == ("1 sent\n", 1)
    assert "cannot be cancelled" in result.stderr


def test_a_rescan_rewrites_what_waits_and_blocks_what_is_not_certainly_clean(
    record, type_command, monkeypatch
):
    record()
    monkeypatch.setenv("KP_REDACT_DENY", "bluebird")

    result = type_command("outbox", "rescan")

    assert (result.stdout, result.exit_code) == ("1 rewritten\n", 0)
    assert "Bluebird" not in type_command("outbox", "show", "@last").stdout
    assert type_command("outbox", "rescan", "--json").stdout == '{\n  "unchanged": 1\n}\n'

    monkeypatch.setenv("KP_REDACT_ENGINES", NO_RULES)
    result = type_command("outbox", "rescan")

    assert (result.stdout, result.exit_code) == ("1 blocked\n", 6)
    assert type_command("outbox", "show", "@last").stdout == ""


def test_a_shell_with_fewer_rules_loosens_nothing_that_waits(record, type_command, monkeypatch):
    record(redact_deny=["bluebird"])

    result = type_command("outbox", "rescan")

    assert (result.stdout, result.exit_code) == ("1 unchanged\n", 0)
    assert "Bluebird" not in type_command("outbox", "show", "@last").stdout

    monkeypatch.setenv("KP_REDACT_DENY", "project")
    type_command("outbox", "rescan")
    monkeypatch.delenv("KP_REDACT_DENY")
    type_command("outbox", "rescan")

    body = type_command("outbox", "show", "@last").stdout
    assert ("Bluebird" in body, "Project" in body) == (False, False)


def test_the_words_of_a_call_follow_the_rules_of_whoever_rescans(record, type_command, monkeypatch):
    record(redact_deny=["bluebird"])
    before = type_command("outbox", "show", "@last").stdout
    monkeypatch.setenv("KP_REDACT_KEYS_DENY", "amount")

    type_command("outbox", "rescan")

    after = json.loads(type_command("outbox", "show", "@last").stdout)
    assert "convert(amount=250)" in before
    assert "250" not in json.dumps(after["steps"])  # an id may hold these digits


@pytest.mark.parametrize("words", [[], ["--force"]], ids=["usually", "by force"])
def test_only_by_force_an_exception_of_the_shell_s_counts(record, type_command, monkeypatch, words):
    record()
    monkeypatch.setenv("KP_REDACT_ALLOW", "anna@example.org")

    type_command("outbox", "rescan", *words)

    body = type_command("outbox", "show", "@last").stdout
    assert ("anna@example.org" in body) == bool(words)


@pytest.mark.usefixtures("rejected")
@pytest.mark.parametrize("words", [["rescan"], ["retry", "--failed"]], ids=" ".join)
def test_what_was_rejected_is_cleaned_by_today_s_rules_before_it_goes_again(
    type_command, monkeypatch, words
):
    monkeypatch.setenv("KP_REDACT_DENY", "bluebird")

    type_command("outbox", *words)

    assert "Bluebird" not in type_command("outbox", "show", "@last").stdout


def test_an_empty_outbox_is_reported(agent, type_command):
    agent("one")
    shown = type_command("outbox", "show", "@last")

    assert (shown.exit_code, "not in the outbox" in shown.stderr) == (1, True)
    assert type_command("outbox", "rescan").stdout == "nothing to do\n"
    assert type_command("outbox", "--sent").stderr == "nothing matches\n"


@pytest.mark.parametrize("columns", [80, 100, 120])
def test_why_something_is_blocked_is_reported_on_any_terminal(record, db, columns):
    record(redact_engines=[NO_RULES])

    heading, row = typed("--db", str(db), "outbox", "--blocked", columns=columns).splitlines()

    assert heading.split()[-1] == "reason"
    assert f"engine_missing at {NO_RULES}"[:20] in row
    assert len(row) <= columns


@pytest.mark.usefixtures("rejected")
@pytest.mark.parametrize(
    ("words", "states"),
    [
        (["--failed"], ["rejected"]),
        (["--pending"], ["pending"]),
        (["--pending", "--failed"], ["pending", "rejected"]),
        (["--blocked", "--sent"], []),
    ],
    ids=str,
)
def test_several_kinds_are_shown_together(record, as_json, words, states):
    record()

    assert [row["state"] for row in as_json("outbox", "list", *words)] == states
