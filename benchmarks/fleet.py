"""Measure several hosts' cost to PostgreSQL and the agent, beside the same SQL alone.

    make bench-fleet
    .venv/bin/python benchmarks/fleet.py agent ship

PostgreSQL is on this machine and waits for its disk. Hosts are processes with folders of their own;
what is between them and PostgreSQL is the loopback, or a proxy that delays each piece.
"""

import argparse
import json
import os
import sqlite3
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from kp_middleware import KnowledgePulse
from kp_middleware.testing import LocalRegistry, StandInEmbedder

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "fleet"))

import psycopg
from pods import Pod, end, processes, run_of, wait_for
from servers import Proxy, SharedServer

ROUNDS: Final = 5
RUNS_A_ROUND: Final = 400
MODEL_ANSWERS_S: Final = 0.001
SHIPPERS: Final = 4
SHIPPED_EACH: Final = 2500
CLEARED: Final = 400
HOSTS: Final = 50
WATCHED_S: Final = 20.0
TICKS: Final = os.sysconf("SC_CLK_TCK")


class Row(NamedTuple):
    """One line of the table."""

    what: str
    floor: str
    measured: str
    target: str = ""


class Site:
    """A server, and pods that share a fresh database on it."""

    def __init__(self, folder: Path, server: SharedServer, registry: LocalRegistry) -> None:
        self.server = server
        self._folder = folder
        self._registry = registry
        self._made = 0

    def database(self) -> str:
        """Make a database with the schema, and return its URL."""
        self._made += 1
        url = self.server.create(f"bench{self._made}")
        typed = self.pod(url).command("shared", "migrate")
        assert typed.returncode == 0, typed.stderr
        return url

    def pod(self, url: str | None, **told: Any) -> Pod:
        """Make a host."""
        self._made += 1
        folder = self._folder / f"pod-{self._made}"
        return Pod.at(folder, shared=url, registry=self._registry, **told)

    def waiting(self, count: int, runs: int, **told: Any) -> list[Pod]:
        """Make hosts whose runs wait, because PostgreSQL was away when they were recorded."""
        unreachable = self.server.url("postgres", port=1)
        pods = [self.pod(unreachable, **told) for _ in range(count)]
        seeds = [range(number * runs, number * runs + runs) for number in range(count)]
        end([pod.start(record_only, each) for pod, each in zip(pods, seeds, strict=True)], 600)
        return pods


def agent(site: Site) -> Iterator[Row]:
    """Measure the end of a run on the agent's thread: alone, shared, and at a silent server."""
    url = site.database()
    with Proxy(site.server.port) as proxy:
        through = site.server.url(url.rpartition("/")[2], port=proxy.port)
        pods = {
            "without": site.pod(None, threshold=0.3),
            "with": site.pod(url, threshold=0.3),
            "silent": site.pod(through, threshold=0.3),
        }
        costs: dict[str, list[float]] = {name: [] for name in pods}
        with proxy.silent():
            for turn in range(ROUNDS):
                for name, pod in pods.items():
                    end([pod.start(end_runs, turn)])
                    costs[name] += json.loads((pod.folder / "costs").read_text())
    floor = _percentiles(costs["without"])
    yield Row(
        "end of a run, p50 / p99, with `shared`", floor, _percentiles(costs["with"]), "as without"
    )
    silent = _percentiles(costs["silent"])
    yield Row("the same while PostgreSQL is silent", floor, silent, "as without")


def _percentiles(costs_us: list[float]) -> str:
    p50, p99 = np.percentile(costs_us, (50, 99))
    return f"{p50:.0f} / {p99:.0f} µs"


