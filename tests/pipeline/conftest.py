import os
import subprocess
import sys
import tempfile
import textwrap
from functools import partial
from pathlib import Path

import pytest
from pipeline_helpers import column_of, sending_to

from kp_middleware import KnowledgePulse
from kp_middleware.database import connect
from kp_middleware.storage import History
from kp_middleware.testing import LocalRegistry, StandInEmbedder
from kp_middleware.views.trace import run_as_json

NEWER_PYTHONS_WARN = "ignore:This process:DeprecationWarning"  # of any fork beside threads
BY_THE_END = "ignore:unclosed database:ResourceWarning"
STRICT = ("-W", "error", "-W", BY_THE_END, "-W", NEWER_PYTHONS_WARN)


@pytest.fixture
def registry():
    with LocalRegistry() as running:
        yield running


@pytest.fixture
def sending(registry):
    """Settings with which every run clears and goes to the registry."""
    return sending_to(registry)


@pytest.fixture
def pulse(db):
    """Makes pipelines on one file, and closes them; keywords are settings."""
    made = []

    def make(**settings):
        made.append(KnowledgePulse(**{"db": db, "embedder": StandInEmbedder(), **settings}))
        return made[-1]

    yield make
    [pipeline.close(timeout_s=1) for pipeline in made]


@pytest.fixture
def stored(db):
    """Reads a trace of the file, with everything about it."""
    connection = connect(db)
    history = History(connection)
    yield lambda name="@last": run_as_json(history.run(history.find(name)))
    connection.close()


@pytest.fixture
def column(db):
    """Reads one column of all runs of the file, or of another table, in their order."""
    return partial(column_of, db)


@pytest.fixture
def written(db):
    """All bytes of the file, and of its WAL."""
    return lambda: b"".join(path.read_bytes() for path in db.parent.glob("kp.db*"))


@pytest.fixture
def run_child(db, tmp_path):
    """Runs a program until it has ended; keywords are its environment.

    It says nothing on standard error, unless it may complain: then that is returned, too.
    """

    def run(code, *, returns=0, may_complain=False, modules=(), **environment):
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        for name, text in {"program": code, **dict(modules)}.items():
            (folder / f"{name}.py").write_text(textwrap.dedent(text))
        path = os.pathsep.join([str(folder), os.environ["PYTHONPATH"]])
        done = subprocess.run(
            [sys.executable, *STRICT, folder / "program.py"],
            env={**os.environ, "KP_DB": str(db), "PYTHONPATH": path, **environment},
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
        assert done.returncode == returns, done.stderr
        assert may_complain or done.stderr == ""
        return (done.stdout, done.stderr) if may_complain else done.stdout

    return run
