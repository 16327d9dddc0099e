"""Finished runs at the program's exit, however it was started."""

import time

import pytest
from pipeline_helpers import column_of

from kp_middleware.testing import Fault, LocalRegistry

BEGIN = """
import multiprocessing, sys, threading, time
from kp_middleware import KnowledgePulse
from kp_middleware.testing import StandInEmbedder

def record(words):
    kp = KnowledgePulse(embedder=StandInEmbedder())
    for word in words:
        kp.capture(lambda text: text)(word)
"""


@pytest.fixture
def objectives(db):
    return lambda: sorted(column_of(db, "objective"))


def test_a_program_that_just_ends_keeps_and_scores_all_that_it_has_in_memory(run_child, db):
    runs = "str(number) + ' a long answer' * 200 for number in range(60)"

    run_child(f"{BEGIN}record({runs})", KP_THRESHOLD="0")  # or a log line says that none cleared

    assert len(column_of(db, "objective")) == 60
    assert "scored" in column_of(db, "state")


START_THEM = """
    children = [multiprocessing.get_context(method).Process(target=work, args=(method,))
                for method in ("fork", "forkserver", "spawn")]
    [child.start() for child in children]
    [child.join() for child in children]
"""


def test_a_child_of_multiprocessing_keeps_its_runs(run_child, objectives):
    run_child(
        f"""{BEGIN}
def work(method):
    record([f"one of {{method}}", f"two of {{method}}"])

if __name__ == "__main__":{START_THEM}"""
    )

    methods = ("fork", "forkserver", "spawn")
    assert objectives() == [f"{run} of {method}" for run in ("one", "two") for method in methods]


def test_a_child_keeps_what_it_records_with_the_pipeline_of_its_program(run_child, objectives):
    run_child(
        f"""{BEGIN}
kp = KnowledgePulse(embedder=StandInEmbedder())
agent = kp.capture(lambda text: text)

def work(text):
    agent(text)

if __name__ == "__main__":
    work("parent"){START_THEM}"""
    )

    assert objectives() == ["fork", "forkserver", "parent", "spawn"]


SEND_ONE = f"""{BEGIN}
kps = [KnowledgePulse(embedder=StandInEmbedder(), threshold=0) for _ in range(3)]
for kp in kps:
    kp.capture(lambda text: text)("one")
kps[0].flush(0.5)
print(time.time())
"""
HALF_OF_A_REQUEST_S = 5.0
HALF_OF_AN_EMBEDDING_S = 30.0


@pytest.fixture
def seconds_to_end(run_child):
    """Return how long a sending program takes to exit, with a registry that answers so."""

    def run(answers=()):
        with LocalRegistry(answers=answers) as registry:
            printed = run_child(SEND_ONE, KP_REGISTRY_URL=registry.url, KP_API_KEY=registry.api_key)
            return time.time() - float(printed)

    return run


def test_a_program_ends_about_as_soon_where_the_registry_hangs_and_keeps_what_it_did_not_send(
    seconds_to_end, db
):
    hanging_s = seconds_to_end(lambda _: Fault.HANG)
    states = column_of(db, "state", "outbox")

    assert hanging_s < seconds_to_end() + HALF_OF_A_REQUEST_S
    assert {*states} <= {"pending", "sending"}


SLOW = f"""{BEGIN}
begun = threading.Event()

class Slow(StandInEmbedder):
    def embed(self, text, /):
        begun.set()
        threading.Event().wait(60)

kps = [KnowledgePulse(embedder=Slow()) for _ in range(12)]
for kp in kps:
    kp.capture(lambda text: text)("one")
begun.wait()
print(time.time())
"""


def test_pipelines_whose_model_is_slow_end_together_and_leave_their_runs(run_child, db):
    printed = run_child(SLOW)
    took_s = time.time() - float(printed)

    assert took_s < HALF_OF_AN_EMBEDDING_S
    assert column_of(db, "state") == ["recorded"] * 12


def test_a_program_never_ends_inside_the_model(run_child):
    told = run_child(
        f"""{BEGIN}
class Model(StandInEmbedder):
    begun = threading.Event()

    def embed(self, text, /):
        self.begun.set()
        time.sleep(0.5)
        print("out of the model")
        return super().embed(text)

kp = KnowledgePulse(embedder=Model())
kp.capture(lambda text: text)("one")
Model.begun.wait(20)
kp.close(timeout_s=0.01)
del kp
"""
    )

    assert told == "out of the model\n" * 2  # it embeds the run, and what was said in it


INTERRUPTED = f"""{BEGIN}
import os, signal

def interrupt():
    while not kp.closed:
        time.sleep(0.01)
    time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGTERM)

signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # as gunicorn's workers do
kp = KnowledgePulse(embedder=StandInEmbedder(), threshold=0)
threading.Thread(target=interrupt, daemon=True).start()
kp.capture(lambda text: text)("one")
kp.flush(0.5)
"""
CLOSED = """
try:
    kp.close(timeout_s=30)
except SystemExit:
    print("interrupted")
"""


@pytest.mark.parametrize(
    ("end", "printed"), [("", ""), (CLOSED, "interrupted\n")], ids=["at the exit", "in close"]
)
def test_a_signal_while_a_program_ends_releases_what_it_was_sending(run_child, db, end, printed):
    with LocalRegistry(answers=lambda _: Fault.HANG) as registry:
        sent_to = {"KP_REGISTRY_URL": registry.url, "KP_API_KEY": registry.api_key}
        said = run_child(INTERRUPTED + end, **sent_to)

    assert said == printed
    assert column_of(db, "state", "outbox") == ["pending"]


def test_a_program_ends_after_a_slow_registry_has_answered(run_child, db):
    with LocalRegistry(answers=lambda _: time.sleep(0.8)) as registry:
        sent_to = {"KP_REGISTRY_URL": registry.url, "KP_API_KEY": registry.api_key}
        run_child(
            f"""{BEGIN}
kp = KnowledgePulse(embedder=StandInEmbedder(), threshold=0)
for word in ("one", "two", "three", "four"):
    kp.capture(lambda text: text)(word)
""",
            **sent_to,
        )

    assert len(registry.requests) == column_of(db, "state", "outbox").count("sent")
