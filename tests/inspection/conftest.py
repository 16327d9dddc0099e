from contextlib import closing

import pytest
from click.testing import CliRunner

from kp_middleware import KnowledgePulse, current_trace
from kp_middleware.database import connect
from kp_middleware.inspection import main
from kp_middleware.testing import StandInEmbedder

_NETWORK = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "HTTPS_PROXY")


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
    return lambda *words: CliRunner().invoke(main, ["--db", str(db), *words])
