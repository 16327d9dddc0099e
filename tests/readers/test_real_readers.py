"""Exports are read by the software that they are for: `make test-readers`."""

import json
import re

import pytest
from sample_runs import put, run, step, with_value

pytest.importorskip("inspect_ai", reason="needs the readers of requirements/readers.lock")

ASKED = step("observation", content="Refund order 7 of anna@example.org")
CALLED = [step("tool_call", tool="orders", input={"id": 7, "deep": {"a": [1, None]}})]
SAID = [*CALLED, step("observation", tool="orders", output_summary="paid")]
FAILED = [
    step("tool_call", tool="refund"),
    step("error_recovery", tool="refund", output_summary="E"),
]
DONE = step("thought", content="Refunded.")
VECTOR = b"\0\0\x80\x3f\0\0\0\0"


@pytest.fixture(autouse=True)
def _nothing_is_asked_of_the_hub(monkeypatch, home):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(home))


@pytest.fixture
def exported(db, type_command, tmp_path):
    """Export four runs of all kinds; returns the path."""
    steps = (ASKED, step("thought", content="I look."), step("thought", content="Hm."), *SAID)
    how = {"result_summary": "Refunded.", "model": "m-1", "success_source": "feedback"}
    put(db, run("a", *steps, *FAILED, DONE, **how), with_value(0.5), vector=VECTOR)
    put(db, run("b", ASKED, *SAID, success=False, **how), with_value(0.4), vector=VECTOR)
    put(db, run("c", ASKED, DONE, success_source="assumed"))
    put(db, run("d", ASKED, *CALLED, success_source="assumed"))

    def to(format_, *words):
        out = tmp_path / f"out-{format_}.jsonl"
        result = type_command("export", str(out), "--as", format_, *words)
        assert result.exit_code == 0, result.output
        return out

    return to


def lines(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_openai_s_own_types_take_the_messages(exported):
    from openai.types.chat import ChatCompletionMessageParam
    from pydantic import TypeAdapter

    histories = TypeAdapter(list[ChatCompletionMessageParam])

    for line in lines(exported("messages")):
        [*histories.validate_python(line["messages"])]


@pytest.mark.parametrize("format_", ["messages", "pairs", "inspect", "langsmith"])
def test_datasets_load_each_file_of_lines(exported, format_):
    from datasets import load_dataset

    path = exported(format_)
    loaded = load_dataset("json", data_files=str(path), split="train")

    assert len(loaded) == len(lines(path)) > 0
    assert {*loaded.column_names} == {*lines(path)[0]}


def test_trl_takes_messages_and_pairs_for_conversations(exported):
    from trl.data_utils import is_conversational

    assert all(map(is_conversational, lines(exported("messages", "--arguments", "object"))))
    assert all(map(is_conversational, lines(exported("pairs"))))


def test_inspect_reads_its_samples(exported):
    from inspect_ai.dataset import json_dataset

    samples = json_dataset(str(exported("inspect")))

    assert [sample.input for sample in samples] == ["Refund order 7 of [REDACTED:email]"] * 4
    assert [sample.target for sample in samples] == ["Refunded.", "", "", ""]
    assert [sample.metadata["success"] for sample in samples] == [True, False, None, None]


def test_langsmith_takes_its_examples(exported):
    from langsmith.schemas import ExampleCreate

    told = lines(exported("langsmith"))
    with pytest.warns(DeprecationWarning, match="reference_outputs"):  # older clients know no other
        examples = [ExampleCreate.model_validate(line) for line in told]

    assert [example.metadata["success"] for example in examples] == [True, False, None, None]
    assert examples[0].outputs["messages"][-1]["content"] == "Refunded."


def test_harbor_reads_its_trajectories(exported):
    models = pytest.importorskip("harbor.models.trajectories", reason="needs Python 3.12")

    read = [
        models.Trajectory.model_validate_json(one.read_text()) for one in exported("atif").iterdir()
    ]

    assert len(read) == 4
    assert sum(len(step.tool_calls or ()) for one in read for step in one.steps) == 4


def test_the_hub_s_viewer_has_the_fields_of_its_documentation(exported):
    """It has no package; each field is one that its page names."""
    known = {"role", "content", "reasoningContent", "toolCalls", "toolCallId", "timestamp", "model"}

    for file in exported("hf-trace").iterdir():
        head, *messages = lines(file)
        assert head.keys() == {"type", "harness", "id", "name"}
        assert all(line["type"] == "message" for line in messages)
        assert all(line["message"].keys() <= known for line in messages)
        assert re.fullmatch(r"[\w-]+\.jsonl", file.name)
