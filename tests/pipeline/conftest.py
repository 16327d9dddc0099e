import pytest

from kp_middleware import KnowledgePulse
from kp_middleware.database import connect
from kp_middleware.storage import History
from kp_middleware.testing import LocalRegistry, StandInEmbedder


@pytest.fixture
def db(tmp_path):
    return tmp_path / "kp.db"


@pytest.fixture
def registry():
    with LocalRegistry() as running:
        yield running


@pytest.fixture
def pulse(db):
    """Makes pipelines on one file, and closes them; keywords are settings."""
    made = []
    yield lambda **settings: _made(made, {"db": db, "embedder": StandInEmbedder(), **settings})
    [pipeline.close(timeout_s=1) for pipeline in made]


@pytest.fixture
def stored(db):
    """Reads a trace of the file, with everything about it."""
    connection = connect(db)
    history = History(connection)
    yield lambda name="@last": history.trace(history.find(name))
    connection.close()


def _made(made, settings):
    made.append(KnowledgePulse(**settings))
    return made[-1]
