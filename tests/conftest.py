"""Tests see no settings, files or traces of whoever runs them; only the cached model is shared."""

import os
import shutil
import sys
import tempfile
from contextlib import closing
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import settings
from platformdirs import user_cache_path

from kp_middleware import KnowledgePulse, current_trace
from kp_middleware.database import connect
from kp_middleware.recording import shield
from kp_middleware.testing import FakeClock, StandInEmbedder

_REPOSITORY = Path(__file__).parents[1]
_SHARED = _REPOSITORY.parent / "shared"
_LOOPBACK = Path(__file__).parent / "loopback"
_CACHES = user_cache_path()
_LOOKS = {"NO_COLOR", "FORCE_COLOR", "CLICOLOR", "COLUMNS", "LINES"}
_SET = [name for name in os.environ if name.upper().startswith("KP_") or name in _LOOKS]
_PLACES = {"HOME": "", "XDG_CONFIG_HOME": ".config", "XDG_DATA_HOME": "d", "XDG_STATE_HOME": "s"}

_MEMORY = Path("/dev/shm")  # where SQLite waits for no disk: half of the time
if "TMPDIR" not in os.environ and _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 2 << 30:
    os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)

_NETWORK = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "HTTPS_PROXY")

settings.register_profile("unhurried", deadline=None)  # a busy machine is no failure
settings.load_profile("unhurried")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """One more than the machine has cores: many a test waits for a child or for a clock."""
    return (os.cpu_count() or 1) + 1


@pytest.fixture
def tmp_path(tmp_path_factory):
    """A folder for each test. pytest's own reads the names of all before it: 5 ms in the end."""
    return Path(tempfile.mkdtemp(prefix="test", dir=tmp_path_factory.getbasetemp()))


@pytest.fixture(scope="session", autouse=True)
def no_settings(tmp_path_factory):
    """Nothing is set by whoever runs the tests, also for what is made once for several of them."""
    with pytest.MonkeyPatch.context() as patch:
        [patch.delenv(name) for name in _SET]
        patch.setenv("XDG_CACHE_HOME", str(_CACHES))
        _move_home(patch, tmp_path_factory.mktemp("home"))
        yield


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path_factory):
    """A home of its own for each test, with nothing in it."""
    folder = Path(tempfile.mkdtemp(prefix="home", dir=tmp_path_factory.getbasetemp()))
    _move_home(monkeypatch, folder)
    return folder


def _move_home(patch, folder):
    for name, place in _PLACES.items():
        patch.setenv(name, str(folder / place))


@pytest.fixture(scope="session", autouse=True)
def reached_out(tmp_path_factory):
    """The file of what was tried beyond this machine, here or in a child process."""
    file = tmp_path_factory.mktemp("loopback") / "attempts"
    file.touch()
    sys.path.append(str(_LOOPBACK))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REACHED_OUT", str(file))
        patch.setenv("PYTHONPATH", str(_LOOPBACK), prepend=os.pathsep)
        import_module("loopback.sitecustomize")
        yield file


@pytest.fixture(autouse=True)
def loopback(reached_out):
    """A network that ends at this machine: whoever wants to leave it fails the test."""
    yield
    tried = reached_out.read_text()
    reached_out.write_text("")
    assert tried == "", f"this tried to leave the machine: {tried}"


@pytest.fixture(autouse=True)
def nothing_swallowed():
    """Clear the failures that earlier tests of this process left counted and logged."""
    shield.failures.clear()
    shield.logged.clear()


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def db(tmp_path):
    return tmp_path / "kp.db"


@pytest.fixture
def connection(db):
    """To look into the file, beside a pipeline or without one."""
    with closing(connect(db)) as opened:
        yield opened


@pytest.fixture(scope="session")
def repository():
    """The folder of the checkout."""
    return _REPOSITORY


@pytest.fixture(scope="session")
def shared():
    """The folder of shared material beside the checkout, which a clone need not have."""
    return _SHARED if _SHARED.exists() else pytest.skip("the shared material is not here")


@pytest.fixture
def usual_network(monkeypatch):
    """Without what this machine says of authorities and proxies."""
    [monkeypatch.delenv(name, raising=False) for name in _NETWORK]


@pytest.fixture
def kp(db):
    with KnowledgePulse(db=db, embedder=StandInEmbedder(), sync=True, threshold=0.5) as made:
        yield made


@pytest.fixture
def agent(kp):
    """Thinks, calls a tool and is sure of itself."""
    shout = kp.tool(name="shout")(str.upper)

    @kp.capture(domain="code")
    def answer(question):
        current_trace().thought("I say it louder")
        current_trace().outcome(confidence=0.9)
        return shout(question)

    return answer


@pytest.fixture
def damaged(agent, db, kp):
    """One page of the steps is overwritten."""
    agent("one " * 5000)
    kp.close()
    with closing(connect(db)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'steps'"
        ).fetchone()
    with db.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xee" * 4096)


@pytest.fixture
def type_command(db):
    """Types a command for this file; what it printed and how it ended are in the result."""
    return lambda *words: CliRunner().invoke(
        import_module("kp_middleware.cli").main, ["--db", str(db), *words]
    )
