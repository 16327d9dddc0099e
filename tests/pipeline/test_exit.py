"""What becomes of finished runs when the program ends, however it was started."""

import pytest

from kp_middleware.database import connect

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
    run_child(f"{BEGIN}record(str(number) + ' a long answer' * 700 for number in range(150))")

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
