"""Exports for training and evaluation: what each format says, and that runs come back."""

import gzip
import json
import stat
from contextlib import closing
from itertools import islice

import numpy as np
import pytest
from sample_runs import put, run, step, with_value

from kp_middleware import KnowledgePulse, current_trace
from kp_middleware.database import connect
from kp_middleware.export import StepFacts

ASK = step("observation", content="Refund order 7")
THINK = step("thought", content="I look it up.")
CALL = step("tool_call", tool="orders", input={"id": 7})
GOT = step("observation", tool="orders", output_summary="paid")
FAILED = step("error_recovery", tool="refund", output_summary="Error: locked")
DONE = step("thought", content="Refunded.")


@pytest.fixture(autouse=True)
def _no_model(monkeypatch):
    monkeypatch.setenv("KP_EMBEDDER", "none")


@pytest.fixture
def export(type_command, tmp_path):
    """Export to a file; returns its lines as JSON."""

    def to_file(format_, *words):
        out = tmp_path / f"{format_}.jsonl"
        result = type_command("export", str(out), "--as", format_, *words)
        assert result.exit_code == 0, result.output
        return [json.loads(line) for line in out.read_text("utf-8").splitlines()]

    return to_file


@pytest.fixture
def refund(db):
    """A run that looked an order up, failed once, and is known to have succeeded."""
    steps = (ASK, THINK, CALL, GOT, step("tool_call", tool="refund"), FAILED, DONE)
    told = {"success_source": "feedback", "model": "m-1", "result_summary": "Refunded."}
    put(db, run("Refund order 7", *steps, id="a", **told), with_value(0.5))


def manifest(tmp_path, name):
    return json.loads((tmp_path / "manifest.json").read_text())[name]


