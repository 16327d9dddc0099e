"""Scoring anew beside programs that record, and after it was cut off."""

import signal
import subprocess
import sys
from collections import deque
from contextlib import closing

import pytest
from rescored import OtherEmbedder, contents, rescore, rows, score_in_turn, traces

from kp_middleware.database import connect
from kp_middleware.pipeline import Rescoring
from kp_middleware.settings import Settings
from kp_middleware.storage import History, SqliteStore

KEYED = {
    "api_key": "kp_0123456789abcdef0123456789abcdef",
    "registry_url": "https://registry.example",
    "agent_id": "agent-1",
    "threshold": "top 10%",
}
_CHILD = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
from rescored import OtherEmbedder, rescore
from test_rescoring_goes_on import KEYED

class Deadly(OtherEmbedder):
    def embed(self, text, /):
        if len(self.asked) == int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().embed(text)

rescore(sys.argv[1], Deadly(), **KEYED)
"""


@pytest.fixture
def many(pulse):
    """A file of runs that were scored with another model."""
    score_in_turn(pulse, traces(150))


@pytest.fixture
def copy(connection, tmp_path):
    """A copy of the file as it is."""

    def copy():
        History(connection).back_up(tmp_path / "copy.db", on_progress=lambda *_: None)
        return tmp_path / "copy.db"

    return copy


@pytest.fixture
def killed(db, request):
    """Scores anew in a process that is killed when it embeds the text of this number."""

    def kill(number):
        words = [sys.executable, "-c", _CHILD, str(db), str(request.path.parent), str(number)]
        done = subprocess.run(words, timeout=50, check=False)
        assert done.returncode == -signal.SIGKILL

    return kill


def contents_of(path):
    with closing(connect(path, read_only=True)) as connection:
        return contents(connection)


def rounded(contents):
    """To what a similarity is exact to, wherever a vector lies in memory."""
    return {
        table: [
            {n: round(v, 5) if isinstance(v, float) else v for n, v in row.items() if n != "body"}
            for row in rows
        ]
        for table, rows in contents.items()
    }


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("number", [0, 77, 149])
def test_after_a_kill_the_same_command_does_all_and_embeds_the_rest(
    copy, killed, connection, db, number
):
    whole = copy()
    rescore(whole, OtherEmbedder(), **KEYED)

    killed(number)
    embedder = OtherEmbedder()
    rescore(db, embedder, **KEYED)

    assert 150 - number <= len(embedder.asked) <= 150 - number + 8
    assert rounded(contents(connection)) == rounded(contents_of(whole))


@pytest.mark.usefixtures("many")
def test_programs_go_on_recording_and_what_they_record_is_scored_anew_too(pulse, connection):
    kp = pulse(sync=True, embedder=OtherEmbedder())
    steps = Rescoring(SqliteStore(connection), Settings(), OtherEmbedder()).steps()

    [kp.submit(run) for run, _ in zip(traces(10, seed=9), steps, strict=False)]
    deque(steps, maxlen=0)
    kp.close()

    assert kp.stats().trouble is None
    found = rows(connection, "traces")
    assert {row["embedder"] for row in found} == {"other"}
    vectors = [row for row in rows(connection, "vectors") if row["embedder"] == "other"]
    assert [row["trace_seq"] for row in vectors] == [row["seq"] for row in found]
    assert all(row["nearest_seq"] is None or row["nearest_seq"] < row["seq"] for row in found)


@pytest.mark.usefixtures("many")
def test_a_program_that_was_there_before_looks_back_on_what_was_scored_anew(pulse, stored, db):
    kp = pulse(sync=True, embedder=OtherEmbedder())
    kp.submit(traces(1, seed=9)[0])

    rescore(db, OtherEmbedder())
    kp.submit(traces(1)[0])

    assert stored()["novelty"] == pytest.approx(0, abs=1e-6)
    assert stored()["nearest_seq"] is not None


@pytest.mark.usefixtures("many")
def test_a_run_that_is_removed_meanwhile_is_passed_over(connection, db):
    rescoring = Rescoring(SqliteStore(connection), Settings(), OtherEmbedder())

    with closing(connect(db)) as another:
        for _ in rescoring.steps():
            another.execute("DELETE FROM traces WHERE seq > 60")

    assert sum(rescoring.counts[name] for name in ("changed", "unchanged")) == 60


def test_vectors_stay_in_the_order_of_their_runs_though_it_was_cut_off(pulse, connection, db):
    for embedder in (None, OtherEmbedder()):
        score_in_turn(pulse, traces(8), embedder=embedder)

    rescore(db, OtherEmbedder(), steps=1)
    rescore(db, OtherEmbedder())

    assert [row["trace_seq"] for row in rows(connection, "vectors")] == [*range(1, 17)]
