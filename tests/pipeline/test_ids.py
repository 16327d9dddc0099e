"""The ids of runs: the program's own randomness is left alone, and no two runs share one."""

import os
import random
import threading
import uuid
from pkgutil import resolve_name
from unittest import mock

import pytest
from pipeline_helpers import column_of

from kp_middleware import current_trace


@pytest.fixture
def ids(db):
    """Of the traces in the file."""
    return lambda: column_of(db, "id")


def answering(kp):
    @kp.capture
    def answer(question):
        current_trace().thought(question)
        return question

    return answer


@pytest.mark.parametrize("patched", ["uuid.uuid4", "time.time", "time.perf_counter"])
@pytest.mark.parametrize("way", ["captured", "tool", "start_recording"])
def test_a_program_that_patches_what_it_calls_is_called_by_nobody_else(pulse, ids, patched, way):
    kp = pulse()
    answer, look = answering(kp), kp.tool(lambda: "seen")
    original, threads = resolve_name(patched), []

    def own():
        threads.append(threading.get_ident())
        return original()

    with mock.patch(patched, own):
        match way:
            case "captured":
                answer("why?")
            case "tool":
                kp.capture(lambda _: look())("why?")
            case "start_recording":
                recorder = kp.start_recording("mine")
                recorder.thought("why?")
                recorder.finish()

    kp.flush()
    assert threading.get_ident() not in threads
    assert len(ids()) == 1


def test_a_program_that_has_seeded_its_luck_keeps_it(pulse):
    random.seed(7)
    expected = [random.random() for _ in range(3)]
    kp = pulse(registry_url="http://127.0.0.1:9", api_key="kp_x", threshold=0)
    random.seed(7)

    [answering(kp)(f"why {number}?") for number in range(3)]
    kp.close()

    assert [random.random() for _ in range(3)] == expected


def test_ids_are_uuids_of_version_4_and_runs_that_were_given_one_id_are_all_kept(pulse, ids):
    kp = pulse(sync=True)

    with mock.patch("os.urandom", return_value=bytes(16)):
        [answering(kp)(f"why {number}?") for number in range(3)]

    assert len(set(ids())) == 3
    assert {uuid.UUID(one.removeprefix("kp:trace:")).version for one in ids()} == {4}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_run_that_forks_and_ends_twice_is_two(pulse, ids):
    kp = pulse()

    @kp.capture
    def split(question):
        current_trace().thought(question)
        return os.fork()

    child = split("why?")
    if child == 0:
        kp.close()
        os._exit(0)
    os.waitpid(child, 0)
    kp.flush()

    assert len(set(ids())) == 2
