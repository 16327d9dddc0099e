import sqlite3
from contextlib import closing

import pytest

from kp_middleware import KnowledgePulse, ReasoningTrace, Settings, Step
from kp_middleware.embedding import DEFAULT_EMBEDDER, shared_embedder


def test_a_process_has_one_embedder_for_all_or_none():
    assert shared_embedder("minilm") is DEFAULT_EMBEDDER
    assert shared_embedder("none") is None


@pytest.mark.parametrize(
    ("name", "threads"), [("minilm", 2), ("minilm-int8", 1)], ids=["threads", "precision"]
)
def test_other_settings_have_an_embedder_of_their_own(name, threads):
    one, other = (shared_embedder(name, threads=threads) for _ in range(2))

    assert one is other
    assert one is not DEFAULT_EMBEDDER


@pytest.mark.usefixtures("empty_caches")
def test_settings_choose_what_a_pipeline_embeds_with(monkeypatch, tiny_folder, tiny_int8, tmp_path):
    monkeypatch.setenv("KP_MODEL_PATH", str(tiny_folder))
    monkeypatch.setenv("KP_EMBEDDER", "minilm-int8")
    db = tmp_path / "kp.db"

    with KnowledgePulse(db=db, embedder_threads=2, sync=True) as kp:
        kp.submit(ReasoningTrace.of("a task", [Step(step_id=0, type="thought", content="hm")]))

    with closing(sqlite3.connect(db)) as connection:
        assert connection.execute("SELECT embedder FROM traces").fetchall() == [(tiny_int8.name,)]


@pytest.mark.parametrize("threads", ["0", "-1", "many"])
def test_at_least_one_thread_embeds(monkeypatch, threads):
    monkeypatch.setenv("KP_EMBEDDER_THREADS", threads)

    (problem,) = Settings().problems

    assert (problem.name, Settings().embedder_threads) == ("embedder_threads", 1)
