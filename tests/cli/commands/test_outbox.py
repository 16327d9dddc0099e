"""What goes, exactly; why something does not; and trying again."""

import json

import pytest
from loading import heavy_modules
from terminal import typed

from kp_middleware import KnowledgePulse, current_trace
from kp_middleware.database import connect
from kp_middleware.errors import RegistryRejectedError
from kp_middleware.outbox_items import Receipt
from kp_middleware.storage import OutboxTable
from kp_middleware.testing import StandInEmbedder

REGISTRY = "http://127.0.0.1:9"
NO_RULES = "gitleaks:/none.toml"


@pytest.fixture
def record(db):
    """Records a run that is worth sending, under these settings."""

    def once(answer="mail anna@example.org", **settings):
        pipeline = KnowledgePulse(
            db=db,
            embedder=StandInEmbedder(),
            threshold=0.1,
            registry_url=REGISTRY,
            api_key="kp_" + "0" * 64,
            agent_id="agent-1",
            **settings,
        )
        with pipeline as kp:
            kp.capture(_agent(answer))()
            kp.flush(timeout_s=1)

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


def rows(type_command, *words):
    return json.loads(type_command("outbox", "list", "--json", *words).stdout)


def test_the_outbox_is_listed_when_no_command_is_named(record, type_command):
    record()

    lines = type_command("outbox").stdout.splitlines()

    assert lines[0].split("\t")[:3] == ["id", "state", "attempts"]
    assert lines[1].split("\t")[1] == "pending"
    assert lines[1].split("\t")[4] == '{"email": 1}'
    assert lines == type_command("outbox", "list").stdout.splitlines()


def test_what_is_blocked_says_why(record, type_command):
    record(redact_engines=[NO_RULES])

    (row,) = rows(type_command, "--blocked")

    assert (row["state"], row["size_bytes"]) == ("blocked", None)
    assert row["reason"].startswith(f"engine_missing at {NO_RULES}: ")
    assert rows(type_command, "--pending") == []
    assert rows(type_command, "--failed") == [row]


def test_a_cut_list_says_how_many_there_are(record, type_command):
    record("one")
    record("two and more")

    assert type_command("outbox", "-n", "1").stderr.endswith("\n2 in all: -n shows more\n")


def test_the_exact_bytes_are_shown(record, type_command, db):
    record("mail anna@example.org, naïve 日本")

    shown = type_command("outbox", "show", "@last").stdout_bytes

    (body,) = connect(db).execute("SELECT CAST(body AS BLOB) FROM outbox").fetchone()
    assert shown == body
    assert "naïve 日本".encode() in shown


def test_a_diff_shows_the_words_that_a_tool_call_leaves_with(record, type_command):
    record()

    lines = type_command("outbox", "show", "@last", "--diff").stdout.splitlines()

    assert '+      "content": "convert(amount=250)",' in lines
    assert not any(line.startswith("-") and "convert" in line for line in lines)


def test_the_bytes_on_a_terminal_are_the_same_json_and_harmless(record, type_command, db):
    record("look \x9b2J \x85 \u202e\u2066 ü検")

    told = typed("--db", str(db), "outbox", "show", "@last")

    assert json.loads(told) == json.loads(type_command("outbox", "show", "@last").stdout)
    assert "ü検" in told
    assert told.strip().isprintable()


def test_a_diff_shows_what_redaction_changed(record, type_command):
    record()

    lines = type_command("outbox", "show", "@last", "--diff").stdout.splitlines()

    assert lines[:2] == ["--- local", "+++ sent"]
    assert '-      "content": "Project Bluebird: mail anna@example.org"' in lines
    assert '+      "content": "Project Bluebird: mail [REDACTED:email]"' in lines


def test_what_would_not_be_sent_has_no_bytes(record, type_command):
    record(redact_engines=[NO_RULES])

    result = type_command("outbox", "show", "@last")

    assert (result.stdout, result.exit_code) == ("", 1)
    assert "nothing would be sent: blocked: engine_missing" in result.stderr


