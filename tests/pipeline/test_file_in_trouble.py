"""Whatever becomes of the file, the agent does not notice, and what can be kept is kept."""

import logging
import os
import sqlite3
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from pipeline_helpers import column_of, echo, sending_to, warnings_in

from kp_middleware.database import connect
from kp_middleware.storage import SqliteStore
from kp_middleware.testing import LocalRegistry

AS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
PAGE = 4096


def last_words(path, count=3):
    """The last word of each of the last runs."""
    return [text.split()[-1] for text in column_of(path, "objective")[-count:]]


def fill(kp):
    agent = echo(kp)
    [agent(f"{number} " + "x" * 800) for number in range(30)]
    return agent


class BrokenLog(logging.Handler):
    def emit(self, record):
        raise RuntimeError(f"no {record.msg}")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("waits", ["for its run", "for the file"])
def test_an_agent_does_not_wait_for_a_thread_that_the_program_s_log_has_ended(
    pulse, tmp_path, waits
):
    (tmp_path / "file").write_text("in the way")
    kp = pulse(db=tmp_path / "file" / "kp.db", sync=waits == "for its run")
    log, broken = logging.getLogger("kp_middleware"), BrokenLog()
    log.addHandler(broken)
    try:
        began_s = time.monotonic()
        echo(kp)("one")
        kp.flush()
        [one.join(2) for one in threading.enumerate() if one.name == "kp-scoring"]
    finally:
        log.removeHandler(broken)
    if waits == "for the file":
        kp.close()

    assert time.monotonic() - began_s < 9


@pytest.fixture
def filled(pulse, db):
    """A file with traces, which nobody has open."""
    kp = pulse(sync=True)
    fill(kp)
    kp.close()
    return db


def overwrite(path, page, pages=1):
    with path.open("r+b") as file:
        file.seek(page * PAGE)
        file.write(b"\xa5" * (pages * PAGE))


def overwrite_the_middle(path):
    third = path.stat().st_size // PAGE // 3
    overwrite(path, third, third)


def overwrite_the_table(path, name):
    with closing(connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,)
        ).fetchone()
    overwrite(path, page - 1)


def test_a_file_that_every_user_may_open_is_reported_once_and_left_so(pulse, db, caplog):
    pulse(sync=True).capture(len)("first")
    db.chmod(0o666)
    kp = pulse(sync=True)

    kp.capture(len)("second")
    kp.capture(len)("third")

    words = f"every user of this machine can open {db} (mode 0666): chmod 600 {db}*"
    assert warnings_in(caplog) == [words]
    assert db.stat().st_mode & 0o777 == 0o666


