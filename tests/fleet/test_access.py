"""Roles, passwords, versions, rows that are refused: what is said, and what goes on."""

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import psycopg
import pytest
from pods import end, record, run_of, wait_for

from kp_middleware import KnowledgePulse
from kp_middleware.shared_log import Link
from kp_middleware.testing import StandInEmbedder

pytestmark = pytest.mark.timeout(120)

WRONG = "kennwort-0815"
ROLES = ("kp_writer", "kp_reader", "nobody_special")


def ids(ask, url):
    return {id for (id,) in ask(url, "SELECT id FROM kp.log WHERE rev = 0")}


@pytest.fixture
def roles(shared, repository, ask):
    """The roles of the docs, and one without rights; a URL for each."""
    page = (repository / "docs" / "fleet.md").read_text()
    [script] = [part for part in page.split("```sql\n") if part.startswith("CREATE ROLE")]
    ask(shared, f"{script.split('```')[0]}; CREATE ROLE nobody_special")
    for role in ROLES:
        ask(shared, f"ALTER ROLE {role} LOGIN PASSWORD 'x'")
    yield {role: f"postgresql://{role}:x@{shared.partition('@')[2]}" for role in ROLES}
    ask(shared, f"DROP OWNED BY {', '.join(ROLES)}; DROP ROLE {', '.join(ROLES)}")


def test_the_writer_of_the_docs_can_do_all_that_pods_do_and_deletes_nothing(
    roles, shared, generous, pods, start, ask, whole
):
    hosts = pods(2, shared=roles["kp_writer"], registry=generous, threshold=0.75)

    assert end([start(pod, record, range(5)) for pod in hosts]) == [0, 0]

    assert (whole(shared), len(generous.documents)) == (10, 5)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        ask(roles["kp_writer"], "DELETE FROM kp.log")


def test_the_reader_of_the_docs_pulls_and_changes_nothing(roles, shared, pods, start, ask):
    writing, reading = pods(2, shared=shared)
    end([start(writing, record, [1, 2])])
    reading.told["KP_SHARED"] = roles["kp_reader"]

    pulled = reading.command("pull", "--db", str(reading.folder / "fleet.db"))

    assert pulled.returncode == 0, pulled.stderr
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        ask(roles["kp_reader"], "UPDATE kp.heads SET head = 0")


@pytest.mark.parametrize("role", ["kp_reader", "nobody_special"])
def test_a_role_without_rights_keeps_its_runs_and_is_told(
    role, roles, shared, generous, pods, start, ask
):
    [pod] = pods(1, shared=roles[role], registry=generous, threshold=0.3)

    assert end([start(pod, record, range(3), flush_s=3)]) == [0]

    assert ids(ask, shared) == set()
    assert pod.rows("SELECT count(*) FROM traces") == [(3,)]
    assert not generous.requests
    assert "denies this role a permission" in pod.log
    assert "denies this role a permission" in pod.command("doctor").stdout


WRONGS = {
    "a wrong password": "postgresql://owner:{wrong}@127.0.0.1:{port}/postgres",
    "nobody there": "postgresql://owner:{wrong}@127.0.0.1:1/postgres",
    "a host that is not known": "postgresql://owner:{wrong}@nowhere.invalid/postgres",
    "a port that is no number": "postgresql://owner:{wrong}@127.0.0.1:{wrong}/postgres",
    "a percent sign": "postgresql://owner:{wrong}%@127.0.0.1/postgres",
    "a password with a slash": "postgresql://localhost:{wrong}/more@127.0.0.1:{port}/postgres",
    "an unknown option": "postgresql://owner@127.0.0.1:{port}/postgres?passwort={wrong}",
    "a password as an option": "postgresql://owner@127.0.0.1:{port}/postgres?password={wrong}",
    "another kind of URL": "mysql://owner:{wrong}@127.0.0.1:{port}/postgres",
}


@pytest.mark.parametrize("url", WRONGS.values(), ids=WRONGS)
def test_no_password_is_said_anywhere(url, common_server, db, monkeypatch, caplog, type_command):
    monkeypatch.setenv("KP_SHARED", url.format(wrong=WRONG, port=common_server.port))
    caplog.set_level(logging.DEBUG)

    kp = KnowledgePulse(db=db, embedder=StandInEmbedder(), threshold=0.3)
    kp.submit(run_of(1))
    kp.flush(2)
    kp.close(timeout_s=0.1)
    stored = kp.stats()
    copy = str(db.with_name("copy.db"))
    commands = ["status"], ["doctor"], ["config"], ["shared", "migrate"], ["pull", "--db", copy]
    typed = [type_command(*words) for words in commands]

    said = "".join(one.output for one in typed) + caplog.text + str(stored) + repr(kp.settings)
    assert stored.recorded == 1
    assert WRONG not in said
    assert [
        one.exception for one in typed if not isinstance(one.exception, SystemExit | None)
    ] == []
    assert typed[3].exit_code != 0


