"""The time of each command on a file of a busy year, while another process writes to it.

    make bench-inspection
    .venv/bin/python benchmarks/inspection.py --file big.db list stats    # keeps it; only these

`start` is the same command on a file with ten traces, all of a process included, at its fastest;
two lines before the others say what Python and click take of that. `in all` is a process on the
large file, `CPU` what it computes of that (the rest is waiting, for the disk or for other
programs), and `answer` the command alone, in a process that has it loaded. Milliseconds. What
misses its target is followed by its slowest statement, and how SQLite goes about it; which commands
start later than the target, and why, is in docs/decisions/start-up-of-commands.md.

`ui` stands for the pages: each is asked for several times of one server.
"""

import argparse
import contextlib
import io
import os
import resource
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import click
from _big_file import build
from _pages import page_times
from rich.console import Console
from rich.table import Table

from kp_middleware.cli import main

ANSWER_MS: Final = 300
START_MS: Final = 300
PAGE_KB: Final = 300
ROUNDS: Final = 5
STARTS: Final = 15
FLOORS: Final = ("pass", "import click")

PATIENT: Final = {
    "backup", "calibrate", "doctor", "export", "prune", "recall", "report", "rescore", "similar",
}  # fmt: skip
"""Commands without a target: they read or write the whole file, or load the model."""

NOT_MEASURED: Final = {
    "config set",
    "demo",
    "feedback",
    "import",
    "mcp",
    "migrate",
    "outbox cancel",
    "outbox reconcile",
    "outbox rescan",
    "outbox retry",
    "outbox send",
    "pull",
    "review",
    "shared delete",
    "shared migrate",
    "ui",
}
"""Commands that write, wait for a person, need another host, or serve."""

ARGUMENTS: Final = {
    "file": "{folder}/copy", "left": "@last", "name": "threshold", "out": "{folder}/out",
    "query": "-", "right": "@best", "task": "memory", "text": "memory",
    "trace_id": "@best",
}  # fmt: skip
VARIANTS: Final = {
    "backup": ["--force"],
    "calibrate": ["", "-d law", "--threshold 0.8"],
    "diff": [""],
    "export": ["--force --as-recorded"],
    "list": [
        "", "-d law", "-d nothing", "--above", "--below", "--near", "--failed", "--tool find_c",
        "--tool nothing", "--state blocked", "--state withheld", "--state cancelled",
        "--slower 30s", "--since 2d", "--since 300d --failed", "-q memory", "-q nothing",
        "-q memory -d law",
        "-d law --tool find_c --failed --above",
    ],
    "outbox list": ["", "--failed", "--sent"],
    "prune": ["--keep 90000"],
    "report": ["--force {folder}/report.html"],
    "rescore": ["-d nothing"],
    "show": ["", "--steps all", "--why", "--why --threshold 0.9"],
    "sql": [""],
    "stats": [
        "", "--by domain", "--by day", "--by week", "--by tool", "--by tool -d law",
        "--by model", "--by state",
        "--by gate",
    ],
    "tail": ["-n 20 --no-follow"],
}  # fmt: skip
TYPED: Final = {"sql": "SELECT * FROM history ORDER BY seq DESC LIMIT 20", "redact": "a text"}
"""On standard input."""

WRITER: Final = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=5)
def columns(table, *but):
    found = connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
    return ", ".join(name for (name,) in found if name not in but)
names, fields = columns("traces", "seq", "id"), columns("steps", "trace_seq")
while True:
    connection.execute("BEGIN IMMEDIATE")
    seq = connection.execute(
        f"INSERT INTO traces (id, {names}) SELECT 'kp:trace:' || hex(randomblob(16)), {names}"
        " FROM traces WHERE seq = 7"
    ).lastrowid
    connection.execute(
        f"INSERT INTO steps (trace_seq, {fields}) SELECT ?, {fields} FROM steps"
        " WHERE trace_seq = 7", (seq,))
    connection.execute(
        "INSERT INTO documents SELECT ?, body FROM documents WHERE trace_seq = 7", (seq,))
    connection.execute("COMMIT")
    time.sleep(0.02)
