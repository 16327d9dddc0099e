"""What frameworks told OpenTelemetry becomes the runs that it should."""

import pytest
from played import kept_by_the_collector, play
from told_runs import FOLDER, expected, load, names, told

from kp_otel import KPSpanProcessor

pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="the shared material is not here")

DUMPS = [name for name in names() if not name.startswith(("crewai_native", "openai_agents_native"))]
WITHOUT_CONTENT = {name for name in DUMPS if ".no_content." in name} | set(names("google_adk"))
NOTHING_DONE = {  # neither a model nor a tool
    *(name for name in DUMPS if name.startswith("openai") and ".stream_left_early." in name),
    *names("crewai_openinference"),
    "crewai_openinference_events.model_ends_it.json.gz",
}
TWO_IN_A_TRACE = {name for name in DUMPS if ".two_turns_in_one_trace." in name}
HANDOFF = "openai_agents_openinference.handoff.json.gz"
OLD = "pydantic_ai.answer.v2.json.gz"
AS_EXPECTED = sorted({*DUMPS} - WITHOUT_CONTENT - NOTHING_DONE - TWO_IN_A_TRACE - {HANDOFF, OLD})
NEVER_OVER = {*names("crewai_openinference_events")}
INCOMPLETE = {"cancelled", "stream_left_early"}


@pytest.fixture
def processor(book):
    return KPSpanProcessor(book)


@pytest.mark.parametrize("name", AS_EXPECTED)
def test_spans_become_the_runs_that_they_should_live_and_from_a_file(
    name, book, processor, tmp_path
):
    document, wanted = load("dumps", name), expected(name)

    play(document, processor)
    if name not in NEVER_OVER:  # all others need no end of the program
        assert (len(book.ended), len(processor._buffer)) == (len(wanted), 0)
    processor.shutdown()

    found = [told(run) for run in book.runs]
    if not document["never_ended"]:
        kept = kept_by_the_collector(document, tmp_path / "otlp.jsonl")
        assert [told(run) for run in kept] == found
    for run, want in zip(found, wanted, strict=True):
        if want["agent_name"] is None:
            run["agent_name"] = None  # it has the name of its span
        if want["objective"] is None:
            run["objective"] = None  # it has the name of its agent
    assert found == wanted
    stopped = document["scene"] in INCOMPLETE or bool(document["never_ended"])
    assert {run.complete for run in book.runs} == {not stopped}


@pytest.mark.parametrize("name", sorted(WITHOUT_CONTENT))
def test_a_run_without_content_is_counted_and_not_kept(
    name, book, processor, without_content, tmp_path
):
    document = load("dumps", name)

    play(document, processor)

    assert book.runs == kept_by_the_collector(document, tmp_path / "otlp.jsonl") == []
    assert without_content() == len(expected(name))


@pytest.mark.parametrize("name", sorted(NOTHING_DONE))
def test_a_run_in_which_nothing_was_done_is_not_kept(name, book, processor, tmp_path):
    document = load("dumps", name)

    play(document, processor)
    processor.shutdown()

    assert book.runs == []
    if not document["never_ended"]:
        assert kept_by_the_collector(document, tmp_path / "otlp.jsonl") == []


@pytest.mark.parametrize("name", sorted(TWO_IN_A_TRACE))
def test_two_runs_in_one_trace_are_two(name, book, processor, tmp_path):
    document = load("dumps", name)

    play(document, processor)

    for runs in (book.runs, kept_by_the_collector(document, tmp_path / "otlp.jsonl")):
        assert [(run.trace.task.objective, len(run.trace.steps)) for run in runs] == [
            ("Good morning.", 2),
            ("Which order?", 2),
        ]


def test_a_handoff_answers_its_call(book, processor):
    play(load("dumps", HANDOFF), processor)

    steps = told(book.runs[0])["steps"]
    assert steps[1:3] == [
        {"type": "tool_call", "tool": "transfer_to_expert", "input": {}},
        {"type": "observation", "tool": "transfer_to_expert", "output_summary": "to expert"},
    ]
    assert steps[3]["beside"] == "expert"


def test_an_old_format_has_the_same_steps_as_a_new_one(book, processor):
    play(load("dumps", OLD), processor)

    [wanted] = expected("pydantic_ai.answer.v5.json.gz")
    assert told(book.runs[0])["steps"] == wanted["steps"]
