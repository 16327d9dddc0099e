"""The choice of the runs that are recalled for a task."""

import asyncio
import sqlite3
import threading
from contextlib import closing

import pytest
from past_runs import OTHERS, called, kept

from kp_middleware import KnowledgePulse, ReasoningTrace, Step, current_trace
from kp_middleware.database import connect
from kp_middleware.embedding import embedded_text
from kp_middleware.privacy import Policy
from kp_middleware.recall import recalled
from kp_middleware.testing import StandInEmbedder

TASK = "Refund the broken lamp of order A1, please."


def unconfirmed(kp):
    """A run of which nobody told how it ended; its id."""
    kp.capture(lambda question: question)(TASK)
    return kp.run("@last").id


def ids(found):
    return [one.trace_id for one in found]


def test_a_run_that_succeeded_is_recalled_also_without_holding_the_loop_up(kp):
    known = kept(kp, TASK)

    (found,) = kp.recall("Refund the broken lamp of order B2.")

    assert (found.trace_id, found.objective, found.success_source) == (known, TASK, "feedback")
    assert "order A1" in found.digest()
    assert ids(asyncio.run(kp.arecall(TASK))) == [known]


def test_the_same_words_are_found_also_where_no_word_is_rare(kp):
    known = [kept(kp, TASK) for _ in range(5)]

    assert {*ids(kp.recall(TASK.upper(), k=5))} == {*known}
    assert kp.recall("The order", k=5) == []


def test_the_agent_s_own_word_is_believed(kp):
    kp.submit(ReasoningTrace.of(TASK, [Step(step_id=0, type="thought", content="Done.")]))

    assert [one.success_source for one in kp.recall(TASK)] == ["said"]


PROMPT = "You work for a shop. Be polite and brief. Ask for the number of the order first. " * 60


def test_a_task_is_found_in_a_prompt_that_all_runs_share(kp):
    known = [kept(kp, f"{PROMPT}\nCustomer: {task}\n{PROMPT}") for task in (*OTHERS, TASK)]

    found = kp.recall(f"{PROMPT}\nCustomer: {TASK}\n{PROMPT}", k=3)

    assert ids(found) == known[-1:]
    assert kp.recall(f"{PROMPT}\nCustomer: Book a flight to Oslo in May.\n{PROMPT}") == []


SERVICES = ("checkout", "search", "billing", "catalog")


def test_tasks_of_one_template_are_not_taken_for_each_other(kp):
    for service in SERVICES:
        call = called("scale", steps=["drain", "grow"])
        kept(kp, f"Scale {service} to many replicas.", call)

    assert kp.recall("Scale scheduler to many replicas.", k=3) == []


def test_the_same_wording_with_a_detail_of_other_runs_is_another_task(kp):
    kept(kp, "Why is the search service of our little shop so slow?")
    known = kept(kp, "Please restart the search service of our little shop.")

    assert ids(kp.recall("Please restart the search service of our little shop.")) == [known]
    assert kp.recall("Please restart the billing service of our little shop.") == []


def test_a_run_that_took_all_from_its_task_is_a_form_for_other_values(kp):
    for service in SERVICES:
        call = called("scale", service=service)
        kept(kp, f"Scale the {service} service to many replicas now.", call)

    assert len(kp.recall("Scale the scheduler service to many replicas now.", k=3)) == 3


def test_what_a_first_recall_loads_is_loaded_in_the_background(db):
    asked, may_go_on = threading.Event(), threading.Event()

    class Slow(StandInEmbedder):
        def embed(self, text):
            asked.set()
            assert may_go_on.wait(20)
            return super().embed(text)

    with KnowledgePulse(db=db, embedder=Slow()) as kp:
        kp.warm_up_recall()

        assert asked.wait(20)
        may_go_on.set()


def test_nothing_is_said_where_nothing_fits(kp):
    kept(kp, TASK)

    for task in ("Book a flight to Oslo in May.", "Please help me with it.", "", "?!", "\ud800 \0"):
        assert kp.recall(task, k=3) == []


def test_without_a_model_words_tell(db):
    with KnowledgePulse(db=db, embedder=None, sync=True) as kp:
        known = [kept(kp, objective) for objective in (*OTHERS, TASK)]

        assert ids(kp.recall("Refund the broken lamp of order B2.")) == known[-1:]
        assert kp.recall("Book a flight to Oslo in May.") == []


def test_only_known_successes_are_recalled(kp, connection):
    kept(kp, TASK, success=False)
    unconfirmed(kp)
    cancelled = kept(kp, TASK)
    connection.execute("UPDATE traces SET state = 'incomplete' WHERE id = ?", (cancelled,))

    assert kp.recall(TASK, k=3) == []


