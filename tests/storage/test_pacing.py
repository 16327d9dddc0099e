import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from kp_middleware.errors import DatabaseError
from kp_middleware.rate_limit import Pace
from kp_middleware.storage import PacingTable, read_paces

PACING = Pace(
    full_at=1.0,
    paused_until=2.0,
    limited_at=3.0,
    asked_at=4.0,
    lost_at=5.0,
    stopped_at=6.0,
    failures=7,
    answering=True,
    holder="8-abc",
    held_until=9.0,
    noted_at=10.0,
    problem="limit",
    tries=11,
)
AGENT = {"registry": "https://registry.example", "agent_id": "agent-1", "key_hash": "5e0f"}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "kp" / "pacing.db"


@pytest.fixture
def table_of(path):
    """Makes tables on one file; keywords say whose."""
    return lambda **facts: PacingTable(path, **{**AGENT, **facts})


def put(table, pacing):
    return table.change(lambda _: pacing)


def get(table):
    found = []
    table.change(lambda pacing: found.append(pacing) or pacing or Pace())
    return found[0]


@pytest.mark.parametrize("pacing", [PACING, Pace(noted_at=1.0)], ids=["all", "never"])
def test_what_was_put_is_got(table_of, pacing):
    put(table_of(), pacing)

    assert get(table_of()) == pacing


def test_what_a_newer_release_adds_is_ignored(table_of, path):
    put(table_of(), PACING)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE paces SET pace = json_set(pace, '$.mood', 'calm')")

    assert get(table_of()) == PACING
    assert [row.pace.tries for row in read_paces(path)] == [11]


def test_the_file_is_for_the_user_alone(table_of, path):
    put(table_of(), PACING)

    modes = [stat.S_IMODE(at.stat().st_mode) for at in (path, path.parent, path.parent.parent)]
    assert modes == [0o600, 0o700, 0o700]


def test_without_an_agent_id_the_key_stands_for_the_agent(table_of):
    put(table_of(agent_id=None), PACING)

    assert get(table_of(agent_id=None)) == PACING
    assert get(table_of(agent_id=None, key_hash="another")) is None


def test_what_fails_in_between_changes_nothing(table_of):
    put(table_of(), PACING)

    with pytest.raises(ZeroDivisionError):
        table_of().change(lambda _: Pace(failures=1 // 0))

    assert get(table_of()) == PACING


@pytest.mark.parametrize(
    "damaged",
    [
        lambda _: b"SQLite format 3\x00" + b"this is no database " * 400,
        lambda _: b"a letter to my aunt " * 99,
        lambda before: before[:4096] + b"\xff" * (len(before) - 4096),
    ],
    ids=["broken", "no file", "torn pages"],
)
def test_a_damaged_file_is_set_aside_and_that_is_said(table_of, path, damaged, caplog):
    put(table_of(), PACING)
    damage = damaged(path.read_bytes())
    path.write_bytes(damage)
    path.with_name("pacing.db-journal").write_bytes(b"of the broken one")

    with pytest.raises(DatabaseError, match=r"is damaged"):
        put(table_of(), PACING)
    put(table_of(), PACING)

    (aside,) = path.parent.glob("pacing.db.corrupt-*")
    assert aside.read_bytes() == damage
    assert {*path.parent.iterdir()} == {path, aside}
    assert get(table_of()) == PACING
    assert str(aside) in caplog.text


def test_a_locked_file_is_not_waited_for_forever(table_of, path):
    put(table_of(), PACING)
    holder = sqlite3.connect(path)
    holder.execute("BEGIN IMMEDIATE")

    with closing(holder), pytest.raises(TimeoutError, match="locked"):
        put(table_of(patience_s=0.01), PACING)


def test_a_file_of_a_newer_version_is_read_and_not_written(table_of, path):
    put(table_of(), PACING)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 9")

    with pytest.raises(DatabaseError, match="upgrade kp-middleware"):
        put(table_of(), Pace(noted_at=1.0))

    assert table_of().read() == PACING


def test_where_there_is_no_file_there_is_nothing_to_read(table_of, path):
    assert table_of().read() is None
    assert not path.parent.exists()


def test_a_path_that_cannot_be_used_is_said_with_a_remedy(table_of, path):
    path.parent.parent.write_text("in the way")

    with pytest.raises(DatabaseError, match="XDG_STATE_HOME") as caught:
        put(table_of(), PACING)

    assert str(path) in str(caught.value)


def test_without_a_home_it_is_said(monkeypatch):
    monkeypatch.delenv("HOME")
    table = PacingTable(Path("~nobody-of-this-name/pacing.db"), **AGENT)

    with pytest.raises(DatabaseError, match="home directory"):
        put(table, PACING)
