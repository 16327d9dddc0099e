"""Pods: processes that share an API key, a registry and PostgreSQL, and no folder."""

import logging
import multiprocessing
import os
import random
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from kp_middleware import KnowledgePulse, ReasoningTrace, Step, Tool
from kp_middleware.testing import StandInEmbedder

PLACES = ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
AGENT = "one-agent"
TOOLS = [Tool(name=name) for name in ("search", "read", "compute")]

processes = multiprocessing.get_context("forkserver")


class Pod(NamedTuple):
    """A host as a container has it: folders of its own, and what it was told by variables.

    Attributes:
        folder: Its home, with its file.
        told: `KP_…` variables.
    """

    folder: Path
    told: dict[str, str]

    @classmethod
    def at(cls, folder, *, shared=None, registry=None, **told):
        """Make its folder; ``told`` are further settings."""
        folder.mkdir(parents=True, exist_ok=True)
        said = {"KP_DB": str(folder / "kp.db"), "KP_AGENT_ID": AGENT, "KP_DOMAIN": "support"}
        if shared is not None:
            said["KP_SHARED"] = shared
        if registry is not None:
            said |= {"KP_REGISTRY_URL": registry.url, "KP_API_KEY": registry.api_key}
        return cls(folder, said | {f"KP_{name.upper()}": str(text) for name, text in told.items()})

    @property
    def db(self):
        return self.folder / "kp.db"

    @property
    def log(self):
        """All that it logged, ours and that of the libraries."""
        file = self.folder / "log"
        return file.read_text() if file.exists() else ""

    @property
    def acknowledged(self):
        """The ids of the runs that it knows to be in its file."""
        file = self.folder / "acknowledged"
        return file.read_text().split() if file.exists() else []

    def rows(self, sql, *values):
        """Of its file."""
        with closing(sqlite3.connect(f"{self.db.as_uri()}?mode=ro", uri=True)) as connection:
            return connection.execute(sql, values).fetchall()

    def start(self, work, *args, **settings):
        """Begin to work in a process of its own; ``settings`` are keywords of the pipeline."""
        process = processes.Process(target=_work, args=(self, work, args, settings))
        process.start()
        return process

    def command(self, *words):
        """Type a command on this host."""
        return subprocess.run(
            [sys.executable, "-m", "kp_middleware", *words],
            env={**_plain(), **self._environment()},
            capture_output=True,
            text=True,
            check=False,
        )

    def _environment(self):
        return {**dict.fromkeys(PLACES, str(self.folder)), **self.told}

    def enter(self):
        """Be this host."""
        for name in os.environ.keys() - _plain().keys():
            del os.environ[name]
        os.environ.update(self._environment())
        logging.basicConfig(filename=self.folder / "log", level=logging.DEBUG, force=True)

    @contextmanager
    def pulse(self, **settings):
        """A pipeline of the process that is this host."""
        with closing(KnowledgePulse(embedder=StandInEmbedder(), **settings)) as made:
            yield made

    def acknowledge(self, ids):
        """Say that these runs are in the file."""
        with (self.folder / "acknowledged").open("a") as file:
            file.write("".join(f"{one}\n" for one in ids))


def end(children, timeout_s=100):
    """Wait for all of them; how each ended."""
    until = time.monotonic() + timeout_s
    for child in children:
        child.join(max(0.0, until - time.monotonic()))
    codes = [child.exitcode for child in children]
    [child.kill() for child in children if child.exitcode is None]
    return codes


def wait_for(holds, timeout_s=60.0):
    """Return when it holds."""
    until = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)


def record(pod, seeds, *, flush_s=60.0, **settings):
    """Record a run for each seed, and wait until all is done."""
    with pod.pulse(**settings) as kp:
        runs = [run_of(seed) for seed in seeds]
        for run in runs:
            kp.submit(run)
        until = time.monotonic() + flush_s
        while kp.flush(until - time.monotonic()) and time.monotonic() < until:
            time.sleep(0.1)  # it has ended early: nothing can be sent now
        pod.acknowledge(run.id for run in runs)


def record_until_killed(pod, seed, *, pause_s=0.0, **settings):
    """Record on and on, and say what is in the file for sure."""
    luck, number = random.Random(seed), 0
    with pod.pulse(**settings) as kp:
        while True:
            runs = [run_of(f"{seed} {number + more}") for more in range(luck.randint(1, 3))]
            number += len(runs)
            for run in runs:
                kp.submit(run)
            time.sleep(pause_s * luck.random())
            pod.acknowledge(kept(pod, runs))


def kept(pod, runs):
    """Wait until these are in the file."""
    ids = [run.id for run in runs]
    marks = ", ".join("?" * len(ids))
    found = 0
    while found < len(ids):
        time.sleep(0.005)
        with suppress(sqlite3.OperationalError):  # there is no file yet
            found = len(pod.rows(f"SELECT id FROM traces WHERE id IN ({marks})", *ids))
    return ids


def run_of(seed, text="", **about):
    """A run that scores 0.88 where it is new; the same seed is the same task."""
    luck = random.Random(seed)
    task = " ".join(f"w{luck.randrange(100_000)}" for _ in range(25))
    steps = [
        Step(step_id=0, type="thought", content=f"look it up: {task}"),
        *(
            Step(step_id=1 + number, type="tool_call", content=task, tool=tool)
            for number, tool in enumerate(TOOLS)
        ),
        Step(step_id=4, type="observation", content=f"it says something of {task} {text}"),
        Step(step_id=5, type="error_recovery", content=f"again after a timeout for {task}"),
        Step(step_id=6, type="thought", content=f"now I know {task}"),
    ]
    told = {"domain": "support", "success": True, "confidence": 0.95}
    return ReasoningTrace.of(task, steps, result_summary=f"42 {task}", **told | about)


def _work(pod, work, args, settings):
    pod.enter()
    work(pod, *args, **settings)


def _plain():
    """The environment without what is set for the product."""
    return {name: text for name, text in os.environ.items() if not name.startswith(("KP_", "PG"))}
