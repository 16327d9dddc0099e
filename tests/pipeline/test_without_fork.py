"""Where processes cannot fork and files have no POSIX locks, as on Windows."""

import os
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(120)

AGENT = """
    from kp_langchain.demo import run_tasks
    from kp_middleware import KnowledgePulse
    from kp_middleware.testing import StandInEmbedder

    with KnowledgePulse(embedder=StandInEmbedder(), domain="finance", threshold=0.3) as kp:
        run_tasks(kp)
        print(*kp.flush(50))
"""
FUNCTION_COMMANDS_AND_REPAIR = """
    import json
    import logging
    from click.testing import CliRunner
    from kp_middleware import KnowledgePulse, current_trace
    from kp_middleware.cli import main
    from kp_middleware.storage import SqliteStore
    from kp_middleware.testing import StandInEmbedder

    with KnowledgePulse(embedder=StandInEmbedder(), threshold=0.1, sync=True) as kp:
        @kp.capture
        def answer(question):
            current_trace().outcome(confidence=0.9)
            return kp.tool(name="shout")(str.upper)(question)

        print(answer("one"), *kp.flush(50))

    for words in (["status"], ["list"], ["show", "@last"]):
        done = CliRunner().invoke(main, [*words, "--json"], catch_exceptions=False)
        assert json.loads(done.stdout), words

    with kp.settings.db.open("r+b") as file:
        file.seek(4096 * 3)
        file.write(b"x" * 4096)
    logging.disable()
    store = SqliteStore.at(kp.settings.db)
    assert store.repair(destination="https://registry.example", redactor="test") is not None
"""


@pytest.mark.parametrize(
    ("code", "printed"),
    [(AGENT, "0 0\n"), (FUNCTION_COMMANDS_AND_REPAIR, "ONE 0 0\n")],
    ids=["agent", "function, commands and repair"],
)
def test_a_run_goes_all_the_way_from_the_callback_to_the_registry(
    run_child, registry, code, printed
):
    pytest.importorskip("langchain")
    begin = "from as_on_windows import take_away\ntake_away()\n"
    path = f"{Path(__file__).parent}{os.pathsep}{os.environ['PYTHONPATH']}"

    said = run_child(
        begin + textwrap.dedent(code),
        PYTHONPATH=path,
        KP_REGISTRY_URL=registry.url,
        KP_API_KEY=registry.api_key,
    )

    assert said == printed
    assert len(registry.documents) > 0