def end_runs(pod: Pod, turn: int) -> None:
    """Note what the last call of a run costs, while earlier runs are scored and shipped."""
    costs_us = []
    kp = KnowledgePulse(embedder=StandInEmbedder())
    for number in range(RUNS_A_ROUND):
        recorder = kp.start_recording("bench")
        assert recorder is not None
        recorder.set_objective(f"{turn} {number}")
        for step in range(5):
            recorder.thought("I look at the next item of the list. " * 5)
            recorder.tool_call(f"tool {step}", {"item": number})
            recorder.observation("row " * 50, tool=f"tool {step}")
        time.sleep(MODEL_ANSWERS_S)
        recorder.thought("That is the cheapest way.")
        recorder.outcome("done")
        started = time.perf_counter()
        recorder.finish()
        costs_us.append((time.perf_counter() - started) * 1e6)
    (pod.folder / "costs").write_text(json.dumps(costs_us))
    kp.close()


def ship(site: Site) -> Iterator[Row]:
    """Measure rows a second of runs that waited, and their cost for client and server."""
    from kp_middleware.shared_log._log import _SHIP

    pods = site.waiting(SHIPPERS, SHIPPED_EACH, threshold=1.0)
    url, bare = site.database(), site.database()
    began = _wal(url)
    rows = SHIPPERS * SHIPPED_EACH
    cpu_s, took_s = _finish(pods, url, rows)
    [(size,)] = _ask(
        url,
        "SELECT sum(pg_total_relation_size(oid)) FROM pg_class"
        " WHERE relnamespace = 'kp'::regnamespace AND relkind = 'r'",
    )
    wal = _wal(url) - began
    floor_s = _in_turns(bare, _SHIP, _batches(url))
    floor = f"{rows / floor_s:,.0f} rows/s"
    yield Row("ship, each redacted first", floor, f"{rows / took_s:,.0f} rows/s", "2,000 rows/s")
    yield Row("a host's processor for a row", "", f"{cpu_s / rows * 1000:.2f} ms")
    for pod in pods:
        pod.told["KP_SHARED_DOCUMENTS"] = "none"
        with closing(sqlite3.connect(pod.db)) as file, file:
            file.execute("UPDATE traces SET shared_seq = -1")
            file.execute("DELETE FROM meta WHERE key IN ('shared place', 'shared lease')")
    cpu_s, took_s = _finish(pods, site.database(), rows)
    yield Row("ship without documents", "", f"{rows / took_s:,.0f} rows/s", "2,000 rows/s")
    yield Row("a host's processor for a row", "", f"{cpu_s / rows * 1000:.2f} ms", "0.1 ms at 10")
    yield Row(
        "bytes a run in PostgreSQL, WAL",
        "",
        f"{int(size) / rows / 1000:.1f} kB, {wal / rows / 1000:.1f} kB",
        "5 kB",
    )
    yield from _start(url)


def _start(url: str) -> Iterator[Row]:
    from kp_middleware.shared_log import Link, PostgresLog

    with psycopg.connect(url) as connection:
        began_s = time.perf_counter()
        query = "SELECT seq, id, vector FROM kp.log ORDER BY seq"
        connection.execute(query, binary=True).fetchall()
        floor_s = time.perf_counter() - began_s
    link = Link(url, "bench")
    log = PostgresLog(link, "nobody", newest=10_000)
    began_s, place, known = time.perf_counter(), None, 0
    while True:
        pulled = log.pull(place)
        if pulled.position == place:
            break
        place, known = pulled.position, known + len(pulled.rows)
    took_s = time.perf_counter() - began_s
    link.close()
    yield Row(
        f"pull {known:,} vectors at the start", f"{floor_s:.2f} s", f"{took_s:.2f} s", "0.1 s"
    )


