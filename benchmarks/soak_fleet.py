"""Hosts with one key and one PostgreSQL; hosts and server are killed at random.

    make soak-fleet
    .venv/bin/python benchmarks/soak_fleet.py --pods 8 --seconds 300

Each host is a process with folders and a file of its own. One run in ten is a new task, the others
are of a few that all hosts do. At the end each host starts once more and finishes what it has.
"""

import argparse
import random
import sys
import time
from collections import Counter
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from kp_middleware.testing import LocalRegistry

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "fleet"))

import psycopg
from pods import Pod, end, kept, processes, record, run_of
from servers import SharedServer

THRESHOLD: Final = 0.75
MOST_A_DAY: Final = 60
KNOWN_TASKS: Final = 20
NEW: Final = 0.1
FINISH_S: Final = 400.0


class Row(NamedTuple):
    """One line of the table."""

    what: str
    measured: object
    target: object = ""


def work(pod: Pod, seed: str) -> None:
    """Record until killed, and note what is in the file for sure."""
    luck, number = random.Random(seed), 0
    with pod.pulse() as kp:
        while True:
            number += 1
            is_new = luck.random() < NEW
            task = f"{seed} {number}" if is_new else luck.randrange(KNOWN_TASKS)
            run = run_of(task)
            kp.submit(run)
            pod.acknowledge(kept(pod, [run]))
            time.sleep(luck.random())


class Chaos:
    """A killer of processes that starts them again.

    Args:
        pods: The hosts.
        server: Their PostgreSQL.
        luck: When, and whom.
    """

    def __init__(self, pods: list[Pod], server: SharedServer, luck: random.Random) -> None:
        self._pods = pods
        self._server = server
        self._luck = luck
        self._children = [self._start(pod) for pod in pods]
        self.killed: Counter[str] = Counter()

    def go_on(self, seconds: float) -> None:
        """Kill a host every three seconds, the server every thirty."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(self._luck.random() * 6)
            if self._luck.random() < 0.1:
                self.killed["server"] += 1
                self._server.kill()
                time.sleep(self._luck.random() * 5)
                self._server.start()
            else:
                self._kill_a_pod()
        for child in self._children:
            child.kill()
            child.join()

    def _kill_a_pod(self) -> None:
        self.killed["host"] += 1
        victim = self._luck.randrange(len(self._pods))
        self._children[victim].kill()
        self._children[victim].join()
        self._children[victim] = self._start(self._pods[victim])

    def _start(self, pod: Pod) -> "processes.Process":
        return pod.start(work, f"{pod.folder.name} {self._luck.random()}")


def table_of(
    pods: list[Pod], url: str, registry: LocalRegistry, chaos: Chaos, finish_s: float
) -> list[Row]:
    """Return the outcome of a soak."""
    with psycopg.connect(url) as connection:
        ask = connection.execute
        [(head, count, last)] = ask(
            "SELECT (SELECT head FROM kp.heads), count(*), max(seq) FROM kp.log"
        ).fetchall()
        log = dict(ask("SELECT id, decision FROM kp.log WHERE rev = 0").fetchall())
        pending = ask("SELECT count(*) FROM kp.outbox WHERE state <> 'sent'").fetchone()
    known = [one for pod in pods for one in pod.acknowledged]
    files = {
        one: (decision, objective)
        for pod in pods
        for one, decision, objective in pod.rows("SELECT id, decision, objective FROM traces")
    }
    went = [one for one, decision in log.items() if decision == "forward"]
    tasks = Counter(files[one][1] for one in went)
    bodies = {(one.headers["idempotency-key"], one.body) for one in registry.requests}
    return [
        Row("hosts", len(pods)),
        Row("hosts killed", chaos.killed["host"]),
        Row("server killed", chaos.killed["server"]),
        Row("acknowledged", len(known)),
        Row("acknowledged and not in the log", len(set(known) - log.keys()), 0),
        Row("rows, by head / counted / last number", f"{head} / {count} / {last}", "equal"),
        Row("in a file and not in the log", len(files.keys() - log.keys()), 0),
        Row("decided otherwise there", sum(files[one][0] != log[one] for one in log), 0),
        Row("cleared", len(went), MOST_A_DAY),
        Row("tasks that cleared twice", sum(times > 1 for times in tasks.values()), 0),
        Row("cleared and not sent", f"{len(went) - len(registry.documents)}, {pending}", 0),
        Row("sent and not cleared", len(registry.documents.keys() - set(went)), 0),
        Row("sent with other bytes", len(bodies) - len(registry.times_received), 0),
        Row("sent again: a host died before it heard the answer", stored_again(registry)),
        Row("requests", len(registry.requests)),
        Row("429s", len(registry.refused_at), 0),
        Row("key", "revoked" if registry.revoked else "alive", "alive"),
        Row("seconds to finish afterwards", round(finish_s)),
    ]


def stored_again(registry: LocalRegistry) -> int:
    """Count the documents that arrived again although they were stored."""
    return sum(times - 1 for times in registry.times_stored.values())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pods", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=7)
    asked = parser.parse_args()
    processes.set_forkserver_preload(["warm_pod"])
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        server = stack.enter_context(SharedServer(is_durable=True))
        registry = stack.enter_context(LocalRegistry())
        url = server.create("agents")
        told = {"shared": url, "registry": registry}
        told |= {"threshold": THRESHOLD, "max_per_day": MOST_A_DAY}
        make = partial(Pod.at, **told)
        pods = [make(folder / f"pod-{number}") for number in range(asked.pods)]
        migrated = pods[0].command("shared", "migrate")
        assert migrated.returncode == 0, migrated.stderr
        chaos = Chaos(pods, server, random.Random(asked.seed))
        chaos.go_on(asked.seconds)
        began_s = time.monotonic()
        ended = end([pod.start(record, [0], flush_s=FINISH_S) for pod in pods], FINISH_S + 20)
        assert ended == [0] * len(pods), ended
        rows = table_of(pods, url, registry, chaos, time.monotonic() - began_s)
    table = Table("what", "measured", "target", box=None)
    for row in rows:
        table.add_row(*map(str, row))
    Console().print(table)
    wrong = [
        row.what for row in rows if row.target == 0 and str(row.measured).partition(",")[0] != "0"
    ]
    sys.exit(f"failed: {'; '.join(wrong)}" if wrong else None)


if __name__ == "__main__":
    main()
