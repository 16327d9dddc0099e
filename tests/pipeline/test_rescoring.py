"""Scoring anew what was scored before, with today's settings."""

from functools import partial

import pytest
from pipeline_helpers import NotReady, column_of
from rescored import OtherEmbedder, contents, rescore, rows, score_in_turn, traces

from kp_middleware import ReasoningTrace, Step
from kp_middleware.errors import EmbedderUnavailableError
from kp_middleware.testing import StandInEmbedder

HASTY = {"complexity": 0, "novelty": 0, "tool_diversity": 0, "outcome_confidence": 1}


@pytest.fixture
def submit(pulse):
    return partial(score_in_turn, pulse)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"threshold": "top 10%"},
        {"threshold": 0.4, "max_per_day": 9},
        {"cache_size": 20},
        {"cache_ttl_ms": 3_600_000},
        {"threshold": "top 10%", "visibility": "private"},
    ],
    ids=str,
)
def test_with_the_same_settings_nothing_changes(submit, connection, db, settings):
    submit(traces(60), **settings)
    before = contents(connection)

    rescoring = rescore(db, StandInEmbedder(), **settings)

    assert contents(connection) == before
    assert rescoring.counts == {"unchanged": 60}


def test_what_was_scored_in_another_order_changes_once(submit, connection, column, db):
    submit([*traces(1), *traces(1)], embedder=NotReady())
    connection.execute("UPDATE traces SET state = 'paused' WHERE seq = 1")
    submit([])
    connection.execute("UPDATE traces SET state = 'recorded' WHERE seq = 1")
    submit([])
    assert column("nearest_seq") == [2, None]

    first, again = rescore(db, StandInEmbedder()), rescore(db, StandInEmbedder())

    assert column("nearest_seq") == [None, 1]
    assert (first.counts, again.counts) == ({"changed": 2}, {"unchanged": 2})


def test_what_differs_in_its_last_digits_alone_is_left_as_it_is(submit, connection, db):
    submit(traces(10))
    connection.execute("UPDATE traces SET score = score + 1e-9, novelty = novelty + 1e-9")
    before = contents(connection)

    rescore(db, StandInEmbedder())

    assert contents(connection) == before


def test_what_a_day_had_no_room_for_does_not_go_another_day(submit, connection, db):
    submit(traces(20), threshold=0.3, max_per_day=4)
    connection.execute("UPDATE traces SET decided_at = '2026-01-01T00:00:00.000Z'")

    rescoring = rescore(db, StandInEmbedder(), threshold=0.3, max_per_day=4)

    assert rescoring.counts == {"unchanged": 20}


@pytest.mark.parametrize("before", [None, OtherEmbedder()], ids=["none", "another"])
@pytest.mark.parametrize("threshold", [0.5, "top 10%"])
def test_it_gives_what_scoring_with_these_settings_had_given(
    submit, column, db, tmp_path, before, threshold
):
    runs = traces(60)
    submit(runs, embedder=before)
    submit(runs, db=tmp_path / "direct.db", threshold=threshold)

    rescore(db, StandInEmbedder(), threshold=threshold)

    for name in ("embedder", "decision", "gate", "rules", "nearest_seq"):
        assert column(name) == column_of(tmp_path / "direct.db", name)
    for name in ("score", "novelty", "threshold"):
        direct = column_of(tmp_path / "direct.db", name)
        assert column(name) == pytest.approx(direct, abs=1e-6)


def test_vectors_of_another_model_are_never_compared_with(submit, column, db):
    (run,), (again,) = traces(1), traces(1)
    submit([run], embedder=OtherEmbedder())
    submit([again])

    rescore(db, OtherEmbedder(), since="2999")
    alone = column("novelty")
    rescore(db, OtherEmbedder())

    assert alone == [0.5, 0.5]
    assert column("novelty") == pytest.approx([0.5, 0], abs=1e-6)


def test_a_vector_that_is_there_is_not_made_again(submit, column, db):
    submit(traces(20))
    embedder = StandInEmbedder()

    rescoring = rescore(db, embedder, profiles={"general": HASTY})

    assert embedder.asked == []
    assert set(column("outcome_confidence_weight")) == {1}
    assert rescoring.counts["changed"] == 20


def test_new_vectors_have_the_time_and_the_order_of_their_runs(submit, connection, db):
    submit(traces(12), embedder=None)
    submit(traces(12, seed=2))
    old = {row["trace_seq"]: row["added_at_ms"] for row in rows(connection, "vectors")}

    rescore(db, StandInEmbedder())

    vectors = rows(connection, "vectors")
    assert [row["trace_seq"] for row in vectors] == [*range(1, 25)]
    stamps = [row["added_at_ms"] for row in vectors]
    assert stamps == sorted(stamps)
    assert {seq: stamps[seq - 1] for seq in old} == old


def test_no_more_runs_are_looked_back_on_than_the_cache_holds(submit, column, db):
    submit([*traces(1), *traces(3, seed=2), *traces(1)], embedder=None)

    rescore(db, StandInEmbedder(), cache_size=3)

    assert column("nearest_seq")[-1] != 1
    assert column("novelty")[-1] > 0.1


