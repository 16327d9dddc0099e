"""How long the pages of `kp-middleware ui` take, asked for as a browser does."""

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
    "a trace": "/-/kp/{db}/traces/@best",
    "the gate": "/-/kp/{db}/what-if",
    "a search": "/-/kp/{db}/runs?q=memory",
    "all runs": "/-/kp/{db}/runs",
    "traces": "/{db}/traces?_sort_desc=seq",
    "steps": "/{db}/steps?tool__exact=find_c&type__exact=tool_call",
    "database": "/{db}",
    "none of ours": "/-/kp/{db}/traces/none",
    "none of Datasette's": "/{db}/none",
}
_ROUNDS: Final = 7


class Took(NamedTuple):
    """Milliseconds: of the first request, and of those after it; the server's CPU, and by clock."""

    page: str
    first_ms: float
    cpu_ms: list[float]
    rounds_ms: list[float]

    @property
    def p50_cpu_ms(self) -> float:
        return statistics.median(self.cpu_ms)

    @property
    def p50_ms(self) -> float:
        return statistics.median(self.rounds_ms)


def pages(db: Path) -> Iterator[Took]:
    """Each, of one server, which has just been started."""
    with _served(db) as server:
        for name, path in PATHS.items():
            url = path.format(db=db.stem)
            (_, first_ms), *rounds = (server.ask(url) for _ in range(_ROUNDS + 1))
            cpu_ms, rounds_ms = zip(*rounds, strict=True)
            yield Took(name, first_ms, [*cpu_ms], [*rounds_ms])


class _Server:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._pid = process.pid
        assert process.stderr is not None
        link = process.stderr.readline().strip()
        self._port = int(re.findall(r":(\d+)/", link)[0])
        self._cookie = ""
        cookie, _ = self._get(link[link.index("/-/") :])
        self._cookie = cookie.partition(";")[0]

    def ask(self, path: str) -> tuple[float, float]:
        """Milliseconds of its CPU, and by clock."""
        cpu_s, started = self._cpu_s(), time.perf_counter()
        _, status = self._get(path)
        took_ms = (time.perf_counter() - started) * 1e3
        assert status in {200, 404}, (path, status)
        return (self._cpu_s() - cpu_s) * 1e3, took_ms

    def _get(self, path: str) -> tuple[str, int]:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=60)
        connection.request("GET", path, headers={"cookie": self._cookie})
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.getheader("set-cookie", ""), answer.status

    def _cpu_s(self) -> float:
        """Of all its threads, as Linux counts them: in hundredths of a second."""
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