@pytest.mark.usefixtures("refund")
def test_messages_are_those_of_openai_and_an_error_is_an_extra_key(export):
    (line,) = export("messages")
    (other,) = export("messages", "--arguments", "object", "--force")

    assert line["messages"] == [
        {"role": "user", "content": "Refund order 7"},
        {
            "role": "assistant",
            "content": "I look it up.",
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "orders", "arguments": '{"id": 7}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "paid"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": "call_2",
                    "type": "function",
                    "function": {"name": "refund", "arguments": "{}"},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_2", "content": "Error: locked", "is_error": True},
        {"role": "assistant", "content": "Refunded."},
    ]
    (call,) = other["messages"][1]["tool_calls"]
    assert call["function"] == {"name": "orders", "arguments": {"id": 7}}


@pytest.mark.usefixtures("refund")
def test_a_sample_has_the_task_the_result_and_who_says_that_it_is_right(export):
    (sample,) = export("inspect")

    assert sample == {
        "input": "Refund order 7",
        "target": "Refunded.",
        "id": "kp:trace:a",
        "metadata": {
            "trace_id": "kp:trace:a",
            "domain": "general",
            "success": True,
            "success_source": "feedback",
            "score": 0.5,
        },
    }


def test_an_assumed_success_is_never_written_as_one_and_a_failure_is_no_target(db, export):
    put(db, run("one", ASK, DONE, success_source="assumed", result_summary="Refunded."))
    put(db, run("two", ASK, DONE, success=False, result_summary="Wrong."))

    samples = export("inspect")

    assert [sample["metadata"]["success"] for sample in samples] == [None, False]
    assert [sample["target"] for sample in samples] == ["Refunded.", ""]


@pytest.mark.usefixtures("refund")
def test_an_example_of_langsmith_is_divided_where_the_agent_begins(export):
    (example,) = export("langsmith")

    assert [message["role"] for message in example["inputs"]["messages"]] == ["user"]
    assert example["outputs"]["messages"][0]["content"] == "I look it up."


@pytest.mark.usefixtures("refund")
def test_the_hub_s_traces_are_a_file_for_each_run(type_command, tmp_path):
    type_command("export", str(tmp_path / "hub"), "--as", "hf-trace")

    (file,) = (tmp_path / "hub").iterdir()
    head, first, turn, *_ = map(json.loads, file.read_text("utf-8").splitlines())
    assert (file.name, stat.S_IMODE(file.stat().st_mode)) == ("a.jsonl", 0o600)
    assert head == {
        "type": "session",
        "harness": "kp-middleware",
        "id": "kp:trace:a",
        "name": "Refund order 7",
    }
    assert first["message"] == {"role": "user", "content": "Refund order 7"}
    assert turn["message"]["model"] == "m-1"
    assert turn["message"]["toolCalls"][0]["function"]["arguments"] == '{"id": 7}'


@pytest.mark.usefixtures("refund")
def test_results_of_atif_stand_in_the_step_that_called(type_command, tmp_path):
    type_command("export", str(tmp_path / "atif"), "--as", "atif")

    trajectory = json.loads((tmp_path / "atif" / "a.json").read_text())
    assert [step["step_id"] for step in trajectory["steps"]] == [1, 2, 3, 4]
    assert trajectory["steps"][1]["observation"]["results"] == [
        {"source_call_id": "call_1", "content": "paid"}
    ]
    assert trajectory["extra"]["success"] is True


def test_results_find_their_calls_by_id_whatever_their_order(db, export):
    of = [StepFacts(call_id=id) for id in ("1", "2", "2", "1")]
    two = [step("tool_call", tool="t", input={"n": n}) for n in (1, 2)]
    out = [step("observation", tool="t", output_summary=said) for said in ("second", "first")]
    put(db, run("x", *two, *out, facts=tuple(of)))

    (line,) = export("messages")

    answers = {m["tool_call_id"]: m["content"] for m in line["messages"] if m["role"] == "tool"}
    assert answers == {"call_1": "first", "call_2": "second"}


def test_what_is_no_message_is_left_out_and_a_result_without_a_call_gets_one(db, export):
    inside = StepFacts(parent="c")
    facts = (StepFacts(call_id="c"), inside, StepFacts(call_id="c"), StepFacts(), StepFacts())
    alone = step("observation", tool="search", output_summary="found")
    note = step("error_recovery", output_summary="RateLimitError")
    put(db, run("x", CALL, THINK, GOT, alone, note, facts=facts, result_summary="The end"))

    (line,) = export("messages")

    roles = [message["role"] for message in line["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert line["messages"][-1]["content"] == "The end"


def test_a_run_that_was_cut_is_left_out_unless_it_is_wanted(db, export, type_command):
    put(db, run("x", step("thought", content="long… [cut: 99999 characters in all]")))
    put(db, run("y", step("observation", output_summary="[7 of 9 steps left out here]")))

    refused = type_command("export", "out.jsonl", "--as", "messages")

    assert (refused.exit_code, len(export("messages", "--with-cut"))) == (4, 2)
    assert "left out: 2 cut (--with-cut includes those)" in refused.stderr


def judged(db, name, source, direction, **told):
    vector = np.zeros(4, "<f4")
    vector[direction] = 1
    put(db, run(name, ASK, DONE, id=name, success_source=source, **told), vector=vector.tobytes())


def test_pairs_are_of_like_tasks_and_by_feedback_or_a_verdict_alone(db, export, tmp_path):
    judged(db, "good", "feedback", 0)
    judged(db, "bad", "verdict", 0, success=False, result_summary="No.")
    judged(db, "said", "said", 0, success=False)
    judged(db, "else", "verdict", 1, success=False)
    judged(db, "alone", "verdict", 2)

    (line,) = export("pairs")

    assert [message["content"] for message in line["prompt"]] == ["Refund order 7"]
    assert line["rejected"][-1]["content"] == "Refunded.\n\nNo."[-3:]
    assert manifest(tmp_path, "pairs.jsonl")["pairs"] == [
        {"chosen": "kp:trace:good", "rejected": "kp:trace:bad", "similarity": 1.0}
    ]


def test_only_known_successes_and_no_near_copies_the_newest_so_many(db, export, tmp_path):
    for number, name in enumerate(["old", "copy", "other", "last"]):
        judged(db, name, "feedback", (0, 0, 1, 2)[number])
    judged(db, "assumed", "assumed", 3)

    export("traces", "--success", "--unlike", "0.8", "-n", "2")
    two = manifest(tmp_path, "traces.jsonl")
    export("traces", "--success", "--unlike", "0.8", "--force")

    assert two["ids"] == ["kp:trace:other", "kp:trace:last"]
    assert two["filters"] == {"success": True, "unlike": 0.8, "limit": 2}
    assert manifest(tmp_path, "traces.jsonl")["ids"][0] == "kp:trace:copy"
    assert manifest(tmp_path, "traces.jsonl")["left_out"] == {"near_copy": 1}


@pytest.mark.usefixtures("refund")
def test_one_manifest_tells_of_all_exports_of_a_folder(db, export, tmp_path):
    put(db, run("mail anna@example.org", THINK, id="b", redactions={"api_key": 2}))

    export("messages")
    export("inspect", "--success")

    both = json.loads((tmp_path / "manifest.json").read_text())
    assert [*both] == ["messages.jsonl", "inspect.jsonl"]
    assert both["messages.jsonl"]["redacted"] == {"email": 1}
    assert both["messages.jsonl"]["redacted_when_recorded"] == {"api_key": 2}
    assert both["messages.jsonl"]["success"] == {"succeeded": 2}
    assert "system prompts" in both["messages.jsonl"]["cannot_be_made_again"]
    assert stat.S_IMODE((tmp_path / "manifest.json").stat().st_mode) == 0o600


@pytest.mark.usefixtures("refund")
def test_drafts_of_skills_are_never_overwritten_and_their_names_are_safe(type_command, tmp_path):
    folder = tmp_path / "drafts"

    type_command("export", "--skills", str(folder))
    (draft,) = folder.glob("*/SKILL.md")
    text = draft.read_text()
    draft.write_text("mine")
    again = type_command("export", "--skills", str(folder))

    assert (draft.parent.name, draft.read_text()) == ("refund-order-7-a", "mine")
    assert "0 drafts written to " in again.stderr
    assert "; 1 exist already" in again.stderr
    assert text.startswith('---\nname: refund-order-7-a\ndescription: "Refund order 7"\n---\n')
    assert "Its success is confirmed (feedback)." in text
    assert stat.S_IMODE(draft.stat().st_mode) == 0o600


def test_drafts_are_of_runs_that_went_well_not_of_the_highest_scores(db, type_command, tmp_path):
    with KnowledgePulse(db=db, embedder=None, sync=True) as kp:

        @kp.capture
        def refund(task, errors):
            current_trace().tool_call("orders", {"task": task})
            current_trace().observation("paid", tool="orders")
            for _ in range(errors):
                current_trace().error("locked", tool="refund")
            return "Refunded."

        for errors in [4, 0, 0, 0, 0, 0]:
            refund(f"Refund order {errors}", errors)
        best = kp.run("@best")

    type_command("export", "--skills", str(tmp_path / "drafts"))

    assert best.objective == "Refund order 4"
    names = [draft.name[:14] for draft in (tmp_path / "drafts").iterdir()]
    assert names == ["refund-order-0"] * 5


def test_the_description_of_a_draft_is_readable_in_any_language(db, type_command, tmp_path):
    put(db, run("Brew 🍵 für 茶\u202e", ASK, CALL, GOT, DONE), with_value(0.5))

    type_command("export", "--skills", str(tmp_path / "drafts"))

    (draft,) = (tmp_path / "drafts").glob("*/SKILL.md")
    assert '\ndescription: "Brew 🍵 für 茶?"\n' in draft.read_text("utf-8")


def test_a_draft_shows_no_id_that_is_not_redacted(db, type_command, tmp_path):
    imported = run("Refund it", ASK, CALL, GOT, DONE, id="alice.smith@example.com")
    put(db, imported, with_value(0.5))

    type_command("export", "--skills", str(tmp_path / "drafts"))

    (draft,) = (tmp_path / "drafts").glob("*/SKILL.md")
    assert "example.com" not in f"{draft} {draft.read_text()}"


@pytest.mark.usefixtures("refund")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["out", "--as", "parquet"], "is not one of 'messages', 'hf-trace', 'inspect'"),
        (["--as", "atif"], "name a folder"),
        (["taken.jsonl"], "exists: choose another name, or replace it with --force"),
        (["folder"], "is not a regular file: choose another"),
        (["folder", "--as", "atif"], "is not an empty folder"),
        (["taken.jsonl", "--as", "atif"], "is not an empty folder"),
        (["gone/x.jsonl"], "No such file or directory; choose another path"),
        (["x", "-d", "nothing"], "nothing matches: nothing was written"),
        (["-d", "nothing"], "nothing matches: nothing was written"),
        (["x", "--as", "pairs"], "see kp-middleware review"),
        (["x", "--as", "pairs", "--success"], "omit --success and --unlike"),
        (["x", "--success", "-d", "code"], "see kp-middleware review"),
        (["manifest.json"], "is the name of the manifest: choose another"),
        (["folder/new"], "was not written by an export: choose another folder"),
        (["dangling", "--as", "hf-trace"], "is a dangling link: remove it"),
        (["--skills", "dangling"], "is a dangling link: remove it"),
        (["--skills", "taken.jsonl"], "not a directory: "),
    ],
    ids=" ".join,
)
def test_what_goes_wrong_says_what_to_do(type_command, tmp_path, monkeypatch, words, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken.jsonl").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "manifest.json").write_text("[]")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")

    result = type_command("export", *words)

    assert result.exit_code in {1, 2, 4}
    assert says in " ".join(result.stderr.split())
    assert not (tmp_path / "x").exists()