def test_what_has_expired_by_then_is_not_looked_back_on(submit, connection, column, db):
    submit([*traces(1), *traces(1), *traces(1)], embedder=None)
    for seq, began in enumerate(("01T00:00", "02T00:00", "02T00:30"), start=1):
        connection.execute(
            "UPDATE traces SET started_at = ? WHERE seq = ?", (f"2026-01-{began}:00.000Z", seq)
        )

    rescore(db, StandInEmbedder(), cache_ttl_ms=3_600_000)

    assert column("novelty") == pytest.approx([0.5, 0.5, 0], abs=1e-6)


@pytest.mark.parametrize(
    ("before", "novelty"), [(StandInEmbedder(), 0), (OtherEmbedder(), 0.5)], ids=["same", "other"]
)
def test_what_was_nearest_and_is_removed_is_known_to_the_same_model(
    submit, connection, column, db, before, novelty
):
    submit([*traces(1), *traces(1)], embedder=before)
    connection.execute("DELETE FROM traces WHERE seq = 1")

    rescore(db, StandInEmbedder(), profiles={"general": HASTY})

    assert column("novelty") == pytest.approx([novelty], abs=1e-6)


def test_a_run_that_is_kept_in_part_has_all_its_steps(submit, column, db):
    steps = [Step(step_id=number, type="thought", content="x") for number in range(30)]
    submit([ReasoningTrace.of("Ask", steps)], max_steps=4)
    complexity = column("complexity")

    rescore(db, StandInEmbedder(), profiles={"general": HASTY})

    assert column("complexity") == complexity
    assert column("step_count") == [30]


def test_only_what_is_selected_gets_another_score_and_all_take_part(submit, connection, column, db):
    alike = [*traces(1, domain="law", seed=2), *traces(1, domain="code", seed=2)]
    submit([*traces(1, domain="code"), *alike])
    (_, law, _) = rows(connection, "traces")
    profiles = {"code": HASTY, "law": HASTY}

    rescoring = rescore(db, StandInEmbedder(), domain="code", profiles=profiles)

    assert rows(connection, "traces")[1] == law
    assert column("outcome_confidence_weight") == [1, 0.25, 1]
    assert column("nearest_seq") == [None, 1, 2]
    assert rescoring.counts["changed"] == 2

    connection.execute("UPDATE traces SET started_at = '2026-01-0' || seq || 'T00:00:00.000Z'")
    rescore(db, None, since="2026-01-02")
    assert column("embedder") == ["stand-in", None, None]
    assert column("novelty")[1:] == [0.5, 0.5]


def test_without_its_model_nothing_is_changed(submit, connection, db):
    class Missing:
        @property
        def name(self):
            raise EmbedderUnavailableError("install it")

    submit(traces(3))
    before = contents(connection)

    with pytest.raises(EmbedderUnavailableError, match="install it"):
        rescore(db, Missing())

    assert contents(connection) == before


@pytest.mark.parametrize(
    "settings",
    [{"threshold": 0.4}, {"threshold": "top 10%"}, {"threshold": 0.3, "max_per_day": 5}],
    ids=str,
)
def test_a_dry_run_says_the_same_and_writes_nothing(submit, connection, db, settings):
    submit(traces(50), embedder=None, threshold=0.45)
    before, size = contents(connection), db.stat().st_size

    said = rescore(db, StandInEmbedder(), dry_run=True, **settings)

    assert (contents(connection), db.stat().st_size) == (before, size)
    assert said.counts == rescore(db, StandInEmbedder(), **settings).counts
    assert (said.counts["embedded"], said.counts["changed"]) == (50, 50)


def test_no_more_are_let_through_than_a_day_has_room_for(submit, column, db):
    submit(traces(30), threshold=0.9)

    rescore(db, StandInEmbedder(), threshold=0.2, max_per_day=7)
    rescore(db, StandInEmbedder(), threshold=0.2, max_per_day=7)

    assert column("decision").count("forward") == 7


def test_what_could_not_be_scored_is_tried_again(submit, connection, column, db):
    submit(traces(3), embedder=None)
    connection.execute("UPDATE documents SET body = '{}' WHERE trace_seq > 1")
    connection.execute("UPDATE traces SET state = 'recorded', score = NULL WHERE seq > 1")
    submit(traces(1, seed=3))
    before = column("state")
    connection.execute(
        "UPDATE documents SET body = (SELECT body FROM documents WHERE trace_seq = 1)"
        " WHERE trace_seq = 2"
    )

    rescoring = rescore(db, StandInEmbedder())

    assert before == ["scored", "failed", "failed", "scored"]
    assert column("state") == ["scored", "scored", "failed", "scored"]
    assert rescoring.counts["unscored"] == 1


@pytest.mark.parametrize("state", ["recorded", "paused", "incomplete"])
def test_what_is_not_over_is_left(submit, connection, db, state):
    submit(traces(2), embedder=None)
    connection.execute("UPDATE traces SET state = ?, score = NULL WHERE seq = 1", (state,))
    left = rows(connection, "traces")[0]

    rescoring = rescore(db, StandInEmbedder())

    assert rows(connection, "traces")[0] == left
    assert sum(rescoring.counts[name] for name in ("changed", "unchanged", "left")) == 1


def test_what_has_lost_its_words_stays_failed(submit, connection, column, db):
    submit(traces(1), embedder=None)
    connection.execute(
        "UPDATE traces SET state = 'failed', score = NULL, reason_code = 'not_redacted'"
    )

    assert rescore(db, StandInEmbedder()).counts == {}
    assert column("state") == ["failed"]
