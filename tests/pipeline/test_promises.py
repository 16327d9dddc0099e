"""What a process promises of its runs: across forks, locks, folders and second thoughts."""

import json
import threading

import pytest
from unsent import UnsentStore

from kp_middleware import KnowledgePulse, ReasoningTrace, Step
from kp_middleware.database import connect
from kp_middleware.errors import EmbedderUnavailableError
from kp_middleware.testing import StandInEmbedder


class Interrupting(StandInEmbedder):
    """Ends another run in the midst of scoring one, as a garbage collector may."""

    def __init__(self):
        super().__init__()
        self.end_another = lambda: None

    def embed(self, text, /):
        end, self.end_another = self.end_another, lambda: None
        end()
        return super().embed(text)


class Missing:
    """There is no model; counts how often it was asked for."""

    name = "missing"
    asked = 0

    def embed(self, _text, /):
        self.asked += 1
        raise EmbedderUnavailableError("nowhere")


def submitted(**metadata):
    trace = ReasoningTrace.of(
        "write to anna@example.org", [Step(step_id=0, type="observation", content="seen")]
    )
    return trace.model_copy(update={"metadata": trace.metadata.model_copy(update=metadata)})


def count(db):
    connection = connect(db)
    (found,) = connection.execute("SELECT count(*) FROM traces WHERE state = 'scored'").fetchone()
    connection.close()
    return found


def test_what_a_lock_kept_from_being_scored_is_scored_when_the_lock_goes(pulse, db):
    kp = pulse()
    agent = kp.capture(lambda text: text)
    agent("one")
    kp.flush()
    holder = connect(db)
    holder.execute("BEGIN IMMEDIATE")

    agent("two")
    during = kp.flush(timeout_s=0.2)
    holder.rollback()
    holder.close()

    assert during.unscored == 1
    assert (kp.flush(timeout_s=30), count(db)) == ((0, 0), 2)


def test_a_document_that_cannot_be_read_fails_alone(pulse, db, stored):
    kp = pulse()
    kp.capture(lambda text: text)("one")
    kp.flush()
    connection = connect(db)
    connection.execute("UPDATE traces SET state = 'recorded'")
    connection.execute("UPDATE documents SET body = '{}'")
    connection.close()

    kp.capture(lambda text: text)("two")
    kp.flush()

    assert (stored()["state"], count(db)) == ("scored", 1)


def test_a_run_that_ends_while_another_is_scored_in_the_same_thread_waits_its_turn(pulse, db):
    embedder = Interrupting()
    kp = pulse(embedder=embedder, sync=True)
    agent = kp.capture(lambda text: text)
    embedder.end_another = lambda: agent("two")

    agent("one")

    assert count(db) == 2


def test_runs_that_end_at_once_in_several_threads_are_all_scored(pulse, db):
    agent = pulse(sync=True).capture(lambda text: text)
    threads = [threading.Thread(target=agent, args=(str(number),)) for number in range(8)]

    [thread.start() for thread in threads]
    [thread.join() for thread in threads]

    assert count(db) == 8


def test_the_default_pipeline_can_be_used_again_after_it_was_closed(db, monkeypatch):
    monkeypatch.setenv("KP_DB", str(db))
    monkeypatch.setenv("KP_EMBEDDER", "none")

    with KnowledgePulse.default() as first:
        first.capture(lambda text: text)("one")
    with KnowledgePulse.default() as second:
        second.capture(lambda text: text)("two")

    assert count(db) == 2


@pytest.mark.parametrize(
    ("setting", "own", "stricter"),
    [
        ({"visibility": "org"}, {"visibility": "network"}, {"visibility": "org"}),
        ({"visibility": "network"}, {"visibility": "org"}, {"visibility": "org"}),
        (
            {"privacy_level": "aggregated"},
            {"privacy_level": "private"},
            {"privacy_level": "aggregated"},
        ),
        (
            {"privacy_level": "private"},
            {"privacy_level": "federated"},
            {"privacy_level": "federated"},
        ),
    ],
    ids=[
        "the setting hides more",
        "the trace hides more",
        "the setting removes more",
        "the trace does",
    ],
)
def test_a_submitted_trace_leaves_by_the_stricter_rule(pulse, registry, setting, own, stricter):
    kp = pulse(registry_url=registry.url, api_key=registry.api_key, threshold=0, **setting)

    kp.submit(submitted(**own))
    kp.flush()

    body = json.loads(registry.requests[0].body)
    assert stricter.items() <= body["metadata"].items()
    assert "anna@example.org" not in str(body)


