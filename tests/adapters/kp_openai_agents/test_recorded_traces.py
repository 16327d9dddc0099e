"""Recorded events of OpenAI's SDK become the same runs as its OpenTelemetry spans."""

import pytest
from framework_dumps import FOLDER, as_expected, dump_names, expected, load
from native_replay import replay

from kp_openai_agents import KPTracingProcessor

pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="the shared material is not here")

NATIVE = "openai_agents_native"
OTHERS = {"handoff", "no_content", "stream_left_early", "two_turns_in_one_trace"}
SCENES = [name for name in dump_names(NATIVE) if name.split(".")[1] not in OTHERS]


@pytest.fixture
def processor(collector):
    return KPTracingProcessor(collector)


def dump(scene):
    return load("dumps", f"{NATIVE}.{scene}.json.gz")


@pytest.mark.parametrize("name", SCENES)
def test_a_trace_becomes_the_steps_that_its_spans_become(name, collector, processor, buffer):
    replay(load("dumps", name), processor)

    wanted = expected(name.replace("native", "openinference"))
    found = [as_expected(run) for run in collector.runs]
    for run, want in zip(found, wanted, strict=True):
        if want["objective"] is None:
            run["objective"] = None  # it has the name of its agent
    assert found == wanted
    assert {run.complete for run in collector.runs} == {".cancelled." not in name}
    assert len(buffer) == 0


def test_two_runs_in_one_trace_stay_two(collector, processor):
    replay(dump("two_turns_in_one_trace"), processor)

    assert [run.trace.task.objective for run in collector.runs] == ["Good morning.", "Which order?"]


def test_a_handoff_answers_the_call_that_asked_for_it(collector, processor):
    replay(dump("handoff"), processor)

    steps = as_expected(collector.runs[0])["steps"]
    assert [step.get("output_summary") for step in steps] == [None, None, "to expert", None]
    assert steps[3]["beside"] == "expert"


@pytest.mark.parametrize(("scene", "counted"), [("no_content", 1), ("stream_left_early", 0)])
def test_a_trace_that_tells_nothing_is_not_kept(
    scene, counted, collector, processor, without_content
):
    replay(dump(scene), processor)

    assert collector.runs == []
    assert without_content() == counted
