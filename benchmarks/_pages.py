"""The time of each page of `kp-middleware ui`, requested as a browser does."""

import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Final, NamedTuple

PATHS: Final = {
    "overview": "/-/kp/{db}",
    "overview of all runs": "/-/kp/{db}?all=1",
    "a run": "/-/kp/{db}/traces/@best",
    "the gate": "/-/kp/{db}/what-if",
    "runs": "/-/kp/{db}/runs",
    "runs by tokens": "/-/kp/{db}/runs?sort=tokens",
    "runs with a word": "/-/kp/{db}/runs?q=memory",
    "runs in which a tool failed": "/-/kp/{db}/runs?failing=find_c",
    "two runs": "/-/kp/{db}/compare?left=@best&right=@last",
    "a conversation": "/-/kp/{db}/conversations/thread-7",
    "review": "/-/kp/{db}/review",
    "traces": "/{db}/traces?_sort_desc=seq",
    "steps": "/{db}/steps?tool__exact=find_c&type__exact=tool_call",
    "database": "/{db}",
    "none of ours": "/-/kp/{db}/traces/none",
    "none of Datasette's": "/{db}/none",
}
_ROUNDS: Final = 5
_OPENS_S: Final = 1  # what a browser takes from the link to the first page


class PageTimes(NamedTuple):
    """Milliseconds of CPU and by the clock, of a first request and of those after it."""

    page: str
    kilobytes: float
    first_cpu_ms: float
    first_ms: float
    cpu_ms: list[float]
    rounds_ms: list[float]

    @property
    def p50_cpu_ms(self) -> float:
        return statistics.median(self.cpu_ms)

    @property
    def p50_ms(self) -> float:
        return statistics.median(self.rounds_ms)


def page_times(db: Path) -> Iterator[PageTimes]:
    """Measure each page, on a server of its own."""
    for name, path in PATHS.items():
        url = path.format(db=db.stem)
        with _served(db) as server:
            time.sleep(_OPENS_S)
            (size, *first), *rounds = (server.ask(url) for _ in range(_ROUNDS + 1))
            _, cpu_ms, rounds_ms = zip(*rounds, strict=True)
            yield PageTimes(name, size / 1000, *first, [*cpu_ms], [*rounds_ms])


class _Server:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._pid = process.pid
        assert process.stderr is not None
        link = process.stderr.readline().strip()
        self._port = int(re.findall(r":(\d+)/", link)[0])
        self._cookie = ""
        cookie, *_ = self._get(link[link.index("/-/") :])
        self._cookie = cookie.partition(";")[0]

    def ask(self, path: str) -> tuple[int, float, float]:
        """Return the bytes of an answer, and its milliseconds of CPU and by the clock."""
        cpu_s, started = self._cpu_s(), time.perf_counter()
        _, status, size = self._get(path)
        took_ms = (time.perf_counter() - started) * 1e3
        assert status in {200, 404}, (path, status)
        return size, (self._cpu_s() - cpu_s) * 1e3, took_ms

    def _get(self, path: str) -> tuple[str, int, int]:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=60)
        connection.request("GET", path, headers={"cookie": self._cookie})
        answer = connection.getresponse()
        size = len(answer.read())
        connection.close()
        return answer.getheader("set-cookie", ""), answer.status, size

    def _cpu_s(self) -> float:
        """Return the CPU time of all threads, in the hundredths of a second that Linux counts."""
        fields = Path(f"/proc/{self._pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _served(db: Path) -> Iterator[_Server]:
    command = [sys.executable, "-m", "kp_middleware", "--db", str(db), "ui", "--no-open"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield _Server(process)
        finally:
            process.terminate()
