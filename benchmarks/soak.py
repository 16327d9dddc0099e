"""Several processes that record into one file at once, and a registry with many faults.

    make soak
    .venv/bin/python benchmarks/soak.py --processes 4 --traces 5000

What an agent pays is the time from the end of its run until it goes on, while our own threads are
busy with the runs before. An agent has just heard from its model then, so the last step is noted
first. Beside it stands what `json.dumps` of a few numbers costs at such a moment: the caches of the
processor are cold after a wait, for whatever comes first. What waits for the registry at the end is
then sent on a clock that does not wait, so that losses and duplicates are counted over all traces.
"""

import argparse
import json
import logging
import os
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import numpy as np
from pydantic import SecretStr
from rich.console import Console
from rich.table import Table

from kp_middleware import KnowledgePulse
from kp_middleware.database import connect
from kp_middleware.export import Registry, Sender
from kp_middleware.rate_limit import LocalPace, Pace
from kp_middleware.recording import Recorder
from kp_middleware.storage import OutboxTable
from kp_middleware.testing import FakeClock, Fault, LocalRegistry

LEASES_ARE_OVER_S: Final = 200.0
MODEL_ANSWERS_S: Final = 0.001
SEND_TIMEOUT_S: Final = 0.25
THRESHOLD: Final = 0.6
HOSTILE: Final[dict[int | Fault | None, float]] = {
    None: 80,
    **dict.fromkeys((500, 502, 503, 429), 1),
    **{fault: 1 for fault in Fault if fault not in {Fault.DEAD_KEY, Fault.NO_REPUTATION}},
}


class Site(NamedTuple):
    """The place where all processes work."""

    folder: Path
    registry_url: str
    api_key: str

    @property
    def db(self) -> Path:
        return self.folder / "kp.db"


class ProcessCosts(NamedTuple):
    """Costs of one process; instants are epoch seconds."""

    ids: list[str]
    costs_us: list[float]
    floors_us: list[float]
    began_at: float
    ended_at: float


class Row(NamedTuple):
    """One line of the table."""

    what: str
    measured: str
    target: str


def work(site: Site, number: int, traces: int) -> ProcessCosts:
    """Record, as an agent does that now and then waits for a model, until all is scored."""
    os.environ["XDG_STATE_HOME"] = str(site.folder)
    logging.getLogger("kp_middleware").setLevel(logging.ERROR)
    kp = KnowledgePulse(
        db=site.db,
        registry_url=site.registry_url,
        api_key=site.api_key,
        threshold=THRESHOLD,
        embedder=None,
    )
    began_at, ids, costs_us, floors_us = time.time(), [], [], []
    for trace in range(traces):
        recorder = kp.start_recording("soak")
        assert recorder is not None
        record_steps(recorder, number, trace)
        time.sleep(MODEL_ANSWERS_S)
        answered = time.perf_counter()
        json.dumps({"like": [1, 2, 3]})
        floors_us.append((time.perf_counter() - answered) * 1e6)
        recorder.thought("That is the cheapest way.")
        recorder.outcome("done")
        started = time.perf_counter()
        recorder.finish()
        costs_us.append((time.perf_counter() - started) * 1e6)
        ids.append(recorder.trace_id)
    while kp.flush().unscored:
        pass
    ended_at = time.time()
    kp.close()
    return ProcessCosts(ids, costs_us, floors_us, began_at, ended_at)


def record_steps(recorder: Recorder, number: int, trace: int) -> None:
    """Record fifteen steps; one run in four is worth sharing."""
    recorder.set_objective(f"find the cheapest way from {number} to {trace}")
    for step in range(5):
        tool = f"tool {step}" if trace % 4 == 0 else "tool"
        recorder.thought("I look at the next item of the list. " * 5)
        recorder.tool_call(tool, {"item": step})
        recorder.observation("row " * 50, tool=tool)