def test_a_trace_that_is_not_in_the_outbox_has_no_bytes(agent, type_command):
    agent("one")

    result = type_command("outbox", "show", "@last")

    assert (result.exit_code, "not in the outbox" in result.stderr) == (1, True)


@pytest.mark.usefixtures("rejected")
def test_what_was_rejected_waits_again(type_command):
    (before,) = rows(type_command, "--failed")

    result = type_command("outbox", "retry", before["id"][9:15])

    assert (result.stdout, result.exit_code) == ("1 waiting\n", 0)
    (after,) = rows(type_command)
    assert (after["state"], after["attempts"], after["reason"]) == (
        "pending",
        0,
        "connection refused",
    )


def test_what_could_not_be_redacted_is_redacted_anew(record, type_command):
    record(redact_engines=[NO_RULES])

    result = type_command("outbox", "retry", "--failed", "--force")

    assert (result.stdout, result.exit_code) == ("1 released\n", 0)
    assert [row["redactions"] for row in rows(type_command, "--pending")] == [{"email": 1}]


def test_what_cannot_be_redacted_still_stays_blocked(record, type_command, monkeypatch):
    record(redact_engines=[NO_RULES])
    monkeypatch.setenv("KP_REDACT_ENGINES", NO_RULES)

    result = type_command("outbox", "retry", "--failed")

    assert (result.stdout, result.exit_code) == ("1 blocked\n", 6)
    assert result.stderr == "see kp-middleware outbox --blocked\n"


@pytest.mark.parametrize("words", [[], ["@last", "--failed"]], ids=["nothing", "both"])
def test_one_or_all_is_tried_again(record, type_command, words):
    record()

    result = type_command("outbox", "retry", *words)

    assert (result.exit_code, "name one ID" in result.stderr) == (2, True)


def test_what_waits_already_is_not_tried_again(record, type_command):
    record()

    result = type_command("outbox", "retry", "@last")

    assert (result.exit_code, "nothing to retry: the item is pending" in result.stderr) == (1, True)


def test_what_is_cancelled_does_not_go_even_if_a_program_looks_for_what_was_left(
    record, type_command
):
    record("one")

    result = type_command("outbox", "cancel", "@last")

    assert (result.stdout, result.exit_code) == ("1 cancelled\n", 0)
    record("two and more")
    states = [(row["state"], row["reason"]) for row in rows(type_command)]
    assert states == [
        ("pending", "connection refused"),
        ("cancelled", "by hand"),
    ]
    assert [row["reason"] for row in rows(type_command, "--cancelled")] == ["by hand"]


def test_several_are_cancelled_at_once_and_one_comes_back(record, type_command, monkeypatch):
    record("one")
    record("two and more")
    first, second = (row["id"] for row in rows(type_command))
    assert type_command("outbox", "cancel", first, second).stdout == "2 cancelled\n"
    monkeypatch.setenv("KP_REDACT_DENY", "bluebird")

    result = type_command("outbox", "retry", first)

    assert (result.stdout, result.exit_code) == ("1 waiting\n", 0)
    assert [row["state"] for row in rows(type_command)] == ["pending", "cancelled"]
    assert "Bluebird" not in type_command("outbox", "show", first).stdout


def test_what_arrived_cannot_be_called_back(record, type_command, db):
    record()
    connect(db).execute("UPDATE outbox SET state = 'sent'")

    result = type_command("outbox", "cancel", "@last")

    assert (result.stdout, result.exit_code) == ("1 sent\n", 1)
    assert "cannot be cancelled" in result.stderr


def test_a_rescan_rewrites_what_waits(record, type_command, monkeypatch):
    record()
    monkeypatch.setenv("KP_REDACT_DENY", "bluebird")

    result = type_command("outbox", "rescan")

    assert (result.stdout, result.exit_code) == ("1 rewritten\n", 0)
    assert "Bluebird" not in type_command("outbox", "show", "@last").stdout
    assert type_command("outbox", "rescan", "--json").stdout == '{\n  "unchanged": 1\n}\n'


