"""Whatever becomes of the file, the agent does not notice, and what can be kept is kept."""

import os
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from contextlib import closing
from pathlib import Path

import pytest

from kp_middleware.database import SCHEMA, connect
from kp_middleware.storage import SqliteStore
from kp_middleware.testing import LocalRegistry

AS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
PAGE = 4096


def test_a_file_that_every_user_may_open_is_told_once_and_left_so(pulse, db, caplog):
    pulse(sync=True).capture(len)("first")
    db.chmod(0o666)
    kp = pulse(sync=True)

    kp.capture(len)("second")
    kp.capture(len)("third")

    assert said(caplog) == [
        f"every user of this machine may open {db} (mode 0666): chmod 600 {db}*"
    ]
    assert db.stat().st_mode & 0o777 == 0o666


def said(caplog):
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def objectives(path):
    with closing(connect(path)) as connection:
        return [text for (text,) in connection.execute("SELECT objective FROM traces ORDER BY seq")]


def fill(kp, runs=60):
    agent = kp.capture(lambda text: text)
    [agent(f"{number} " + "x" * 800) for number in range(runs)]
    return agent


def overwrite_the_middle(path):
    pages = path.stat().st_size // PAGE
    with path.open("r+b") as file:
        file.seek(pages // 3 * PAGE)
        file.write(b"\xa5" * (pages // 3 * PAGE))


@pytest.fixture
def filled(pulse, db):
    """A file with traces, which nobody has open."""
    kp = pulse(sync=True)
    fill(kp)
    kp.close()
    return db


@pytest.mark.parametrize("harm", ["middle", "cut"])
@pytest.mark.parametrize("sync", [True, False], ids=["sync", "in the background"])
def test_a_damaged_file_is_set_aside_and_the_run_is_in_the_new_one(
    pulse, filled, caplog, harm, sync
):
    size = filled.stat().st_size
    overwrite_the_middle(filled) if harm == "middle" else os.truncate(filled, size // 2 + 100)
    kp = pulse(sync=sync)

    answer = kp.capture(lambda text: text)("after")
    backlog = kp.flush()

    (aside,) = filled.parent.glob("kp.db.corrupt-*Z")
    assert (answer, backlog) == ("after", (0, 0))
    assert objectives(filled)[-1].endswith("after")
    assert len(said(caplog)) == 1
    assert f"{filled} was damaged: " in said(caplog)[0]
    assert said(caplog)[0].endswith(f"the damaged file is now {aside}")


def test_a_file_that_is_damaged_while_it_is_used_loses_no_run_that_comes(pulse, db):
    kp = pulse(sync=True)
    agent = fill(kp)
    overwrite_the_table(db, "vectors")

    [agent(f"after {number}") for number in range(30)]

    assert not kp.flush()
    assert [text.split()[-1] for text in objectives(db)[-3:]] == ["27", "28", "29"]


def test_what_was_sent_before_the_file_was_damaged_is_not_sent_again(pulse, db):
    with LocalRegistry(burst=1000) as registry:
        having_a_key = {"registry_url": registry.url, "api_key": registry.api_key, "threshold": 0}
        before = pulse(sync=True, **having_a_key)
        [before.capture(lambda text: text)(str(number)) for number in range(5)]
        before.flush()
        before.close()
        overwrite_the_table(db, "outbox")

        after = pulse(sync=True, **having_a_key)
        after.capture(lambda text: text)("after")
        after.flush(timeout_s=0.1)

    assert set(registry.times_received.values()) == {1}
    assert after.stats().blocked == 6  # with the one that was about to be queued


def overwrite_the_table(path, name):
    with closing(connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,)
        ).fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE)
        file.write(b"\xa5" * PAGE)


def test_a_file_that_is_cut_within_its_header_is_begun_anew(pulse, filled, caplog):
    os.truncate(filled, 50)
    kp = pulse(sync=True)

    kp.capture(lambda text: text)("after")

    assert (kp.stats().scored, kp.stats().trouble) == (1, None)
    assert "was damaged: 0 of its traces could be recovered" in said(caplog)[0]


def test_a_file_of_a_newer_version_is_left_alone_and_the_runs_wait(pulse, filled, caplog):
    newer = SCHEMA + 1
    with closing(connect(filled)) as connection:
        connection.execute(f"PRAGMA user_version = {newer}")
    kp = pulse(sync=True)

    kp.capture(lambda text: text)("one")

    assert kp.stats().in_memory == 1
    (words,) = said(caplog)
    assert words.startswith(f"finished runs wait: {filled}: has schema {newer}, of a newer")
    assert words.endswith("; upgrade kp-middleware")


def test_a_folder_that_is_missing_is_made(pulse, tmp_path):
    path = tmp_path / "not" / "yet" / "kp.db"
    kp = pulse(db=path, sync=True)

    kp.capture(lambda text: text)("one")

    assert len(objectives(path)) == 1


def test_a_file_that_is_removed_while_it_is_used_is_begun_anew(pulse, db, caplog):
    kp = pulse(sync=True)
    agent = kp.capture(lambda text: text)
    agent("one")
    [file.unlink() for file in db.parent.glob("kp.db*")]

    agent("two")

    assert [text.split()[-1] for text in objectives(db)] == ["two"]
    assert not kp.flush()
    assert said(caplog) == [f"{db} was replaced: from now on, runs are written to the new file"]


def run(code, db, **environment):
    """What a process of its own printed on standard output and standard error."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "KP_DB": str(db), "KP_EMBEDDER": "none", **environment},
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    return done.stdout, done.stderr


def test_a_full_disk_keeps_the_runs_in_memory_until_there_is_room(filled):
    printed, complaints = run(
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
        print(agent("one"), agent("two"), kp.stats().in_memory)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        print(agent("three"), kp.stats().in_memory, kp.flush())
        """,
        filled,
    )

    assert printed == "one two 2\nthree 0 Backlog(unscored=0, unsent=0)\n"
    assert complaints.count("finished runs wait: ") == 1
    assert str(filled) in complaints
    assert [text.split()[-1] for text in objectives(filled)[-3:]] == ["one", "two", "three"]


@AS_ROOT
@pytest.mark.parametrize("exists", [True, False], ids=["a file of others", "no file"])
def test_a_folder_that_may_only_be_read_costs_the_agent_nothing(exists):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        db = Path(folder) / "kp.db"
        if exists:
            connect(db).close()
            db.chmod(0o644)

        printed, complaints = run(
            """
            import os
            from kp_middleware import KnowledgePulse
            kp = KnowledgePulse(sync=True)
            agent = kp.capture(lambda text: text)
            os.setuid(54321)
            print(agent("one"), kp.stats().in_memory, kp.flush(0.1))
            kp.close()
            """,
            db,
        )

    assert printed == "one 1 Backlog(unscored=1, unsent=0)\n"
    assert f"finished runs wait: {db}: cannot be written (Permission denied)" in complaints
    assert "name another file with KP_DB or --db" in complaints
    assert "finished runs that could not be stored and are lost: 1" in complaints
    assert "Traceback" not in complaints


def test_a_wal_that_a_killed_process_left_is_part_of_the_file(pulse, db):
    with pytest.raises(subprocess.CalledProcessError):
        run(
            """
            import os
            from kp_middleware import KnowledgePulse
            kp = KnowledgePulse(sync=True)
            kp.capture(lambda text: text)("before")
            os.kill(os.getpid(), 9)
            """,
            db,
        )
    left = db.with_name("kp.db-wal").stat().st_size

    kp = pulse(sync=True)
    kp.capture(lambda text: text)("after")

    assert left > 0
    assert [text.split()[-1] for text in objectives(db)] == ["before", "after"]


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


@pytest.fixture
def spoil(tmp_path):
    """Begins and ends the damage of such a file."""
    path = tmp_path / "another.db"
    path.write_bytes(b"no database" * 100)
    with (
        closing(sqlite3.connect(path)) as connection,
        pytest.raises(sqlite3.DatabaseError) as raised,
    ):
        connection.execute("SELECT * FROM traces")
    Spoilt.mended = 0
    yield lambda *, is_damaged: setattr(Spoilt, "damage", raised.value if is_damaged else None)
    Spoilt.damage = None


def test_a_damaged_file_is_not_mended_at_each_try_and_told_once_until_it_can_be_used(
    pulse, db, spoil, caplog
):
    kp = pulse(store=Spoilt.at(db), sync=True, embedder=None)
    agent = kp.capture(lambda text: text)

    spoil(is_damaged=True)
    [agent("x") for _ in range(3)]
    first, mended, told = kp.stats().trouble, Spoilt.mended, len(said(caplog))
    spoil(is_damaged=False)
    agent("y")
    kp.flush(30)
    between = kp.stats().trouble
    spoil(is_damaged=True)
    agent("x")

    assert str(db) in first
    assert (mended, told, between) == (1, 1, None)
    assert (Spoilt.mended, len(said(caplog))) == (1, 2)
