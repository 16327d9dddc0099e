"""The thread that sends: it outlives a file in trouble, and an end leaves nothing in its hands."""

import socket
import sqlite3
import threading
import time
from contextlib import ExitStack, closing
from types import SimpleNamespace

import pytest
from pipeline_helpers import echo, sending_to, trace_of, wait_until, warnings_in
from pydantic import SecretStr
from unsent_store import UnsentStore

from kp_middleware.database import connect
from kp_middleware.export import Registry, Sender
from kp_middleware.locations import pacing_file
from kp_middleware.storage import PacingTable, SharedPace, SqliteStore
from kp_middleware.testing import Fault, LocalRegistry

NO_WRITING = "CREATE TRIGGER full BEFORE UPDATE ON outbox {} BEGIN SELECT raise(FAIL, 'full'); END"


@pytest.fixture
def queued(pulse, db):
    """Puts a trace into the outbox for a registry, and leaves it there."""

    def queue(registry):
        with pulse(store=UnsentStore.at(db), sync=True, **sending_only_to(registry)) as kp:
            echo(kp)(f"one of {registry.url}")
        assert states(db) == ["pending"]

    return queue


@pytest.fixture
def sender_for(pulse):
    """Begins to send as another process does."""

    def start(registry):
        kp = pulse(**sending_only_to(registry))
        kp.flush(timeout_s=0.01)
        return kp

    return start


def sending_only_to(registry):
    return {**sending_to(registry), "embedder": None}


def outbox(db):
    with closing(connect(db)) as connection:
        return connection.execute("SELECT state, attempts, claimed_by FROM outbox").fetchall()


def states(db):
    return [state for state, *_ in outbox(db)]


def holders():
    with closing(sqlite3.connect(pacing_file())) as connection:
        names = ("holder", "asked_at", "lost_at")
        columns = ", ".join(f"pace ->> '{name}'" for name in names)
        return connection.execute(f"SELECT {columns} FROM paces").fetchall()


def is_sending():
    return any(thread.name == "kp-sending" for thread in threading.enumerate())


def test_a_file_in_trouble_is_said_once_and_tried_again_until_it_can_be_used(
    queued, sender_for, connection, db, registry, caplog
):
    queued(registry)
    connection.execute(NO_WRITING.format(""))

    kp = sender_for(registry)
    wait_until(lambda: kp.stats().trouble)
    trouble = kp.stats().trouble
    assert kp.flush(timeout_s=3600).unsent == 1  # it does not wait in vain
    connection.execute("DROP TRIGGER full")
    wait_until(lambda: states(db) == ["sent"])
    wait_until(lambda: kp.stats().trouble is None)

    assert str(db) in trouble
    assert warnings_in(caplog) == [f"nothing is sent for now: {trouble}"]
    assert len(registry.requests) == 1


def test_an_answer_that_comes_while_the_file_cannot_be_written_is_not_asked_for_again(
    queued, sender_for, connection, db
):
    never_sent = NO_WRITING.format("WHEN NEW.state = 'sent'")
    with LocalRegistry(answers=lambda _: connection.execute(never_sent) and None) as registry:
        queued(registry)

        kp = sender_for(registry)
        wait_until(lambda: kp.stats().trouble)
        during = states(db)
        connection.execute("DROP TRIGGER full")
        wait_until(lambda: states(db) == ["sent"])

        assert (during, len(registry.requests)) == (["sending"], 1)


def test_who_ends_while_the_registry_hangs_leaves_all_to_the_next_which_sends_at_once(
    queued, sender_for, db
):
    answers = iter([Fault.HANG])
    with LocalRegistry(answers=lambda _: next(answers, None)) as registry:
        queued(registry)
        ended = sender_for(registry)
        wait_until(lambda: registry.requests)

        ended.close(timeout_s=0)
        between, (turn,) = outbox(db), holders()
        sender_for(registry)
        wait_until(lambda: states(db) == ["sent"])

        assert between == [("pending", 0, None)]
        assert (turn[:2], turn[2] is None) == ((None, None), False)
        assert registry.most_at_once == 1
        sent = {(one.body, one.headers["idempotency-key"]) for one in registry.requests}
        assert len(sent) == 1


def test_no_request_begins_so_late_before_the_end_that_its_answer_is_not_heard(pulse):
    with LocalRegistry(answers=lambda _: time.sleep(0.2)) as registry:
        kp = pulse(**sending_to(registry))
        [kp.submit(trace_of()) for _ in range(12)]

        kp.close(timeout_s=2)

        assert 0 < len(registry.requests) == kp.stats().sent < 12


class Slow(Registry):
    """Lets the sending thread go on before it tells whether a byte was sent."""

    thread = None

    def abort(self):
        lost = super().abort()
        self.thread.join(0.5)
        return lost


def test_a_request_broken_off_counts_once_however_soon_its_thread_goes_on(queued, sender_for, db):
    with LocalRegistry(answers=[Fault.HANG]) as registry:
        queued(registry)
        there = Slow(registry.url, SecretStr(registry.api_key))
        table = PacingTable(
            pacing_file(), registry=there.url, agent_id=None, key_hash=there.key_hash
        )
        outbox = SqliteStore.at(db).outbox(there.url, None)
        pace = SharedPace(table, longest_request_s=10)
        sender = Sender(outbox, there, pace=pace, clock=time.time)
        there.thread = threading.Thread(target=sender.send_due)
        there.thread.start()
        wait_until(lambda: registry.requests)

        sender.abandon()
        sender_for(registry)
        wait_until(lambda: states(db) == ["sent"])

        assert len(registry.requests) == 2


def test_an_answer_that_nobody_waits_for_any_more_is_not_written_down(queued, sender_for, db):
    asked, may_answer = threading.Event(), threading.Event()
    with LocalRegistry(answers=lambda _: asked.set() or (may_answer.wait(20) and None)) as registry:
        queued(registry)
        ended = sender_for(registry)
        asked.wait(20)

        ended.close(timeout_s=0)
        may_answer.set()
        wait_until(lambda: not is_sending())

        assert states(db) == ["pending"]


@pytest.fixture
def unreachable():
    """An address that lets whoever connects to it wait."""
    with ExitStack() as open_ones:
        listener = open_ones.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            waiting = open_ones.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield SimpleNamespace(
            url=f"http://127.0.0.1:{listener.getsockname()[1]}", api_key="kp_" + "0" * 64
        )


def test_who_cannot_even_reach_the_registry_leaves_nothing_that_counts(
    queued, sender_for, db, unreachable
):
    queued(unreachable)
    ended = sender_for(unreachable)
    wait_until(lambda: states(db) == ["sending"])

    ended.close(timeout_s=0)
    wait_until(lambda: not is_sending())

    assert (states(db), holders()) == (["pending"], [(None, None, None)])


def test_where_the_file_is_locked_who_ends_waits_for_nobody(queued, sender_for, db):
    with LocalRegistry(answers=[Fault.HANG]) as registry:
        queued(registry)
        ended = sender_for(registry)
        wait_until(lambda: registry.requests)

        with closing(connect(db)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            ended.close(timeout_s=0)
            holder.rollback()

        assert states(db) == ["sending"]
