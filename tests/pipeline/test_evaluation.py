"""One step after another, on a file that others use too."""

from kp_middleware import ReasoningTrace, Step
from kp_middleware.pipeline._steps import Stages
from kp_middleware.recording import Limits, Recorder
from kp_middleware.settings import Settings
from kp_middleware.storage import SqliteStore
from kp_middleware.testing import StandInEmbedder

FAILING = (
    "CREATE TRIGGER failing BEFORE UPDATE OF score ON traces BEGIN SELECT raise(ABORT, 'x'); END"
)


class Meeting(StandInEmbedder):
    """Lets somebody else work while it embeds."""

    def __init__(self):
        super().__init__()
        self.meet = lambda: None

    def embed(self, text, /):
        meet, self.meet = self.meet, lambda: None
        meet()
        return super().embed(text)


def trace_of(objective):
    return ReasoningTrace.of(objective, [Step(step_id=0, type="thought", content=objective)])


def scores(connection):
    return connection.execute("SELECT state, novelty FROM traces ORDER BY seq").fetchall()


def test_what_was_rolled_back_is_not_remembered(connection):
    evaluation = Stages(SqliteStore(connection), Settings(), StandInEmbedder())
    evaluation.keep(trace_of("the first"))
    connection.execute(FAILING)
    evaluation.score_next()
    connection.execute("DROP TRIGGER failing")
    evaluation.keep(trace_of("the first"))

    evaluation.score_next()

    assert scores(connection) == [("failed", None), ("scored", 0.5)]


def test_a_run_that_was_written_and_is_tried_again_is_kept_once(connection):
    evaluation = Stages(SqliteStore(connection), Settings(), None)
    recorder = Recorder(lambda _: None, Limits(), framework="python")
    recorder.thought("said")
    recorder.finish()

    evaluation.keep(recorder)
    evaluation.keep(recorder)

    assert connection.execute("SELECT count(*) FROM traces").fetchone() == (1,)


def test_a_run_that_another_process_scores_meanwhile_is_scored_once(connection):
    embedder = Meeting()
    ours = Stages(SqliteStore(connection), Settings(), embedder)
    theirs = Stages(SqliteStore(connection), Settings(), StandInEmbedder())
    ours.keep(trace_of("one"))
    embedder.meet = lambda: theirs.score_next(at_once=True)

    ours.score_next()

    assert scores(connection) == [("scored", 0.5)]
    assert connection.execute("SELECT count(*) FROM vectors").fetchone() == (1,)


def test_two_processes_embed_nothing_twice_while_each_has_runs_of_its_own(connection):
    embedders = StandInEmbedder(), StandInEmbedder()
    both = [Stages(SqliteStore(connection), Settings(), embedder) for embedder in embedders]
    [each.score_next() for each in both]
    for number in range(10):
        [each.keep(trace_of(f"{number} {at}")) for at, each in enumerate(both)]

    while both[0].score_next() | both[1].score_next():
        pass

    assert [len(embedder.asked) for embedder in embedders] == [20, 20]  # the run, what was said
    assert {state for state, _ in scores(connection)} == {"scored"}


def test_a_run_that_has_taken_the_place_of_a_removed_one_is_scored_as_itself(connection):
    ours = Stages(SqliteStore(connection), Settings(), StandInEmbedder())
    theirs = Stages(SqliteStore(connection), Settings(), None)
    ours.keep(trace_of("ours"))
    connection.execute("DELETE FROM traces")
    theirs.keep(trace_of("theirs"))

    while ours.score_next(at_once=True):
        pass

    (key,) = connection.execute("SELECT key FROM vectors").fetchone()
    assert connection.execute("SELECT id, state FROM traces").fetchall() == [(key, "scored")]
