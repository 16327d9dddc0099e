"""Where processes cannot fork and files have no POSIX locks, as on Windows."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from kp_middleware.testing import LocalRegistry

pytestmark = pytest.mark.timeout(120)

AGENT = """
    from kp_langchain.demo import run_tasks
    from kp_middleware import KnowledgePulse
    from kp_middleware.testing import StandInEmbedder

    with KnowledgePulse(embedder=StandInEmbedder(), domain="finance", threshold=0.3) as kp:
        run_tasks(kp)
        print(*kp.flush(50))
"""
FUNCTION = """
    from kp_middleware import KnowledgePulse, current_trace
    from kp_middleware.testing import StandInEmbedder

    with KnowledgePulse(embedder=StandInEmbedder(), threshold=0.1, sync=True) as kp:
        @kp.capture
        def answer(question):
            current_trace().outcome(confidence=0.9)
            return kp.tool(name="shout")(str.upper)(question)

        print(answer("one"), *kp.flush(50))
"""
COMMANDS = """
    import json
    from click.testing import CliRunner
    from kp_middleware.cli import main

    for words in (["status"], ["list"], ["show", "@last"]):
        done = CliRunner().invoke(main, [*words, "--json"], catch_exceptions=False)
        print(json.dumps(json.loads(done.stdout)))
"""
DAMAGED = """
    from pathlib import Path
    from kp_middleware.storage import SqliteStore
    import os
    store = SqliteStore.at(Path(os.environ["KP_DB"]))
    print(store.repair(destination="https://registry.example", redactor="test") is not None)
"""


@pytest.fixture
def child(db):
    """Runs code in a process from which much was taken; words are its arguments."""

    def run(code, *words, **environment):
        begin = "from as_on_windows import take_away\ntake_away()\n"
        return subprocess.run(
            [sys.executable, "-c", begin + textwrap.dedent(code), *words],
            env={
                **os.environ,
                "KP_DB": str(db),
                "PYTHONPATH": f"{Path(__file__).parent}{os.pathsep}{os.environ['PYTHONPATH']}",
                **environment,
            },
            capture_output=True,
            text=True,
            timeout=100,
            check=True,
        )

    return run


@pytest.mark.parametrize(
    ("code", "printed"), [(AGENT, "0 0\n"), (FUNCTION, "ONE 0 0\n")], ids=["agent", "function"]
)
def test_a_run_goes_all_the_way_from_the_callback_to_the_registry(child, code, printed):
    pytest.importorskip("langchain")

    with LocalRegistry() as registry:
        done = child(code, KP_REGISTRY_URL=registry.url, KP_API_KEY=registry.api_key)

    assert (done.stdout, done.stderr) == (printed, "")
    assert len(registry.documents) > 0


def test_commands_read_what_was_recorded(child, agent):
    agent("one")

    done = child(COMMANDS)

    assert [*map(bool, map(json.loads, done.stdout.splitlines()))] == [True] * 3
    assert done.stderr == ""


def test_a_damaged_file_is_saved(child, agent, kp, db):
    agent("one")
    kp.close()
    with db.open("r+b") as file:
        file.seek(4096 * 3)
        file.write(b"\xee" * 4096)

    assert child(DAMAGED).stdout == "True\n"