"""


class Case(NamedTuple):
    """A command as it is typed."""

    name: str
    words: tuple[str, ...]
    patient: bool

    @property
    def typed(self) -> str:
        return " ".join(self.words).replace("{folder}/", "")


class Timing(NamedTuple):
    """Milliseconds of several rounds."""

    rounds_ms: list[float]
    cpu_ms: list[float]
    problem: str = ""

    @property
    def p50_ms(self) -> float:
        return statistics.median(self.rounds_ms)

    @property
    def least_ms(self) -> float:
        return min(self.rounds_ms)

    def __str__(self) -> str:
        return f"{self.p50_ms:.0f} / {max(self.rounds_ms):.0f}"


def cases(chosen: list[str]) -> Iterator[Case]:
    """Yield each command that prints JSON, with the arguments and variants worth measuring."""
    for names, command in _commands_of(main):
        name = " ".join(names)
        options = {word for one in command.params for word in one.opts}
        if name in NOT_MEASURED or isinstance(command, click.Group):
            continue
        if chosen and not {name, names[0]} & set(chosen):
            continue
        needed = [one for one in command.params if isinstance(one, click.Argument) and one.required]
        arguments = [ARGUMENTS[one.name or ""] for one in needed]
        json = ["--json"] if "--json" in options else []
        for variant in VARIANTS.get(name, [""]):
            words = (*names, *json, *variant.split(), *arguments)
            yield Case(name, words, patient=bool({name, names[0]} & PATIENT))


def _commands_of(group: Any, before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield (*before, name), command
        if isinstance(command, click.Group):
            yield from _commands_of(command, (*before, name))


def start(case: Case, db: Path, folder: Path) -> Timing:
    """Time a process each, on a small file."""
    return _timed(lambda: _command(case, db, folder), rounds=STARTS)


def floors() -> Iterator[tuple[str, Timing]]:
    """Time Python alone and click alone: no command can be faster."""
    for code in FLOORS:
        yield f"python -c '{code}'", _timed(lambda: _process(["-c", code]), rounds=STARTS)  # noqa: B023 - it runs now


def whole_process(case: Case, db: Path, folder: Path) -> Timing:
    """Time a process each, on the large file."""
    return _timed(lambda: _command(case, db, folder), rounds=_rounds(case))


def _command(case: Case, db: Path, folder: Path) -> str:
    words = [word.format(folder=folder) for word in ("--db", str(db), *case.words)]
    return _process(["-m", "kp_middleware", *words], TYPED.get(case.name, ""))


def _rounds(case: Case) -> int:
    return 1 if case.patient else ROUNDS


def _process(words: list[str], typed: str = "") -> str:
    done = subprocess.run(
        [sys.executable, *words],
        input=typed,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    return "" if done.returncode in {0, 3} else done.stderr.strip().splitlines()[-1]


def answer(case: Case, db: Path, folder: Path) -> Timing:
    """Time the command in this process, where all is loaded."""
    words = [word.format(folder=folder) for word in ("--db", str(db), *case.words)]
    return _timed(lambda: _call(words, TYPED.get(case.name, "")), rounds=_rounds(case))


def _call(words: list[str], typed: str) -> str:
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(typed.encode()))
    try:
        with (
            contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            main(words, standalone_mode=False)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - it becomes a row of the table
        return repr(error)
    finally:
        sys.stdin = before
    return ""


def _timed(run: Callable[[], str], *, rounds: int) -> Timing:
    problem = run()  # also warms the disk's cache
    rounds_ms, cpu_ms = [], []
    for _ in range(rounds):
        started, started_cpu = time.perf_counter(), _cpu_s()
        run()
        rounds_ms.append((time.perf_counter() - started) * 1e3)
        cpu_ms.append((_cpu_s() - started_cpu) * 1e3)
    return Timing(rounds_ms, cpu_ms, problem)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def verdict(case: Case, started: Timing, whole: Timing) -> str:
    """Say whether a command is quick enough, or would be where nothing else runs."""
    late = "starts late" if min(started.cpu_ms) > START_MS else ""
    if whole.problem or case.patient:
        return whole.problem or late or "no target"
    if statistics.median(whole.cpu_ms) > ANSWER_MS:
        return "missed"
    return late or ("" if whole.p50_ms <= ANSWER_MS else "late, but it waited")


@contextmanager
def writing(db: Path) -> Iterator[None]:
    """Let another process record fifty traces a second meanwhile."""
    with subprocess.Popen([sys.executable, "-c", WRITER, str(db)]) as process:
        try:
            yield
        finally:
            process.kill()


def slowest_statement(case: Case, db: Path, folder: Path) -> str:
    """Return the query of a command that takes longest, and its query plan."""
    asked: list[str] = []
    connect = sqlite3.connect

    def traced_connect(*values: Any, **words: Any) -> sqlite3.Connection:
        connection = connect(*values, **words)
        connection.set_trace_callback(asked.append)
        return connection

    sqlite3.connect = traced_connect  # type: ignore[assignment]  # whatever the command opens is heard
    try:
        answer(case._replace(patient=True), db, folder)
    finally:
        sqlite3.connect = connect
    with closing(connect(f"file:{db}?mode=ro", uri=True)) as connection:
        queries = {sql for sql in asked if sql.lstrip().upper().startswith(("SELECT", "WITH"))}
        queries = {sql for sql in queries if "temp." not in sql}  # tables of that process alone
        took_ms, sql = max(
            ((_query_ms(connection, sql), sql) for sql in queries), default=(0.0, "")
        )
        plan = connection.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall() if sql else []
    steps = "\n".join(f"      {row[3]}" for row in plan)
    return f"  {took_ms:.0f} ms  {' '.join(sql.split())[:600]}\n{steps}"


def _query_ms(connection: sqlite3.Connection, sql: str) -> float:
    started = time.perf_counter()
    connection.execute(sql).fetchall()
    return (time.perf_counter() - started) * 1e3


def measure(db: Path, chosen: list[str]) -> None:
    columns = ("command", "start", "CPU", "in all, p50 / max", "CPU", "answer, p50 / max", "")
    table = Table(*columns, box=None)
    misses = []
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        small = folder / "small.db"
        build(small, 10)
        for name, floor in floors():
            table.add_row(name, f"{floor.least_ms:.0f}", f"{min(floor.cpu_ms):.0f}")
        with writing(db):
            for case in cases(chosen):
                started, whole = start(case, small, folder), whole_process(case, db, folder)
                alone = answer(case, db, folder)
                note = verdict(case, started, whole)
                if note == "missed":
                    misses.append(case)
                started_cpu = f"{min(started.cpu_ms):.0f}"
                whole_cpu = f"{statistics.median(whole.cpu_ms):.0f}"
                begins = (f"{started.least_ms:.0f}", started_cpu)
                cells = (*begins, str(whole), whole_cpu, str(alone), note)
                table.add_row(case.typed, *cells)
                print(case.typed, *cells, file=sys.stderr)
        Console(width=150).print(table)
        for case in misses:
            print(f"\n{case.typed}\n{slowest_statement(case, db, folder)}")


def measure_pages(db: Path) -> None:
    columns = ("page", "first: CPU, clock", "then: CPU, clock", "kB", "")
    table = Table(*columns, box=None)
    with writing(db):
        for times in page_times(db):
            first = f"{times.first_cpu_ms:.0f}, {times.first_ms:.0f}"
            later = f"{times.p50_cpu_ms:.0f}, {times.p50_ms:.0f}"
            is_missed = times.first_cpu_ms > ANSWER_MS or times.kilobytes > PAGE_KB
            missed = "missed" if is_missed else ""
            table.add_row(times.page, first, later, f"{times.kilobytes:.0f}", missed)
    Console(width=100).print(table)


def run() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commands", nargs="*", help="Only these.")
    parser.add_argument("--file", type=Path, help="Make the large file here, or use it again.")
    parser.add_argument("--traces", type=int, default=100_000)
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        os.environ.update(dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"), folder))
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # what pip installed is compiled, too
        db = options.file or Path(folder) / "kp.db"
        if not db.exists():
            build(db, options.traces)
        print(f"{options.traces:,} traces, {db.stat().st_size / 1e6:,.0f} MB; targets: "
              f"{START_MS} ms to start, {ANSWER_MS} in all")  # fmt: skip
        if options.commands != ["ui"]:
            measure(db, options.commands)
        if not options.commands or "ui" in options.commands:
            measure_pages(db)


if __name__ == "__main__":
    run()
