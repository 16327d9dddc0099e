"""Real processes that fork while they record: every run is in the file, once."""

import importlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from contextlib import closing, suppress
from logging.handlers import BufferingHandler
from pathlib import Path

import pytest
from pipeline_helpers import SideEffectEmbedder, echo, sending_to

from kp_middleware.database import connect
from kp_middleware.testing import Answer, LocalRegistry

BOUND_S = 0.5
LESS_THAN_WHAT_IS_WAITED_FOR_S = 5.0
PROC = Path("/proc/self/fd")

# newer Pythons warn of any fork beside threads
pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
needs_proc = pytest.mark.skipif(not PROC.exists(), reason="there is no /proc")


@pytest.fixture
def fork():
    """Forks a child that works and ends; what goes wrong there is in its exit status."""
    here = os.getpid()

    def fork(work):
        child = _forked()
        if child == 0:
            _end_with(work)
        return child

    yield fork
    assert os.getpid() == here


def _forked():
    """Hugging Face's filelock, once loaded, lets one thread fork at a time (Python 3.12 and up)."""
    while True:
        with suppress(RuntimeError):
            return os.fork()


@pytest.fixture
def short_bound(monkeypatch):
    """A fork waits less long than it would."""
    monkeypatch.setattr("kp_middleware.database._database._FORK_TIMEOUT_S", BOUND_S)


