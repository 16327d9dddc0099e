"""gunicorn's and Celery's workers, which are forked and replaced while they send."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from kp_middleware.database import connect
from kp_middleware.errors import DatabaseError
from kp_middleware.testing import LocalRegistry

for needed in ("celery", "gunicorn"):
    pytest.importorskip(needed, reason="needs the servers of requirements/matrix/servers.lock")

HERE = str(Path(__file__).parent)
RUNS = [f"question {number}" for number in range(40)]
PATIENCE_S = 60


def column(db, name, table):
    with closing(connect(db, read_only=True)) as connection:
        return [value for (value,) in connection.execute(f"SELECT {name} FROM {table}")]


def eventually(is_so):
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def registry():
    """A registry that takes a third of a second for each answer."""
    with LocalRegistry(answers=lambda _: time.sleep(0.3)) as running:
        yield running


@pytest.fixture
def serving(registry, tmp_path):
    """Runs a server of agents until the end of a block, and stops it as its operator would."""

    @contextmanager
    def serve(*command, **environment):
        known = {
            "KP_DB": str(tmp_path / "kp.db"),
            "KP_REGISTRY_URL": registry.url,
            "KP_API_KEY": registry.api_key,
            "PYTHONPATH": os.pathsep.join([HERE, os.environ.get("PYTHONPATH", "")]),
            **environment,
        }
        log = tmp_path / "log"
        with log.open("w") as file:
            server = subprocess.Popen(
                [sys.executable, "-m", *command],
                env={**os.environ, **known},
                cwd=tmp_path,
                stdout=file,
                stderr=file,
            )
            yield known
            server.send_signal(signal.SIGTERM)
            server.wait(PATIENCE_S)
        assert "Traceback" not in log.read_text()

    return serve


def states_of_runs_sent_once(db, registry):
    """Check that all runs are in the file, and none arrived twice; return the outbox' states."""
    assert sorted(column(db, "objective", "traces")) == sorted(RUNS)
    assert {*registry.times_received.values()} == {1}
    assert not registry.refused_at
    return Counter(column(db, "state", "outbox"))


@pytest.mark.parametrize("options", [(), ("--preload",)], ids=["each loads", "preloaded"])
def test_runs_behind_gunicorn_whose_workers_are_replaced(serving, registry, tmp_path, options):
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"

    def get(run):
        connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)
        with closing(connection):
            connection.request("GET", f"/{run.replace(' ', '%20')}")
            return connection.getresponse().status

    def is_up():
        try:
            socket.create_connection(tuple(address.split(":"))).close()
        except ConnectionRefusedError:
            return False
        return True

    workers = ("--worker-class", "gthread", "--workers", "2", "--threads", "2")
    with serving(
        "gunicorn", *workers, *options, "--max-requests", "8", "--bind", address, "agent_app:wsgi"
    ):
        eventually(is_up)
        with ThreadPoolExecutor(2) as pool:
            statuses = [*pool.map(get, RUNS)]

    assert statuses == [200] * len(RUNS)
    states = states_of_runs_sent_once(tmp_path / "kp.db", registry)
    assert states["sent"] == len(registry.documents)
    assert states["sent"] + states["pending"] == len(RUNS)


def test_runs_of_celery_whose_children_are_replaced(serving, registry, tmp_path):
    (tmp_path / "broker").mkdir()
    ask = "import agent_app, sys; [agent_app.ask(run) for run in sys.argv[1:]]"
    worker = ("-A", "agent_app", "worker", "--concurrency", "2", "--max-tasks-per-child", "8")

    def are_done():
        with suppress(DatabaseError):  # it does not exist yet
            return len(column(tmp_path / "kp.db", "seq", "traces")) == len(RUNS)

    with serving("celery", *worker, BROKER=str(tmp_path / "broker")) as known:
        subprocess.run(
            [sys.executable, "-c", ask, *RUNS],
            env={**os.environ, **known},
            cwd=tmp_path,
            check=True,
        )
        eventually(are_done)

    states = states_of_runs_sent_once(tmp_path / "kp.db", registry)
    assert states["sent"] > 2  # two lost answers would pause sending for an hour
    assert states["sending"] <= 1  # Celery kills a child that takes long to end, at its own end