@pytest.mark.parametrize(("p", "known", "found"), [(0.8, 20, 1), (0.79, 20, 0), (0.9, 19, 0)])
def test_an_estimate_counts_if_it_is_sure_and_has_learned(kp, connection, p, known, found):
    estimated = unconfirmed(kp)
    connection.execute(
        "UPDATE traces SET p_success = ?, confidence_source = 'estimated' WHERE id = ?",
        (p, estimated),
    )
    learned = "UPDATE estimates SET p = ?, base = 0.5, reasons = '[]', known = ?"
    connection.execute(learned, (p, known))

    assert [one.success_source for one in kp.recall(TASK)] == ["estimated"] * found
    source = recalled(kp.run(estimated), Policy()).success_source  # by its id, or unconfirmed
    assert source == ("estimated" if p >= 0.8 else "assumed")


def test_domain_and_age_limit_what_is_recalled(kp, connection):
    known = kept(kp, TASK)

    assert kp.recall(TASK, domain="law") == []
    assert ids(kp.recall(TASK, domain="general", max_age_days=1)) == [known]
    connection.execute("UPDATE traces SET started_at = '2024-01-01T00:00:00.000Z'")
    assert kp.recall(TASK, max_age_days=1) == []
    assert kp.recall(TASK)[0].age_days > 365


def test_what_is_one_customer_s_is_told_to_nobody_else_and_the_owner_is_a_fingerprint(
    kp, connection
):
    @kp.capture(owner="customer")
    def answer(question, customer):
        return question + customer[:0]

    kept(kp, TASK)
    mine = kept(kp, TASK, owner="anna@example.com")
    kept(kp, TASK, owner="bert@example.com")
    answer("Another question", "anna@example.com")

    assert kp.recall(TASK, k=9) == []
    assert ids(kp.recall(TASK, k=9, owner="anna@example.com")) == [mine]
    assert kp.recall(TASK, k=9, owner="carl@example.com") == []
    *_, annas, berts, annas_too = [row[0] for row in connection.execute("SELECT owner FROM traces")]
    assert (annas == annas_too, annas == berts) == (True, False)
    assert "anna" not in annas


def test_a_run_notes_what_it_was_told_of_and_is_not_known_by_it(kp):
    known = kept(kp, TASK, result="Refunded by voucher.")

    @kp.capture
    def answer(question):
        (found,) = kp.recall(question)
        current_trace().observation(found.as_message())
        return "ok"

    answer("Refund the broken lamp of order B2.")
    run = kp.run("@last")
    trace = ReasoningTrace.of(
        "Go on", [Step(step_id=0, type="observation", content=kp.recall(TASK)[0].as_message())]
    )

    assert run.recalled == (known,)
    assert kp.stats().recalled == 1
    assert "voucher" not in embedded_text(trace)
    assert embedded_text(trace).startswith("Go on")


def test_it_is_switched_off_in_one_place(kp, db, monkeypatch):
    kept(kp, TASK)
    monkeypatch.setenv("KP_RECALL", "false")

    with KnowledgePulse(db=db, embedder=None, recall=True) as silent:
        assert silent.recall(TASK) == []


def test_no_trouble_reaches_the_agent(tmp_path):
    (tmp_path / "damaged.db").write_bytes(b"SQLite format 3\0" + b"no pages" * 500)
    for name in ("damaged.db", "missing.db"):
        with KnowledgePulse(db=tmp_path / name, embedder=None) as kp:
            assert kp.recall(TASK) == []


def test_a_locked_file_is_not_waited_for(kp, db):
    kept(kp, TASK)
    kp.close()
    with closing(sqlite3.connect(db, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode = DELETE")
        other.execute("BEGIN EXCLUSIVE")

        assert kp.recall(TASK) == []


def test_a_file_is_waited_for_once_and_then_read_as_it_was(kp, db):
    kept(kp, TASK)
    with closing(connect(db, read_only=True, wait_s=0.05)) as reader:
        before = reader.execute("SELECT count(*) FROM traces").fetchone()
        kept(kp, TASK)

        assert reader.execute("PRAGMA busy_timeout").fetchone() == (0,)
        assert reader.execute("SELECT count(*) FROM traces").fetchone() == before


def test_what_fails_in_the_embedder_is_no_trouble(db):
    class Broken(StandInEmbedder):
        def embed(self, text):
            raise RuntimeError(text)

    with KnowledgePulse(db=db, embedder=Broken(), sync=True) as kp:
        known = [kept(kp, objective) for objective in (*OTHERS, TASK)]

        assert ids(kp.recall(TASK)) in ([], known[-1:])
