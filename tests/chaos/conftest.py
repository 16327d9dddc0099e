import os
from multiprocessing import forkserver
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from working_process import processes

_MEMORY = Path("/dev/shm")


@pytest.fixture(scope="module")
def memory():
    """A folder where nothing waits for a disk: a killed process loses as little as on one."""
    with TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        yield Path(folder)


@pytest.fixture(scope="session", autouse=True)
def fork_server(tmp_path_factory):
    """Starts what processes are forked from, with a home of its own."""
    home = str(tmp_path_factory.mktemp("home"))
    with pytest.MonkeyPatch.context() as patch:
        here = str(Path(__file__).parent)  # `warm` is loaded from there
        patch.setenv("PYTHONPATH", here, prepend=os.pathsep)
        [patch.setenv(name, home) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME")]
        processes.set_forkserver_preload(["warm"])
        forkserver.ensure_running()