def test_a_column_of_the_next_release_is_in_nobodys_way(shared, generous, pods, start, ask, whole):
    ask(shared, "ALTER TABLE kp.log ADD COLUMN mood text")
    ask(shared, "UPDATE kp.meta SET value = '2' WHERE key = 'schema'")
    hosts = pods(2, shared=shared, registry=generous, threshold=0.3)

    assert end([start(pod, record, [number]) for number, pod in enumerate(hosts)]) == [0, 0]
    pulled = hosts[0].command("pull", "--db", str(hosts[0].folder / "copy.db"))

    assert whole(shared) == len(generous.documents) == 2
    assert pulled.returncode == 0, pulled.stderr


def test_a_schema_that_is_too_new_is_said_and_left_alone(shared, generous, pods, start, ask):
    ask(shared, "UPDATE kp.meta SET value = '9' WHERE key IN ('schema', 'oldest_client')")
    [pod] = pods(1, shared=shared, registry=generous, threshold=0.3)

    assert end([start(pod, record, [1], flush_s=3)]) == [0]

    assert ids(ask, shared) == set()
    assert pod.rows("SELECT count(*) FROM traces") == [(1,)]
    assert "upgrade kp-middleware" in pod.log
    assert "upgrade kp-middleware" in pod.command("status").stdout


def test_no_schema_is_said_and_made_by_nobody(common_server, pods, start, ask, tmp_path):
    url = common_server.create(f"empty_{tmp_path.name}")
    [pod] = pods(1, shared=url, threshold=0.3)

    assert end([start(pod, record, [1], flush_s=3)]) == [0]

    assert ask(url, "SELECT to_regnamespace('kp')") == [(None,)]
    assert "kp-middleware shared migrate" in pod.log


def test_of_several_who_migrate_at_once_one_makes_the_schema(common_server, tmp_path):
    url = common_server.create(f"new_{tmp_path.name}")

    def migrate(_):
        with closing(Link(url, "a person")) as link:
            return link.migrate()

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(migrate, range(4))) == [False, False, False, True]


@pytest.mark.parametrize("threshold", [0.3, 1.0], ids=["decided on", "shipped"])
def test_a_row_that_is_refused_holds_up_no_other(threshold, shared, pods, start, ask):
    ask(shared, "ALTER TABLE kp.log ADD CHECK (domain <> 'poison')")
    [pod] = pods(1, shared=shared, threshold=threshold)

    assert end([start(pod, record_one_poison, 100)]) == [0]

    [(poison,)] = pod.rows("SELECT id FROM traces WHERE domain = 'poison'")
    assert {id for (id,) in pod.rows("SELECT id FROM traces")} - ids(ask, shared) == {poison}
    assert len(ids(ask, shared)) == 99
    assert pod.log.count("violates") == 0  # PostgreSQL's own words may quote the row


def test_feedback_that_is_refused_holds_up_nothing(shared, pods, start, ask):
    [pod] = pods(1, shared=shared, threshold=0.3)
    end([start(pod, record, range(2))])
    ask(shared, "ALTER TABLE kp.log ADD CHECK (confidence <> 0.77)")
    for (id,), confidence in zip(pod.rows("SELECT id FROM traces"), ("0.77", "0.66"), strict=True):
        pod.command("feedback", id, "--confidence", confidence)

    assert end([start(pod, record, [2], flush_s=10)]) == [0]

    assert len(ids(ask, shared)) == 3
    assert ask(shared, "SELECT count(*) FROM kp.log WHERE confidence = 0.66") == [(2,)]
    assert pod.rows("SELECT count(*) FROM traces WHERE shared_seq < 0") == [(0,)]


def record_one_poison(pod, runs):
    """One run among others that PostgreSQL refuses."""
    with pod.pulse() as kp:
        for number in range(runs):
            kp.submit(run_of(number, **({"domain": "poison"} if number == runs // 2 else {})))
        kp.flush(20)


def test_too_many_connections_pass(shared, generous, pods, start, ask, whole):
    ask(shared, "CREATE ROLE crowded LOGIN PASSWORD 'x' CONNECTION LIMIT 4; GRANT owner TO crowded")
    url = f"postgresql://crowded:x@{shared.partition('@')[2]}"
    [pod] = pods(1, shared=url, registry=generous, threshold=0.3)
    try:
        with ExitStack() as stack:
            for _ in range(4):
                stack.enter_context(closing(psycopg.connect(url)))
            child = start(pod, record, range(3))
            wait_for(lambda: "too many connections" in pod.log)
        assert end([child]) == [0]
    finally:
        ask(shared, "DROP ROLE crowded")

    assert whole(shared) == len(generous.documents) == 3