def test_a_rescan_blocks_what_is_not_certainly_clean(record, type_command, monkeypatch):
    record()
    monkeypatch.setenv("KP_REDACT_ENGINES", NO_RULES)

    result = type_command("outbox", "rescan")

    assert (result.stdout, result.exit_code) == ("1 blocked\n", 6)
    assert type_command("outbox", "show", "@last").stdout == ""


def test_a_shell_with_fewer_rules_loosens_nothing_that_waits(record, type_command):
    record(redact_deny=["bluebird"])

    result = type_command("outbox", "rescan")

    assert (result.stdout, result.exit_code) == ("1 unchanged\n", 0)
    assert "Bluebird" not in type_command("outbox", "show", "@last").stdout


def test_what_two_prepared_stays_without_what_either_takes_out(record, type_command, monkeypatch):
    record(redact_deny=["bluebird"])
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


@pytest.mark.parametrize("words", [["rescan"], ["retry", "--failed"]], ids=" ".join)
def test_a_shell_without_the_program_s_engine_releases_nothing(record, type_command, words):
    record(redact_engines=[NO_RULES])

    result = type_command("outbox", *words)

    assert (result.stdout, result.exit_code) == ("1 left\n", 6)
    assert "use those, or --force" in result.stderr
    assert [row["state"] for row in rows(type_command)] == ["blocked"]


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


def test_a_rescan_of_nothing_says_so(agent, type_command):
    agent("one")

    assert type_command("outbox", "rescan").stdout == "nothing to do\n"


@pytest.mark.parametrize("words", ["", "show @last", "show @last --diff"])
def test_looking_at_the_outbox_loads_nothing_heavy(record, db, words):
    record()

    heavy, _ = heavy_modules("--db", str(db), "outbox", *words.split())

    assert heavy == []


def test_show_counts_what_was_taken_out(record, type_command):
    record("mail anna@example.org, password=hunter2")

    shown = json.loads(type_command("show", "@last", "--json").stdout)

    assert shown["outbox"]["redactions"] == {"email": 1, "password": 1}


def test_people_see_a_table_and_what_a_trace_goes_without(record, db):
    record()

    listed = typed("--db", str(db), "outbox").splitlines()
    shown = typed("--db", str(db), "show", "@last")

    assert listed[0].split()[:3] == ["id", "state", "attempts"]
    assert listed[1].split()[1] == "pending"
    assert "\n    redacted 1 email\n" in shown


def test_where_nothing_has_a_reason_the_objective_is_told(record, db):
    record()
    outbox = OutboxTable(connect(db), registry=REGISTRY, agent_id="agent-1")
    outbox.sent(outbox.claim(4e9), Receipt())

    heading, row = typed("--db", str(db), "outbox", columns=80).splitlines()

    assert heading.split()[-1] == "objective"
    assert len(row) <= 80


@pytest.mark.parametrize("columns", [80, 100, 120])
def test_why_something_is_blocked_is_told_on_any_terminal(record, db, columns):
    record(redact_engines=[NO_RULES])

    heading, row = typed("--db", str(db), "outbox", "--blocked", columns=columns).splitlines()

    assert heading.split()[-1] == "reason"
    assert f"engine_missing at {NO_RULES}"[:20] in row
    assert len(row) <= columns


@pytest.mark.parametrize("words", [["retry", "--failed"], ["rescan"]], ids=str)
def test_a_name_that_was_mistyped_does_not_become_a_file(type_command, db, words):
    result = type_command("outbox", *words)

    assert (result.exit_code, db.exists()) == (1, False)
    assert "does not exist; record a run first" in result.stderr


def test_an_empty_outbox_is_told(agent, type_command):
    agent("one")

    assert type_command("outbox", "--sent").stderr == "nothing matches\n"


def test_how_many_is_at_least_one(agent, type_command):
    agent("one")

    assert type_command("outbox", "-n", "-3").exit_code == 2


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
def test_several_kinds_are_shown_together(record, type_command, words, states):
    record()

    assert [row["state"] for row in rows(type_command, *words)] == states
