"""The queue in memory is bounded in bytes, and loses no run."""

import threading
import tracemalloc
from contextlib import contextmanager

import pytest
from pipeline_helpers import SideEffectEmbedder, warnings_in

from kp_middleware import ReasoningTrace, Step
from kp_middleware.storage import History

ROOM_FOR_TWO = 110_000 + 2 * 4096


@pytest.fixture
def busy(pulse):
    """A pipeline that scores a first run until the block ends, while others wait in memory."""

    @contextmanager
    def hold(**settings):
        begun, may_go_on = threading.Event(), threading.Event()
        embedder = SideEffectEmbedder(lambda: (begun.set(), may_go_on.wait(30)))
        kp = pulse(embedder=embedder, **settings)
        kp.submit(trace_of(1))
        assert begun.wait(30)
        yield kp
        may_go_on.set()

    return hold


def trace_of(size):
    return ReasoningTrace.of("x" * size, [Step(step_id=0, type="thought")])


def record(kp, note, count=900):
    recorder = kp.start_recording("python")
    [note(recorder, number) for number in range(count)]
    recorder.finish()


def test_beyond_its_bytes_runs_are_dropped_which_is_said_once_and_what_is_kept_makes_room(
    busy, caplog, connection, db
):
    with busy(max_queue_bytes=ROOM_FOR_TWO) as kp:
        [kp.submit(trace_of(50_000)) for _ in range(4)]
        kp.end_thread("T")  # which fits where a trace does not
        during = kp.stats()
    kp.flush(30)
    kp.submit(trace_of(50_000))
    kp.flush(30)

    assert (during.in_memory, during.dropped) == (3, 2)
    after = kp.stats()
    assert (after.in_memory, after.dropped, after.scored) == (0, 2, 4)
    assert History(connection).file_status(db).dropped == 2
    assert warnings_in(caplog) == [
        (
            "a run was dropped: the queue is full: see kp.stats().trouble,"
            " or raise max_queue_bytes; further cases are counted, not logged"
        )
    ]


def test_the_steps_of_a_recorder_count(busy):
    with busy(max_queue_bytes=20_000) as kp:
        record(kp, lambda recorder, _: recorder.thought("ab"), 1)
        fits = kp.stats().dropped
        record(kp, lambda recorder, _: recorder.thought("a" * 600), 30)
        record(kp, lambda recorder, _: recorder.thought("ab"), 60)

        assert (fits, kp.stats().dropped) == (0, 2)


@pytest.mark.parametrize(
    "note",
    [
        lambda recorder, number: recorder.thought(f"ab {number}"),
        lambda recorder, number: recorder.tool_call("search", {"q": f"word {number}"}),
        lambda recorder, number: recorder.observation(
            tool="search", output_summary=f"row {number} " * 5, latency_ms=number / 2
        ),
        lambda recorder, number: recorder.thought(f"{number} " * 500),
    ],
    ids=["short thoughts", "tool calls", "observations", "long thoughts"],
)
def test_the_bound_is_about_what_the_runs_take_in_memory(busy, note):
    with busy(max_queue_bytes=4_000_000) as kp:
        tracemalloc.start()
        while not kp.stats().dropped:
            record(kp, note)
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    assert 4_000_000 / 1.6 < taken < 4_000_000 * 1.5
