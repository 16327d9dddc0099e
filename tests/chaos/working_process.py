"""Entry points of the child processes, one function each."""

import logging
import multiprocessing
import os
import random
import time
from pathlib import Path
from typing import NamedTuple

from many_traces import random_trace, send_for, sender_on

from kp_middleware import KnowledgePulse, ReasoningTrace, Step
from kp_middleware.testing import FakeClock, StandInEmbedder

LEASES_ARE_OVER_S = 200.0

processes = multiprocessing.get_context("forkserver")


class Site(NamedTuple):
    """The folder in which the processes work.

    Attributes:
        folder: With all that they share.
        url: Of the registry.
        api_key: Of the registry.
        db: The name of the file in it.
        state: The name of the folder in it where the pace is kept.
    """

    folder: Path
    url: str
    api_key: str
    db: str = "kp.db"
    state: str = "state"

    @property
    def file(self):
        return self.folder / self.db

    @property
    def said(self):
        """The file in which processes list the runs that are certainly stored."""
        return self.folder / f"{self.db}.said"

    @property
    def log(self):
        return self.folder / "log"

    def pulse(self, **settings):
        """A pipeline of this process."""
        os.environ["XDG_STATE_HOME"] = str(self.folder / self.state)
        logging.basicConfig(filename=self.log, level=logging.DEBUG, force=True)
        return KnowledgePulse(
            db=self.file,
            registry_url=self.url,
            api_key=self.api_key,
            threshold=0.4,
            embedder=StandInEmbedder(),
            **settings,
        )


def work_until_killed(site, seed, *, sync):
    """Record and score and send, and say what is in the file for sure."""
    luck, kp = random.Random(seed), site.pulse(sync=sync)
    said = os.open(site.said, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    while True:
        traces = [random_trace(luck) for _ in range(luck.randint(1, 3))]
        [kp.submit(trace) for trace in traces]
        if sync or not kp.flush(timeout_s=1).unscored:
            os.write(said, "".join(f"{trace.id}\n" for trace in traces).encode())


def finish(site):
    """Score and send what others have left, and one run more."""
    with site.pulse(sync=True) as kp:
        kp.submit(random_trace(random.Random(0)))
    clock = FakeClock(time.time() + LEASES_ARE_OVER_S)
    with sender_on(site.file, site, clock) as forwarder:
        send_for(forwarder, clock)


def compete(site, number, barrier, rounds):
    """Record in each round what all others record at the same moment, and runs of our own."""
    luck, kp = random.Random(number), site.pulse()
    for turn in range(rounds):
        barrier.wait(30)
        kp.submit(nearly_the_same(turn, number))
        [kp.submit(random_trace(luck)) for _ in range(3)]
    while kp.flush().unscored:
        pass
    kp.close()


def nearly_the_same(turn, number):
    """A run that differs from that of another process in a word, and from other rounds in all."""
    words = " ".join(f"r{turn}w{word}" for word in range(40))
    steps = [Step(step_id=0, type="thought", content=f"{words} p{number}")]
    return ReasoningTrace.of(words, steps, domain=f"round {turn}")