@pytest.mark.parametrize(
    ("harm", "saved"),
    [
        (overwrite_the_middle, ""),
        (lambda path: os.truncate(path, path.stat().st_size // 2 + 100), ""),
        (lambda path: os.truncate(path, 50), "0 of its traces could be recovered"),
    ],
    ids=["in the middle", "cut", "cut within its header"],
)
@pytest.mark.parametrize("sync", [True, False], ids=["sync", "in the background"])
def test_a_damaged_file_is_set_aside_and_the_run_is_in_the_new_one(
    pulse, filled, caplog, harm, saved, sync
):
    harm(filled)
    kp = pulse(sync=sync)

    answer = echo(kp)("after")

    assert (answer, kp.flush(), kp.stats().trouble) == ("after", (0, 0), None)
    (aside,) = filled.parent.glob("kp.db.corrupt-*Z")
    assert last_words(filled, 1) == ["after"]
    [said] = warnings_in(caplog)
    assert f"{filled} was damaged: {saved}" in said
    assert said.endswith(f"the damaged file is now {aside}")


def test_a_file_that_is_damaged_while_it_is_used_loses_no_run_that_comes(pulse, db):
    kp = pulse(sync=True)
    agent = fill(kp)
    overwrite_the_table(db, "vectors")

    [agent(f"after {number}") for number in range(30)]

    assert not kp.flush()
    assert last_words(db) == ["27", "28", "29"]


def test_what_was_sent_before_the_file_was_damaged_is_not_sent_again(pulse, db):
    with LocalRegistry(burst=1000) as registry:
        before = pulse(sync=True, **sending_to(registry))
        [echo(before)(str(number)) for number in range(5)]
        before.flush()
        before.close()
        overwrite_the_table(db, "outbox")

        after = pulse(sync=True, **sending_to(registry))
        echo(after)("after")
        after.flush(timeout_s=0.1)

    assert set(registry.times_received.values()) == {1}
    assert after.stats().blocked == 6  # with the one that was about to be queued


def test_a_file_that_is_removed_while_it_is_used_is_begun_anew(pulse, db, caplog):
    kp = pulse(sync=True)
    agent = echo(kp)
    agent("one")
    [file.unlink() for file in db.parent.glob("kp.db*")]

    agent("two")

    assert not kp.flush()
    assert last_words(db) == ["two"]
    words = f"{db} was replaced: from now on, runs are written to the new file"
    assert warnings_in(caplog) == [words]


def test_a_full_disk_keeps_the_runs_in_memory_until_there_is_room(run_child, filled):
    printed, complaints = run_child(
        """
        import resource, signal
        from pathlib import Path
        from kp_middleware import KnowledgePulse
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        kp = KnowledgePulse(sync=True)
        agent = kp.capture(lambda text: text)
        agent("before")
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        print(agent("one"), agent("two"), kp.stats().in_memory, kp.stats().recorded)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        print(agent("three"), kp.stats().in_memory, kp.flush())
        """,
        may_complain=True,
        KP_EMBEDDER="none",
    )

    assert printed == "one two 2 31\nthree 0 Backlog(unscored=0, unsent=0)\n"
    assert complaints.count("finished runs wait: ") == 1
    assert str(filled) in complaints
    assert last_words(filled) == ["one", "two", "three"]


@AS_ROOT
def test_a_folder_that_may_only_be_read_costs_the_agent_nothing(run_child):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        db = Path(folder) / "kp.db"
        connect(db).close()
        db.chmod(0o644)

        printed, complaints = run_child(
            """
            import os
            from kp_middleware import KnowledgePulse
            kp = KnowledgePulse(sync=True)
            agent = kp.capture(lambda text: text)
            os.setuid(54321)
            print(agent("one"), kp.stats().in_memory, kp.flush(0.1))
            kp.close()
            """,
            may_complain=True,
            KP_EMBEDDER="none",
            KP_DB=str(db),
        )

    assert printed == "one 1 Backlog(unscored=1, unsent=0)\n"
    assert f"finished runs wait: {db}: cannot be written (Permission denied)" in complaints
    assert "name another file with KP_DB or --db" in complaints
    assert "finished runs that could not be stored and are lost: 1" in complaints
    assert "Traceback" not in complaints


class Spoilt(SqliteStore):
    """A file that is damaged as long as one says so, and that nobody can mend."""

    damage = None
    mended = 0

    def open(self):
        if Spoilt.damage is not None:
            raise Spoilt.damage
        return super().open()

    def repair(self, **_):
        Spoilt.mended += 1


def test_a_damaged_file_is_not_mended_at_each_try_and_told_once_until_it_can_be_used(
    pulse, db, caplog, monkeypatch
):
    damage = sqlite3.DatabaseError("file is not a database")
    damage.sqlite_errorcode = sqlite3.SQLITE_NOTADB
    monkeypatch.setattr(Spoilt, "mended", 0)
    kp = pulse(store=Spoilt.at(db), sync=True, embedder=None)
    agent = echo(kp)

    with monkeypatch.context() as damaged:
        damaged.setattr(Spoilt, "damage", damage)
        [agent("x") for _ in range(3)]
        first, mended, told = kp.stats().trouble, Spoilt.mended, len(warnings_in(caplog))
    agent("y")
    kp.flush(30)
    between = kp.stats().trouble
    monkeypatch.setattr(Spoilt, "damage", damage)
    agent("x")

    assert str(db) in first
    assert (mended, told, between) == (1, 1, None)
    assert (Spoilt.mended, len(warnings_in(caplog))) == (1, 2)
