"""An agent in a process that forks, is spawned, or ends at once: its run is in the file."""

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from scripted_agents import agent
from scripted_models import says
from versions import needs

from kp_langchain import KPCallbackHandler
from kp_middleware import KnowledgePulse
from kp_middleware.database import connect
from kp_middleware.storage import History
from kp_middleware.views.trace import run_as_json

AGENT = """
import multiprocessing, os, sys
from kp_langchain import KPCallbackHandler
from kp_middleware import KnowledgePulse
from scripted_agents import agent
from scripted_models import says

def run(kp):
    config = {"callbacks": [KPCallbackHandler(kp)]}
    agent(says(f"hi from {os.getpid()}")).invoke({"messages": "go"}, config)
"""

PROGRAMS = {
    "it just ends": """
run(KnowledgePulse(embedder=None))
""",
    "it ends while the registry is dead": """
run(KnowledgePulse(embedder=None, threshold=0, api_key="kp_x", registry_url="http://127.0.0.1:9"))
""",
    "it is frozen after each call": """
run(KnowledgePulse(embedder=None, sync=True))
os._exit(0)
""",
    "it forks workers": """
kp = KnowledgePulse(embedder=None)
run(kp)
for _ in range(3):
    if os.fork() == 0:
        run(kp)
        kp.close()
        os._exit(0)
[os.wait() for _ in range(3)]
""",
    "it spawns workers": """
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=run, args=(None,)) for _ in range(2)]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
""",
}
RUNS = {"it forks workers": 4, "it spawns workers": 2}


@needs("create_agent")
@pytest.mark.parametrize(
    "program", [pytest.param(one, marks=[pytest.mark.slow] * (one in RUNS)) for one in PROGRAMS]
)
def test_case_32_the_run_is_in_the_file_although(program, tmp_path):
    script = tmp_path / "program.py"
    script.write_text(AGENT + PROGRAMS[program])
    db = tmp_path / "kp.db"
    modules = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])

    subprocess.run(
        [sys.executable, script],
        check=True,
        env={**os.environ, "KP_DB": str(db), "KP_EMBEDDER": "none", "PYTHONPATH": modules},
    )

    with closing(connect(db, read_only=True)) as connection:
        states = [row.state for row in History(connection).runs(limit=10)]
    assert len(states) == RUNS.get(program, 1)
    assert set(states) <= {"withheld", "pending", "sending", "not queued"}


@needs("create_agent")
def test_case_32_a_handler_goes_on_in_a_forked_child(tmp_path):
    with KnowledgePulse(db=tmp_path / "kp.db", embedder=None) as kp:
        config = {"callbacks": [KPCallbackHandler(kp)]}
        agent(says("parent")).invoke({"messages": "go"}, config)
        child = os.fork()
        if child == 0:
            agent(says("child")).invoke({"messages": "go"}, config)
            kp.close()
            os._exit(0)
        os.waitpid(child, 0)

    with closing(connect(tmp_path / "kp.db", read_only=True)) as connection:
        results = {run_as_json(History(connection).run(seq))["result_summary"] for seq in (1, 2)}
    assert results == {"parent", "child"}
