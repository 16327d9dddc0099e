"""Processes without fork and POSIX locks, as on Windows."""

import os
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(120)

PROGRAM = """
    from as_on_windows import take_away
    take_away()

    import json
    import logging
    from click.testing import CliRunner
    from kp_langchain.demo import run_tasks
    from kp_middleware import KnowledgePulse, current_trace
    from kp_middleware.cli import main
    from kp_middleware.storage import SqliteStore
    from kp_middleware.testing import StandInEmbedder

    with KnowledgePulse(embedder=StandInEmbedder(), domain="finance", threshold=0.3) as kp:
        run_tasks(kp)
        print(*kp.flush(50), kp.stats().sent > 0)

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


def test_an_agent_a_function_the_commands_and_a_repair_do_their_work(run_child, registry):
    pytest.importorskip("langchain")

    printed = run_child(
        PROGRAM,
        PYTHONPATH=f"{Path(__file__).parent}{os.pathsep}{os.environ['PYTHONPATH']}",
        KP_REGISTRY_URL=registry.url,
        KP_API_KEY=registry.api_key,
    )

    assert printed == "0 0 True\nONE 0 0\n"
    assert any(one.task.objective.endswith("one") for one in registry.documents.values())