def send_what_is_left(site: Site, clock: FakeClock) -> None:
    """Send the rest, on a clock that goes on where it is waited for."""
    there = Registry(site.registry_url, SecretStr(site.api_key), timeout_s=SEND_TIMEOUT_S)
    with closing(connect(site.db)) as connection, closing(there):
        outbox = OutboxTable(connection, registry=site.registry_url, agent_id=None)
        forwarder = Sender(outbox, there, pace=LocalPace(Pace(), clock), clock=clock)
        while (wait_s := forwarder.send_due()) is not None:
            clock.advance(wait_s + 0.001)


def table_of(site: Site, registry: LocalRegistry, costs: Sequence[ProcessCosts]) -> list[Row]:
    """Return the outcome of a soak."""
    ids = {trace_id for cost in costs for trace_id in cost.ids}
    with closing(connect(site.db)) as connection:
        states = dict(connection.execute("SELECT id, state FROM traces").fetchall())
        rows = connection.execute("SELECT id FROM traces WHERE decision = 'forward'").fetchall()
    cleared = {trace_id for (trace_id,) in rows}
    scored = {trace_id for trace_id, state in states.items() if state == "scored"}
    lost = (ids - scored) | (cleared - registry.documents.keys())
    took_s = max(cost.ended_at for cost in costs) - min(cost.began_at for cost in costs)
    costs_us = np.concatenate([cost.costs_us for cost in costs])
    floors_us = np.concatenate([cost.floors_us for cost in costs])
    p50, p95, p99 = np.percentile(costs_us, (50, 95, 99))
    floor_p50, floor_p99 = np.percentile(floors_us, (50, 99))
    too_many = len(states.keys() - ids) + len(registry.documents.keys() - cleared)
    bodies = Counter(request.headers["idempotency-key"] for request in registry.requests)
    return [
        Row("recorded", f"{len(ids):,}", ""),
        Row("stored and scored a second", f"{len(ids) / took_s:.0f}", "≥ 150"),
        Row("end of a run, p50 / p95", f"{p50:.0f} / {p95:.0f} µs", ""),
        Row("end of a run, p99", f"{p99:.0f} µs", "< 50 µs"),
        Row("json.dumps there, p50 / p99", f"{floor_p50:.0f} / {floor_p99:.0f} µs", ""),
        Row("cleared and sent", f"{len(cleared):,}", ""),
        Row("requests", f"{len(registry.requests):,}", ""),
        Row("most attempts with one key", f"{max(bodies.values())}", ""),
        Row("overwritten by the same bytes", f"{stored_again(registry)}", ""),
        Row("lost", f"{len(lost)}", "0"),
        Row("duplicates", f"{too_many + with_other_bytes(registry)}", "0"),
        Row("key revoked", "yes" if registry.revoked else "no", "no"),
    ]


def stored_again(registry: LocalRegistry) -> int:
    """Count documents that arrived again although they were stored: no answer had said so."""
    return sum(times - 1 for times in registry.times_stored.values())


def with_other_bytes(registry: LocalRegistry) -> int:
    """Count documents that did not come with the same bytes each time."""
    return len({request.body for request in registry.requests}) - len(registry.times_received)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--traces", type=int, default=3000, help="of all processes together")
    parser.add_argument("--seed", type=int, default=7)
    asked = parser.parse_args()
    logging.getLogger("kp_middleware").setLevel(logging.ERROR)
    clock, each = FakeClock(time.time()), asked.traces // asked.processes
    script = Fault.mixed(HOSTILE, seed=asked.seed)
    with (
        TemporaryDirectory() as folder,
        LocalRegistry(answers=script, burst=10**9, clock=clock) as registry,
        ProcessPoolExecutor(asked.processes, get_context("spawn")) as pool,  # not killed at the end
    ):
        site = Site(Path(folder), registry.url, registry.api_key)
        numbers = range(asked.processes)
        costs = [*pool.map(work, repeat(site), numbers, repeat(each))]
        clock.advance(2 * 3600.0 + LEASES_ARE_OVER_S)  # what they were told is over
        send_what_is_left(site, clock)
        table = Table("what", "measured", "target", box=None)
        for row in table_of(site, registry, costs):
            table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    main()
