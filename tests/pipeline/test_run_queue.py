"""Bounded by bytes, and nothing is forgotten between two hands."""

import threading
import time
import tracemalloc

import pytest

from kp_middleware import ReasoningTrace, Step
from kp_middleware.pipeline._queue import RunQueue, ThreadEnd
from kp_middleware.recording import Limits, Recorder

LONG_S = 30.0


class Clockwork:
    """What waits for a queue, in a thread of its own."""

    def __init__(self, wait):
        self.result = None
        self._thread = threading.Thread(target=self._run, args=(wait,), daemon=True)
        self._thread.start()

    def _run(self, wait):
        self.result = wait()

    def end(self):
        self._thread.join(LONG_S)
        assert not self._thread.is_alive()
        return self.result


def trace_of(size):
    return ReasoningTrace.of("x" * size, [Step(step_id=0, type="thought")])


def recorder_of(note, count=900):
    recorder = Recorder(lambda _: None, Limits(), framework="python")
    [note(recorder, number) for number in range(count)]
    recorder.finish()
    return recorder


@pytest.fixture
def queue():
    """With room for two traces of 50,000 characters."""
    return RunQueue(110_000 + 2 * 4096)


def filled(queue, size=50_000):
    return [queue.put(trace_of(size)) for _ in range(3)]


def test_beyond_its_bytes_a_run_is_refused(queue):
    assert filled(queue) == [True, True, False]
    assert queue.waiting == 2


def test_what_is_taken_makes_room(queue):
    filled(queue)

    queue.take(0)

    assert queue.put(trace_of(50_000))


def test_what_is_put_back_is_the_next(queue):
    filled(queue)
    first = queue.take(0)

    queue.put_back(first)

    assert (queue.waiting, queue.take(0)) == (2, first)


def test_a_run_is_in_memory_alone_until_it_is_kept(queue):
    filled(queue)
    queue.take(0)
    in_hand = queue.waiting

    queue.kept()

    assert (in_hand, queue.waiting) == (2, 1)


def test_the_steps_of_a_recorder_count():
    small = recorder_of(lambda recorder, _: recorder.thought("ab"), 1)
    queue = RunQueue(20_000)

    assert queue.put(small)
    assert not queue.put(recorder_of(lambda recorder, _: recorder.thought("a" * 600), 30))
    assert not queue.put(recorder_of(lambda recorder, _: recorder.thought("ab"), 60))


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
def test_the_bound_is_about_what_the_runs_take_in_memory(note):
    recorder_of(note, 3)
    queue = RunQueue(4_000_000)

    tracemalloc.start()
    while queue.put(recorder_of(note)):
        pass
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert 4_000_000 / 1.6 < taken < 4_000_000 * 1.5


def test_the_end_of_a_thread_fits_where_a_trace_does_not(queue):
    filled(queue)

    assert queue.put(ThreadEnd("t", success=None, confidence=None))


def test_who_sleeps_is_woken_by_a_run(queue):
    sleeper = Clockwork(lambda: queue.take(LONG_S))

    queue.put(trace := trace_of(1))

    assert sleeper.end() is trace


def test_who_is_woken_before_it_sleeps_does_not_sleep(queue):
    queue.wake()

    assert Clockwork(lambda: queue.take(10 * LONG_S)).end() is None


def test_who_is_asked_to_look_wakes_up_and_something_is_unfinished_until_it_has(queue):
    sleeper = Clockwork(lambda: queue.take(10 * LONG_S))
    queue.ask_to_look()
    sleeper.end()
    waiter = Clockwork(lambda: queue.wait_until_done(10 * LONG_S))

    queue.all_done(queue.asks)

    waiter.end()


def test_waiting_ends_when_all_is_done_or_nothing_can_be(queue):
    filled(queue)
    first = Clockwork(lambda: queue.wait_until_done(10 * LONG_S))
    second = Clockwork(lambda: queue.wait_until_kept(0.0, 10 * LONG_S, patience_in_trouble_s=0))

    queue.meet_trouble(lasting=True)

    first.end()
    second.end()


def test_who_is_in_trouble_is_waited_for_less_long(queue):
    filled(queue)
    queue.meet_trouble(lasting=False)

    Clockwork(
        lambda: queue.wait_until_kept(
            time.monotonic() - LONG_S, 10 * LONG_S, patience_in_trouble_s=LONG_S
        )
    ).end()

    assert queue.waiting == 2


def test_as_long_as_runs_are_kept_they_are_waited_for(queue):
    filled(queue)
    waiter = Clockwork(
        lambda: queue.wait_until_kept(time.monotonic(), LONG_S, patience_in_trouble_s=0)
    )

    [(queue.take(0), queue.kept()) for _ in range(2)]

    waiter.end()
    assert queue.waiting == 0


def test_what_was_dropped_is_told_once(queue):
    assert [queue.drop(), queue.drop()] == [1, 2]

    queue.told(queue.untold)

    assert (queue.dropped, queue.untold) == (2, 0)
