"""Several hosts at one PostgreSQL. Skipped where there is none, unless KP_NEED_POSTGRES is set."""

import os
import shutil
from multiprocessing import forkserver
from pathlib import Path

import psycopg
import pytest
import servers
from pods import Pod, processes

from kp_middleware.testing import LocalRegistry

_HERE = Path(__file__).parent
_MISSING = "needs PostgreSQL and pgbouncer: apt-get install postgresql pgbouncer"


def pytest_collection_modifyitems(items):
    """Mark tests that are not slow as `fleet`, which run on request only."""
    for item in items:
        if _HERE in item.path.parents and not item.get_closest_marker("slow"):
            item.add_marker("fleet")


@pytest.fixture(scope="session")
def model_server():
    """A server that is copied for each test that needs its own."""
    if not (servers.binaries() and servers.pooler()):
        pytest.fail(_MISSING) if os.environ.get("KP_NEED_POSTGRES") else pytest.skip(_MISSING)
    made = servers.SharedServer()
    yield made
    shutil.rmtree(made.folder)


@pytest.fixture(scope="session")
def common_server(model_server):
    """One that no test stops."""
    with servers.SharedServer(model_server) as server:
        yield server


@pytest.fixture
def server(model_server):
    """One that may be killed."""
    with servers.SharedServer(model_server) as server:
        yield server


@pytest.fixture(scope="session")
def template(common_server, tmp_path_factory):
    """A database with the schema."""
    url = common_server.create("template_kp")
    migrate(tmp_path_factory.mktemp("person"), url)
    return "template_kp"


@pytest.fixture
def shared(common_server, template, tmp_path):
    """The URL of a database with the schema, on the server that no test stops."""
    name = f"kp_{tmp_path.name}"
    with common_server.open("postgres") as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE {template}')
    return common_server.url(name)


@pytest.fixture
def own_shared(server, tmp_path):
    """The URL of a database with the schema, on a server that may be killed."""
    url = server.create("agents")
    migrate(tmp_path / "person", url)
    return url


@pytest.fixture
def pooled(common_server, shared):
    """The same database through pgbouncer in transaction mode."""
    with servers.Pooler(common_server) as pooler:
        yield shared.replace(f":{common_server.port}/", f":{pooler.port}/")


@pytest.fixture
def ask():
    """Asks a database; gives the rows."""

    def ask(url, sql, *values):
        with psycopg.connect(url, autocommit=True) as connection:
            cursor = connection.execute(sql, values)
            return cursor.fetchall() if cursor.description else None

    return ask


@pytest.fixture
def whole(ask):
    """Counts the rows of a log: by its head, one by one, and by the last number."""

    def whole(url):
        [counts] = ask(
            url,
            "SELECT (SELECT head FROM kp.heads), count(*), coalesce(max(seq), 0),"
            " count(DISTINCT (id, rev)) FROM kp.log",
        )
        assert len(set(counts)) == 1, counts
        return counts[0]

    return whole


@pytest.fixture
def generous():
    """A registry that takes all it gets at once, and knows idempotency keys."""
    with LocalRegistry(burst=10**6, refill_s=0.001, replays=True) as registry:
        yield registry


@pytest.fixture
def pods(tmp_path):
    """Makes so many hosts; what they logged is shown where a test fails."""
    made = []

    def make(count, **told):
        made.extend(Pod.at(tmp_path / f"pod-{number}", **told) for number in range(count))
        return made[-count:]

    yield make
    [print(f"{pod.folder.name}:\n{pod.log[-3000:]}") for pod in made]


@pytest.fixture
def start():
    """Starts work on a host; none outlives the test."""
    started = []

    def start(pod, work, *args, **settings):
        started.append(pod.start(work, *args, **settings))
        return started[-1]

    yield start
    [child.kill() for child in started]
    [child.join() for child in started]


@pytest.fixture(scope="session", autouse=True)
def fork_server(tmp_path_factory):
    """Starts what pods are forked from, with a home of its own."""
    home = str(tmp_path_factory.mktemp("home"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(_HERE), prepend=os.pathsep)
        [patch.setenv(name, home) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME")]
        processes.set_forkserver_preload(["warm_pod"])
        forkserver.ensure_running()


def migrate(folder, url):
    """Run ``shared migrate`` once."""
    typed = Pod.at(folder, shared=url).command("shared", "migrate")
    assert typed.returncode == 0, typed.stderr