@pytest.fixture
def conversations(shared, tmp_path):
    """Twenty that were had with a model, as a file of messages."""
    path = tmp_path / "tau.jsonl"
    with gzip.open(shared / "data/tau_airline_gpt4o_open.jsonl.gz") as lines:
        path.write_bytes(b"".join(islice(lines, 20)))
    return path


def rows_in(db, query):
    with closing(connect(db)) as connection:
        return connection.execute(query).fetchall()


def test_conversations_come_back_through_messages_with_the_same_steps(
    conversations, db, type_command, tmp_path
):
    out, again = tmp_path / "out.jsonl", tmp_path / "again.db"
    steps = "SELECT json_extract(body, '$.steps') FROM documents ORDER BY 1"
    type_command("import", "messages", str(conversations))

    type_command("export", str(out), "--as", "messages", "--as-recorded")
    type_command("--db", str(again), "import", "messages", str(out))

    assert len(rows_in(db, steps)) == 20
    assert rows_in(again, steps) == rows_in(db, steps)


def test_traces_come_back_byte_for_byte_with_their_ids(conversations, db, type_command, tmp_path):
    documents = "SELECT body FROM documents ORDER BY trace_seq"
    with conversations.open("a") as file:  # nobody knows whether it succeeded
        file.write(
            '[{"role": "user", "content": "Sing."}, {"role": "assistant", "content": "La."}]'
        )
    type_command("import", "messages", str(conversations), "--shareable")
    first, second, again = (tmp_path / name for name in ("1.jsonl", "2.jsonl", "again.db"))

    type_command("export", str(first), "--as", "traces", "--as-recorded")
    type_command("--db", str(again), "import", "traces", str(first), "--shareable")
    type_command("--db", str(again), "export", str(second), "--as-recorded")

    assert rows_in(again, documents) == rows_in(db, documents)
    assert first.read_bytes() == second.read_bytes()
    assert len(first.read_bytes().splitlines()) == 21