def test_where_redaction_fails_not_even_the_names_of_things_are_written(pulse, db):
    kp = pulse(sync=True)
    secret = "hunter2" + "horse" * 3
    bottomless = {}
    [bottomless := {"deeper": bottomless} for _ in range(200)]
    trace = ReasoningTrace.of(
        "x", [Step(step_id=0, type="tool_call", input=bottomless)], domain=f"password={secret}"
    )

    kp.submit(trace)
    kp.close()

    written = b"".join(path.read_bytes() for path in db.parent.iterdir())
    assert secret.encode() not in written


def test_a_missing_model_is_asked_for_once_a_run(pulse):
    embedder = Missing()
    kp = pulse(embedder=embedder, sync=True)

    kp.capture(lambda text: text)("one")

    assert embedder.asked == 1


def test_the_file_stays_where_it_was_when_the_program_goes_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kp = KnowledgePulse(db="here.db", embedder=None)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    with kp:
        kp.capture(lambda text: text)("one")

    assert count(tmp_path / "here.db") == 1


def test_large_traces_fill_the_queue(pulse, caplog, tmp_path):
    (tmp_path / "file").touch()
    kp = pulse(db=tmp_path / "file" / "kp.db", max_queue_bytes=100_000)
    step = Step(step_id=0, type="tool_call", input={"page": "x" * 60_000})

    [kp.submit(ReasoningTrace.of("x", [step])) for _ in range(3)]

    assert "a run was dropped: the queue is full" in caplog.text


def test_two_processes_queue_what_waited_for_a_key_once(pulse, registry):
    without = pulse(threshold=0)
    without.capture(lambda text: text)("one")
    without.close()
    having = {"registry_url": registry.url, "api_key": registry.api_key, "threshold": 0}

    first, second = pulse(**having), pulse(**having)
    first.capture(lambda text: text)("two")
    second.capture(lambda text: text)("three")
    first.flush()
    second.flush()

    assert len(registry.documents) == 3
    assert len({received.body for received in registry.requests}) == len(registry.requests)


def test_switching_everything_off_wins_over_the_keyword(db, monkeypatch):
    monkeypatch.setenv("KP_ENABLED", "false")

    assert KnowledgePulse(db=db, enabled=True).capture(str.upper) is str.upper


def test_closing_does_not_wait_for_a_file_that_cannot_be_opened(pulse, db, caplog):
    kp = pulse()
    db.mkdir()
    kp.capture(lambda text: text)("one")

    backlog = kp.flush(timeout_s=40)

    assert backlog.unscored == 1
    assert "is a directory" in caplog.text.lower()


@pytest.mark.parametrize("keywords", [{"visiblity": "private"}, {"embedder": "none"}])
def test_a_keyword_that_means_nothing_is_refused(db, keywords):
    with pytest.raises((TypeError, ValueError), match=next(iter(keywords))):
        KnowledgePulse(db=db, **keywords)


@pytest.mark.parametrize("decorated", [property(len), int, 42], ids=["property", "class", "number"])
def test_what_is_no_function_cannot_be_captured(pulse, decorated):
    with pytest.raises(TypeError, match="expected a function"):
        pulse().capture(decorated)


def test_one_registry_is_one_with_and_without_a_slash(pulse, registry, db):
    having_a_key = {"api_key": registry.api_key, "threshold": 0, "sync": True}
    store = UnsentStore.at(db)  # it dies before it could send
    elsewhere = pulse(registry_url=registry.url, store=store, **having_a_key)
    elsewhere.capture(lambda text: text)("one")

    kp = pulse(registry_url=f"{registry.url}/", **having_a_key)
    kp.capture(lambda text: text)("two")

    assert not kp.flush()
    assert len(registry.documents) == 2


def test_a_closed_pipeline_has_no_thread_left(pulse, registry):
    before = set(threading.enumerate())
    kp = pulse(registry_url=registry.url, api_key=registry.api_key, threshold=0)
    kp.capture(lambda text: text)("one")
    kp.flush()
    ours = [thread for thread in threading.enumerate() if thread not in before and is_ours(thread)]

    kp.close()
    [thread.join(30) for thread in ours]

    assert sorted(thread.name for thread in ours) == ["kp-scoring", "kp-sending"]
    assert not any(thread.is_alive() for thread in ours)


def is_ours(thread):
    return thread.name.startswith("kp-")


def test_a_run_that_was_begun_before_and_ends_after_closing_is_dropped(pulse):
    kp = pulse()
    recorder = kp.start_recording("python")
    recorder.thought("said")
    kp.close()

    recorder.finish()

    assert (kp.stats().dropped, kp.stats().in_memory, kp.stats().recorded) == (1, 0, 0)