def decide(site: Site) -> Iterator[Row]:
    """Measure how many runs clear in a second."""
    for hosts, round_trip_s, target in ((1, 0.0, ""), (8, 0.0, "100/s"), (8, 0.02, "30/s")):
        pods = site.waiting(hosts, CLEARED // hosts, threshold=0.3)
        url = site.database()
        with Proxy(site.server.port, delay_s=round_trip_s / 2) as proxy:
            far = site.server.url(url.rpartition("/")[2], port=proxy.port)
            _, took_s = _finish(pods, far if round_trip_s else url, CLEARED)
        floor_s = _locked(site.database(), hosts, CLEARED)
        yield Row(
            f"decide, {hosts} hosts, a round trip of {round_trip_s * 1000:.0f} ms",
            "" if round_trip_s else f"{CLEARED / floor_s:.0f}/s",
            f"{CLEARED / took_s:.0f}/s",
            target,
        )


def fleet(site: Site) -> Iterator[Row]:
    """Measure the server's processors under many hosts, with a run a second each."""
    url = site.database()
    pods = [site.pod(url, threshold=1.0) for _ in range(HOSTS)]
    children = [pod.start(one_a_second) for pod in pods]
    wait_for(lambda: _ask(url, "SELECT count(DISTINCT pod) FROM kp.log") == [(HOSTS,)], 300)
    [(before,)] = _ask(url, "SELECT count(*) FROM kp.log")
    server_s, began_s = _server_cpu_s(site.server), time.monotonic()
    time.sleep(WATCHED_S)
    took_s = time.monotonic() - began_s
    cores = (_server_cpu_s(site.server) - server_s) / took_s
    [(after,)] = _ask(url, "SELECT count(*) FROM kp.log")
    [(connections,)] = _ask(
        url, "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'kp-middleware/%'"
    )
    [child.kill() for child in children]
    rate = f"{(after - before) / took_s:.0f} runs/s, {connections} connections"
    yield Row(
        f"{HOSTS} hosts, a run a second each ({rate})", "", f"{cores:.2f} cores", "0.25 cores"
    )


def million(site: Site) -> Iterator[Row]:
    """Measure the two queries of a gate, in a log of a million."""
    from kp_middleware.shared_log._log import _DAY, _RANKED

    url = site.database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO kp.log (seq, id, pod, domain, started_at, decided_at, score, rank_key,"
            " gate, chosen, credit, decision)"
            " SELECT n, 'kp:trace:' || n, 'p', 'd' || n % 10, now(),"
            " now() - make_interval(secs => (1000000 - n) * 1.0), 0.5, 0.5, 'top 10%', false, 0.1,"
            " CASE WHEN n % 100 = 0 THEN 'forward' ELSE 'withhold' END"
            " FROM generate_series(1, 1000000) n"
        )
        connection.execute("VACUUM ANALYZE kp.log")
        ranked = _fastest_ms(connection, _RANKED, {"gate": "top 10%", "domain": "d3", "last": 500})
        day = _fastest_ms(connection, _DAY, None)
    yield Row("rank among the last 500 of a domain, in a million", "", f"{ranked:.1f} ms", "1 ms")
    yield Row("the day's count, in a million (864 forwarded)", "", f"{day:.1f} ms", "1 ms")


def _fastest_ms(connection: "psycopg.Connection[Any]", query: str, values: Any) -> float:
    took_ms = []
    for _ in range(50):
        began_s = time.perf_counter()
        connection.execute(query.encode(), values).fetchall()
        took_ms.append((time.perf_counter() - began_s) * 1000)
    return float(np.median(took_ms))


def record_only(pod: Pod, seeds: "range") -> None:
    """Record and score, where PostgreSQL is away."""
    with pod.pulse(sync=True) as kp:
        for seed in seeds:
            kp.submit(run_of(seed))


def finish(pod: Pod) -> None:
    """Ship and decide what waits; say what it cost."""
    with pod.pulse() as kp:
        began_s = time.process_time()
        kp.submit(run_of(f"last of {pod.folder.name}"))
        kp.flush(300)
    (pod.folder / "cpu").write_text(str(time.process_time() - began_s))


def one_a_second(pod: Pod) -> None:
    """Record until killed."""
    with pod.pulse() as kp:
        for number in range(10_000):
            kp.submit(run_of(f"{pod.folder.name} {number}"))
            time.sleep(1)


def _finish(pods: list[Pod], url: str, rows: int) -> tuple[float, float]:
    """Let all of them ship; return the processor time, and how long the rows took."""
    for pod in pods:
        pod.told["KP_SHARED"] = url
    end([pod.start(finish) for pod in pods], 400)
    query = (
        "SELECT count(*), extract(epoch FROM max(decided_at) - min(decided_at))::float8 FROM kp.log"
    )
    [(count, took_s)] = _ask(url, query)
    assert count >= rows, count
    return sum(float((pod.folder / "cpu").read_text()) for pod in pods), took_s


def _batches(url: str) -> list[list[str]]:
    """Return the rows of a log, a hundred at a time, for each shipper's statements."""
    from kp_middleware.shared_log._rows import SELECTED, as_json
    from kp_middleware.shared_log._rows import run_of as row_of

    rows = _ask(
        url, f"SELECT {SELECTED}, d.body, d.redactor FROM kp.log l JOIN kp.documents d USING (id)"
    )
    runs = [row_of(row) for row in rows]
    parts = [as_json(runs[first : first + 100]) for first in range(0, len(runs), 100)]
    return [parts[number::SHIPPERS] for number in range(SHIPPERS)]


def _in_turns(url: str, query: str, parts: list[list[str]]) -> float:
    """Run one statement for each part, on a connection for each shipper."""

    def work(mine: list[str]) -> None:
        with psycopg.connect(url, autocommit=True, prepare_threshold=None) as connection:
            for rows in mine:
                connection.execute(query.encode(), {"rows": rows})

    return _parallel_s(work, parts)


def _locked(url: str, hosts: int, times: int) -> float:
    """Lock, read what is newer, rank, append: nothing else, on a connection for each host."""
    lock = "SELECT head FROM kp.heads WHERE stream = 'main' FOR UPDATE"
    append = (
        "INSERT INTO kp.log (seq, id, pod, domain, started_at, decision, vector)"
        " VALUES (%s, gen_random_uuid(), 'p', 'd', now(), 'forward', %s)"
    )
    vector = np.ones(384, np.float32).tobytes()

    def work(_: int) -> None:
        with psycopg.connect(url, autocommit=True, prepare_threshold=None) as connection:
            known = 0
            for _ in range(times // hosts):
                with connection.transaction():
                    [(head,)] = connection.execute(lock).fetchall()
                    connection.execute(
                        "SELECT seq, id, vector FROM kp.log WHERE seq > %s", (known,)
                    ).fetchall()
                    connection.execute(
                        "SELECT score FROM kp.log WHERE domain = 'd' ORDER BY seq DESC LIMIT 500"
                    ).fetchall()
                    connection.execute(append, (head + 1, vector))
                    connection.execute("UPDATE kp.heads SET head = head + 1")
                    known = head + 1

    return _parallel_s(work, list(range(hosts)))


def _parallel_s(work: Any, parts: list[Any]) -> float:
    began_s = time.perf_counter()
    with ThreadPoolExecutor(len(parts)) as pool:
        list(pool.map(work, parts))
    return time.perf_counter() - began_s


def _ask(url: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(query.encode()).fetchall()


def _wal(url: str) -> int:
    return int(_ask(url, "SELECT pg_current_wal_lsn() - '0/0'")[0][0])


def _server_cpu_s(server: SharedServer) -> float:
    """Return the processor time of the server and of all its children, also the ended ones."""
    total = 0
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = place.read_text().partition(") ")
        except OSError:
            continue
        fields = rest.split()
        if name.startswith(f"{server.pid} ("):
            total += sum(map(int, fields[11:15]))
        elif fields[1] == str(server.pid):
            total += sum(map(int, fields[11:13]))
    return total / TICKS


PARTS: Final = {"agent": agent, "ship": ship, "decide": decide, "fleet": fleet, "million": million}


@contextmanager
def _site() -> Iterator[Site]:
    processes.set_forkserver_preload(["warm_pod"])
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        server = stack.enter_context(SharedServer(is_durable=True))
        registry = stack.enter_context(LocalRegistry(burst=10**6, refill_s=0.001))
        yield Site(folder, server, registry)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="all by default")
    asked = parser.parse_args().parts or PARTS
    table = Table("what", "floor", "measured", "target", box=None)
    with _site() as site:
        for part in asked:
            for row in PARTS[part](site):
                print(*row, sep="; ", file=sys.stderr)  # it takes minutes
                table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    main()
