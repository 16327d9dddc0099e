"""What becomes of finished runs when the program ends, however it was started."""

import os
import subprocess
import sys
import time
from contextlib import closing

import pytest

from kp_middleware.database import connect
from kp_middleware.testing import Fault, LocalRegistry

BEGIN = """
import multiprocessing, sys
from kp_middleware import KnowledgePulse
from kp_middleware.testing import StandInEmbedder

def record(words):
    kp = KnowledgePulse(embedder=StandInEmbedder())
    for word in words:
        kp.capture(lambda text: text)(word)
"""


@pytest.fixture
def objectives(db):
    def read():
        connection = connect(db, read_only=True)
        rows = connection.execute("SELECT objective FROM traces ORDER BY objective").fetchall()
        connection.close()
        return [objective for (objective,) in rows]

    return read


def test_a_program_that_just_ends_keeps_all_that_it_has_in_memory(run_child, objectives):
    runs = "str(number) + ' a long answer' * 700 for number in range(150)"

    run_child(f"{BEGIN}record({runs})", KP_THRESHOLD="0")  # or a log line says that none cleared

    assert len(objectives()) == 150


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_a_child_of_multiprocessing_keeps_its_runs(run_child, objectives, tmp_path, method):
    program = tmp_path / "program.py"
    program.write_text(
        f"""{BEGIN}
if __name__ == "__main__":
    child = multiprocessing.get_context({method!r}).Process(target=record, args=(["one", "two"],))
    child.start()
    child.join()
"""
    )

    run_child(f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')")

    assert objectives() == ["one", "two"]


def test_a_child_of_fork_keeps_what_it_records_with_its_parent_s_pipeline(run_child, objectives):
    run_child(
        f"""{BEGIN}
kp = KnowledgePulse(embedder=StandInEmbedder())
shout = kp.capture(lambda text: text)
shout("parent")
child = multiprocessing.get_context("fork").Process(target=shout, args=("child",))
child.start()
child.join()
"""
    )

    assert objectives() == ["child", "parent"]


def test_a_flush_does_what_an_earlier_process_left(run_child, pulse, db, stored):
    run_child(f"{BEGIN}record(['one'])")
    connection = connect(db)
    connection.execute("UPDATE traces SET state = 'recorded', score = NULL, decision = NULL")
    connection.close()

    left = pulse().flush()

    assert (left.unscored, stored()["state"]) == (0, "scored")


SEND_ONE = """
import time
from kp_middleware import KnowledgePulse
from kp_middleware.testing import StandInEmbedder
kps = [KnowledgePulse(embedder=StandInEmbedder(), threshold=0) for _ in range({pipelines})]
for kp in kps:
    kp.capture(lambda text: text)("one")
kps[0].flush(0.5)
print(time.time())
"""
HALF_OF_A_REQUEST_S = 5.0
HALF_OF_AN_EMBEDDING_S = 30.0


@pytest.fixture
def seconds_to_end(run_child):
    """How long a program that sends takes to end, with a registry of such answers."""

    def run(pipelines, answers=()):
        with LocalRegistry(answers=answers) as registry:
            printed = run_child(
                SEND_ONE.format(pipelines=pipelines),
                KP_REGISTRY_URL=registry.url,
                KP_API_KEY=registry.api_key,
            )
            return time.time() - float(printed)

    return run


@pytest.mark.parametrize("pipelines", [1, 3])
def test_a_program_ends_about_as_soon_where_the_registry_hangs_and_keeps_what_it_did_not_send(
    seconds_to_end, db, pipelines
):
    hanging_s = seconds_to_end(pipelines, lambda _: Fault.HANG)
    with closing(connect(db, read_only=True)) as connection:
        states = connection.execute("SELECT DISTINCT state FROM outbox").fetchall()

    assert hanging_s < seconds_to_end(pipelines) + HALF_OF_A_REQUEST_S
    assert {*states} <= {("pending",), ("sending",)}


SLOW = """
import threading, time
from kp_middleware import KnowledgePulse
from kp_middleware.testing import StandInEmbedder
begun = threading.Event()

class Slow(StandInEmbedder):
    def embed(self, text, /):
        begun.set()
        threading.Event().wait(60)

kps = [KnowledgePulse(embedder=Slow()) for _ in range(4)]
for kp in kps:
    kp.capture(lambda text: text)("one")
begun.wait()
print(time.time())
"""


def test_pipelines_whose_model_is_slow_end_together_and_leave_their_runs(run_child, db):
    printed = run_child(SLOW)
    took_s = time.time() - float(printed)

    with closing(connect(db, read_only=True)) as connection:
        states = connection.execute("SELECT state, count(*) FROM traces GROUP BY state").fetchall()
    assert took_s < HALF_OF_AN_EMBEDDING_S
    assert states == [("recorded", 4)]


def test_a_program_never_ends_inside_the_model(run_child):
    told = run_child(
        """
        import threading, time
        from kp_middleware import KnowledgePulse
        from kp_middleware.testing import StandInEmbedder

        class Model(StandInEmbedder):
            begun = threading.Event()

            def embed(self, text, /):
                self.begun.set()
                time.sleep(1.0)
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


def test_a_fork_server_s_child_that_finds_a_pipeline_in_its_program_keeps_its_runs(
    db, objectives, tmp_path
):
    program = tmp_path / "program.py"
    program.write_text(
        """
import multiprocessing
from kp_middleware import KnowledgePulse
from kp_middleware.testing import StandInEmbedder

kp = KnowledgePulse(embedder=StandInEmbedder())
shout = kp.capture(lambda text: text)

def work():
    shout("child")

if __name__ == "__main__":
    child = multiprocessing.get_context("forkserver").Process(target=work)
    child.start()
    child.join()
"""
    )

    environment = {**os.environ, "KP_DB": str(db)}
    subprocess.run([sys.executable, str(program)], env=environment, check=True, timeout=50)

    assert objectives() == ["child"]