@pytest.fixture
def objectives(db):
    """Return the objectives of all scored runs in the file."""

    def read():
        with closing(connect(db, read_only=True)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            rows = connection.execute("SELECT objective, state FROM traces ORDER BY 1").fetchall()
        return [objective for objective, state in rows if state == "scored"]

    return read


def _end_with(work):
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(30)  # it must not outlive the test
    heard = BufferingHandler(1000)
    heard.setLevel(logging.WARNING)
    logging.getLogger("kp_middleware").addHandler(heard)
    try:
        work()
        status = len(heard.buffer)
        print(*heard.buffer, sep="\n", file=sys.__stderr__)
    except BaseException:  # noqa: BLE001 - the child must not go on with pytest
        traceback.print_exc(file=sys.__stderr__)
        status = 99
    os._exit(status)


def statuses(*children):
    return [os.waitpid(child, 0)[1] for child in children]


def record(kp, *texts):
    agent = echo(kp)
    [agent(text) for text in texts]


def record_and_close(kp, *texts):
    record(kp, *texts)
    kp.close(timeout_s=20)


def names(*whose, count):
    return [f"{who} {number:02}" for who in sorted(whose) for number in range(count)]


def record_slowly(kp, whose, count):
    for name in names(whose, count=count):
        record(kp, name)
        time.sleep(0.005)


def in_threads(work, arguments):
    threads = [threading.Thread(target=work, args=each) for each in arguments]
    [thread.start() for thread in threads]
    return threads


def open_files_of_ours(*folders):
    """Those of this test: others may have left some open."""
    files = [link.resolve() for link in PROC.iterdir()]
    return [file for file in files if any(map(file.is_relative_to, folders))]


@pytest.mark.parametrize(
    ("sync", "rounds"), [(False, 12), (True, 6)], ids=["in the background", "at once"]
)
def test_a_busy_parent_and_its_children_lose_no_run(pulse, fork, objectives, caplog, sync, rounds):
    kp = pulse(sync=sync, threshold=0)  # or it warns that nothing clears
    parents = ["parent a", "parent b"]
    children = [f"child {number:02}" for number in range(rounds)]
    busy = in_threads(record_slowly, [(kp, name, 50) for name in parents])

    ended = [
        statuses(fork(lambda name=name: record_and_close(kp, *names(name, count=5))))
        for name in children
    ]
    [thread.join() for thread in busy]
    kp.close(timeout_s=20)

    assert ended == [[0]] * rounds
    assert objectives() == names(*children, count=5) + names(*parents, count=50)
    assert "locked" not in caplog.text


def test_a_child_outlives_its_parent(run_child, objectives):
    run_child(
        """
        import os, time
        from kp_middleware import KnowledgePulse

        kp = KnowledgePulse(embedder=None)
        agent = kp.capture(lambda text: text)
        agent("parent")
        kp.flush()
        agent("parent too")
        here = os.getpid()
        if os.fork() == 0:
            agent("with the parent")
            kp.flush()
            while os.getppid() == here:
                time.sleep(0.01)
            for number in range(5):
                agent(f"without the parent {number:02}")
                kp.flush()
                time.sleep(0.05)
            os._exit(0)  # and closes nothing, which could mend what was broken
        """
    )

    alone = names("without the parent", count=5)
    assert objectives() == ["parent", "parent too", "with the parent", *alone]


def test_a_child_has_children(pulse, fork, objectives):
    kp = pulse()

    def be_a_parent():
        record(kp, "child")
        assert statuses(fork(lambda: record_and_close(kp, "grandchild"))) == [0]
        record_and_close(kp, "child again")

    record(kp, "parent")
    ended = statuses(fork(be_a_parent))
    record_and_close(kp, "parent again")

    assert ended == [0]
    assert objectives() == ["child", "child again", "grandchild", "parent", "parent again"]


def test_several_threads_fork_at_once(pulse, fork, objectives):
    kp = pulse()
    record(kp, "parent")
    children = []

    def fork_four(name):
        for each in names(name, count=4):
            children.append(fork(lambda each=each: record_and_close(kp, each)))
            record(kp, f"parent of {each}")

    threads = in_threads(fork_four, [("a",), ("b",), ("c",)])
    [thread.join() for thread in threads]
    ended = statuses(*children)
    kp.close(timeout_s=20)

    born = names("a", "b", "c", count=4)
    assert ended == [0] * 12
    assert objectives() == [*born, "parent", *(f"parent of {name}" for name in born)]


@pytest.mark.parametrize("sync", [False, True], ids=["in the background", "at once"])
def test_an_embedder_forks(pulse, fork, objectives, sync):
    ended, embedder = [], SideEffectEmbedder()
    kp = pulse(embedder=embedder, sync=sync)
    embedder.happen = lambda: ended.extend(statuses(fork(lambda: record_and_close(kp, "child"))))

    record(kp, "parent")
    kp.flush(timeout_s=20)

    assert (ended, objectives()) == ([0], ["child", "parent"])


def test_what_a_forked_child_does_in_a_captured_function_is_a_run_of_its_own(
    pulse, fork, objectives
):
    kp = pulse()

    @kp.capture
    def parent(_text):
        return statuses(fork(lambda: record_and_close(kp, "child")))

    ended = parent("parent")
    kp.close(timeout_s=20)

    assert (ended, objectives()) == ([0], ["child", "parent"])


@needs_proc
def test_a_child_has_none_of_our_files_open(pulse, fork, tmp_path, home):
    with LocalRegistry() as registry:
        kp = pulse(**sending_to(registry))
        busy = in_threads(record_slowly, [(kp, "parent", 40)])

        ended = [
            statuses(fork(lambda: os._exit(len(open_files_of_ours(tmp_path, home)))))
            for _ in range(10)
        ]
        busy[0].join()
        kp.close(timeout_s=20)

    assert ended == [[0]] * 10
    assert registry.requests


@needs_proc
def test_nor_while_the_registry_is_asked(pulse, fork, tmp_path, home):
    asked, may_answer = threading.Event(), threading.Event()

    def answer(_request):
        asked.set()
        may_answer.wait(20)
        return Answer(500)

    with LocalRegistry(answers=answer) as registry:
        kp = pulse(**sending_to(registry))
        record(kp, "parent")
        asked.wait(20)

        ended = statuses(fork(lambda: os._exit(len(open_files_of_ours(tmp_path, home)))))
        may_answer.set()
        kp.close(timeout_s=20)

    assert ended == [0]


@needs_proc
@pytest.mark.usefixtures("short_bound")
def test_nor_while_a_run_is_embedded_for_longer_than_a_fork_waits(
    pulse, fork, objectives, tmp_path, home
):
    begun, may_end = threading.Event(), threading.Event()

    def wait():
        begun.set()
        may_end.wait(20)

    kp = pulse(embedder=SideEffectEmbedder(wait))

    def go_on():
        assert open_files_of_ours(tmp_path, home) == []
        may_end.set()
        record_and_close(kp, "child")

    record(kp, "parent")
    begun.wait(20)
    began = time.monotonic()
    child = fork(go_on)
    took_s = time.monotonic() - began
    ended = statuses(child)
    may_end.set()
    kp.close(timeout_s=20)

    assert (ended, objectives()) == ([0], ["child", "parent"])
    assert took_s < LESS_THAN_WHAT_IS_WAITED_FOR_S


def test_a_fork_waits_for_a_step_which_may_hold_locks_that_a_child_waits_for(
    pulse, fork, objectives, tmp_path, monkeypatch
):
    (tmp_path / "slow_to_import.py").write_text("import time; time.sleep(0.3); complete = True")
    monkeypatch.syspath_prepend(tmp_path)
    begun = threading.Event()

    def import_it():
        begun.set()
        assert importlib.import_module("slow_to_import").complete

    embedder = SideEffectEmbedder(import_it)
    kp = pulse(embedder=embedder)
    record(kp, "parent")
    begun.wait(20)

    embedder.happen = import_it  # in the child, too
    ended = statuses(fork(lambda: record_and_close(kp, "child")))
    kp.close(timeout_s=20)

    assert (ended, objectives()) == ([0], ["child", "parent"])


@pytest.mark.usefixtures("short_bound")
def test_a_fork_waits_a_while_for_what_another_process_holds_up(pulse, fork, db, objectives):
    kp = pulse()
    record(kp, "first")
    kp.flush()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, db], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout.readline() == "held\n"
        record(kp, "second")
        time.sleep(0.2)  # it begins to wait for the file

        began = time.monotonic()
        child = fork(lambda: None)
        took_s = time.monotonic() - began
        holder.stdin.close()
    kp.close(timeout_s=20)

    assert (statuses(child), objectives()) == ([0], ["first", "second"])
    assert BOUND_S / 2 < took_s < LESS_THAN_WHAT_IS_WAITED_FOR_S


HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


APPLICATION = """
    from kp_middleware import KnowledgePulse

    kp = KnowledgePulse(embedder=None)
    agent = kp.capture(lambda text: text)
    agent("imported")
    kp.flush()

    def work(number):
        agent(f"child {number}")
        kp.close()
"""


def test_multiprocessing_asks_a_server_to_fork_that_has_recorded(run_child, objectives):
    run_child(
        """
        import multiprocessing
        import application

        if __name__ == "__main__":
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(["application"])
            workers = [context.Process(target=application.work, args=(n,)) for n in range(2)]
            [worker.start() for worker in workers]
            [worker.join() for worker in workers]
            assert [worker.exitcode for worker in workers] == [0, 0]
        """,
        modules={"application": APPLICATION},
    )

    assert objectives() == ["child 0", "child 1", "imported", "imported"]
