"""An agent in a process that forks, is spawned, or ends at once: its run is in the file."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from scripted_agents import agent
from scripted_models import answer_of
from versions import needs

from kp_langchain import KPCallbackHandler
from kp_middleware import KnowledgePulse

AGENT = """
import multiprocessing, os, sys
from kp_langchain import KPCallbackHandler
from kp_middleware import KnowledgePulse
from scripted_agents import agent
from scripted_models import answer_of

def run(kp):
    config = {"callbacks": [KPCallbackHandler(kp)]}
    agent(answer_of(f"hi from {os.getpid()}")).invoke({"messages": "go"}, config)
"""

PROGRAMS = {
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


def results(db):
    with KnowledgePulse(db=db, embedder=None) as kp:
        return sorted((kp.run(run.id).result_summary, run.state) for run in kp.runs())


@pytest.mark.slow
@needs("create_agent")
@pytest.mark.parametrize("program", PROGRAMS)
def test_case_32_the_run_is_in_the_file_although(program, tmp_path, db):
    script = tmp_path / "program.py"
    script.write_text(AGENT + PROGRAMS[program])
    modules = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])

    subprocess.run(
        [sys.executable, script],
        check=True,
        env={**os.environ, "KP_DB": str(db), "KP_EMBEDDER": "none", "PYTHONPATH": modules},
    )

    states = [state for _, state in results(db)]
    assert len(states) == RUNS[program]
    assert set(states) <= {"withheld", "pending", "sending", "not queued"}


@needs("create_agent")
def test_case_32_a_handler_goes_on_in_a_forked_child_and_one_that_is_frozen_keeps_its_run(db):
    with KnowledgePulse(db=db, embedder=None) as kp:
        config = {"callbacks": [KPCallbackHandler(kp)]}
        agent(answer_of("parent")).invoke({"messages": "go"}, config)
        if os.fork() == 0:
            agent(answer_of("child")).invoke({"messages": "go"}, config)
            kp.close()
            os._exit(0)
        os.wait()
        if os.fork() == 0:
            frozen = KPCallbackHandler(KnowledgePulse(db=db, embedder=None, sync=True))
            agent(answer_of("frozen")).invoke({"messages": "go"}, {"callbacks": [frozen]})
            os._exit(0)
        os.wait()

    assert [result for result, _ in results(db)] == ["child", "frozen", "parent"]
