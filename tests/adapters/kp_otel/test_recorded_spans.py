"""Recorded spans of frameworks become the expected runs."""

import pytest
from framework_dumps import FOLDER, as_expected, dump_names, expected, load
from span_replay import replay, runs_of_an_otlp_file

from kp_otel import KPSpanProcessor

pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="the shared material is not here")

DUMPS = [
    name for name in dump_names() if not name.startswith(("crewai_native", "openai_agents_native"))
]
WITHOUT_CONTENT = {name for name in DUMPS if ".no_content." in name} | set(dump_names("google_adk"))
NOTHING_DONE = {  # neither a model nor a tool
    *(name for name in DUMPS if name.startswith("openai") and ".stream_left_early." in name),
    *dump_names("crewai_openinference"),
    "crewai_openinference_events.model_ends_it.json.gz",
}
TWO_IN_A_TRACE = {name for name in DUMPS if ".two_turns_in_one_trace." in name}
HANDOFF = "openai_agents_openinference.handoff.json.gz"
OLD = "pydantic_ai.answer.v2.json.gz"
AS_EXPECTED = sorted({*DUMPS} - WITHOUT_CONTENT - NOTHING_DONE - TWO_IN_A_TRACE - {HANDOFF, OLD})
NEVER_OVER = {*dump_names("crewai_openinference_events")}
INCOMPLETE = {"cancelled", "stream_left_early"}


@pytest.fixture
def processor(collector):
    return KPSpanProcessor(collector)


@pytest.mark.parametrize("name", AS_EXPECTED)
def test_spans_become_the_runs_that_they_should_live_and_from_a_file(
    name, collector, processor, tmp_path, buffer
):
    document, wanted = load("dumps", name), expected(name)

    replay(document, processor)
    if name not in NEVER_OVER:  # all others need no end of the program
        assert (len(collector.ended), len(buffer)) == (len(wanted), 0)
    processor.shutdown()

    found = [as_expected(run) for run in collector.runs]
    if not document["never_ended"]:
        kept = runs_of_an_otlp_file(document, tmp_path / "otlp.jsonl")
        assert [as_expected(run) for run in kept] == found
    for run, want in zip(found, wanted, strict=True):
        if want["agent_name"] is None:
            run["agent_name"] = None  # it has the name of its span
        if name in NEVER_OVER:  # its task is an attribute of its own
            asked = want["objective"] = "Refund order A1, please."
            want["steps"].insert(0, {"type": "observation", "content": asked})
        elif want["objective"] is None:
            run["objective"] = None  # it has the name of its agent
    assert found == wanted
    stopped = document["scene"] in INCOMPLETE or bool(document["never_ended"])
    assert {run.complete for run in collector.runs} == {not stopped}


@pytest.mark.parametrize("name", sorted(WITHOUT_CONTENT))
def test_a_run_without_content_is_counted_and_not_kept(
    name, collector, processor, without_content, tmp_path
):
    document = load("dumps", name)

    replay(document, processor)

    assert collector.runs == runs_of_an_otlp_file(document, tmp_path / "otlp.jsonl") == []
    assert without_content() == len(expected(name))


@pytest.mark.parametrize("name", sorted(NOTHING_DONE))
def test_a_run_in_which_nothing_was_done_is_not_kept(name, collector, processor, tmp_path):
    document = load("dumps", name)

    replay(document, processor)
    processor.shutdown()

    assert collector.runs == []
    if not document["never_ended"]:
        assert runs_of_an_otlp_file(document, tmp_path / "otlp.jsonl") == []


@pytest.mark.parametrize("name", sorted(TWO_IN_A_TRACE))
def test_two_runs_in_one_trace_are_two(name, collector, processor, tmp_path):
    document = load("dumps", name)

    replay(document, processor)

    for runs in (collector.runs, runs_of_an_otlp_file(document, tmp_path / "otlp.jsonl")):
        assert [(run.trace.task.objective, len(run.trace.steps)) for run in runs] == [
            ("Good morning.", 2),
            ("Which order?", 2),
        ]


def test_a_handoff_answers_its_call(collector, processor):
    replay(load("dumps", HANDOFF), processor)

    steps = as_expected(collector.runs[0])["steps"]
    assert steps[1:3] == [
        {"type": "tool_call", "tool": "transfer_to_expert", "input": {}},
        {"type": "observation", "tool": "transfer_to_expert", "output_summary": "to expert"},
    ]
    assert steps[3]["beside"] == "expert"


def test_an_old_format_has_the_same_steps_as_a_new_one(collector, processor):
    replay(load("dumps", OLD), processor)

    [wanted] = expected("pydantic_ai.answer.v5.json.gz")
    assert as_expected(collector.runs[0])["steps"] == wanted["steps"]
