"""Runs tests of others with every run recorded and without, and compares how each of them ends.

``python compare.py FOLDER -- TEST…``, where ``.ci/foreign`` has put their sources. A test that ends
otherwise is run both ways once more, alone: some depend on the time that they have.
"""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

_OWN = Path(__file__).parent
_ENDED = {0, 1}  # pytest's: all passed, or some failed


def run(folder, tests, *, recorded, kept_in, processes=2):
    """Return the result of each test by name."""
    outcomes = kept_in / "outcomes.json"
    environment = {
        "KP_DB": str(kept_in / "kp.db"),
        "KP_EMBEDDER": "none",
        "KP_TRACING": str(recorded).lower(),
        "NO_DOCKER": "true",  # langgraph's: no Redis, no PostgreSQL
        "OUTCOMES": str(outcomes),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(_OWN),
    }
    plugins = ["-p", "outcomes", "-p", "kp_langchain", "-p", "no:cacheprovider"]
    how = ["-q", "-o", "addopts=", "--tb=no", "-W", "ignore", "-n", str(processes)]
    command = [sys.executable, "-m", "pytest", *plugins, *how, *tests]
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode not in _ENDED:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}")
    return json.loads(outcomes.read_text())


def differing(folder, tests, kept_in, **options):
    """The tests that end otherwise where they are recorded, and how all of them end where not."""
    without = run(folder, tests, recorded=False, kept_in=kept_in, **options)
    with_us = run(folder, tests, recorded=True, kept_in=kept_in, **options)
    names = sorted(without.keys() | with_us.keys())
    return [name for name in names if without.get(name) != with_us.get(name)], without


def runs_in(path):
    """Return the number of recorded runs."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT count(*) FROM traces").fetchone()[0]


def main(folder, tests):
    with TemporaryDirectory() as kept_in:
        found, outcomes = differing(folder, tests, Path(kept_in))
        if found:
            print(f"once more, alone: {', '.join(found)}", file=sys.stderr)
            found, _ = differing(folder, found, Path(kept_in), processes=0)
        recorded = runs_in(Path(kept_in) / "kp.db")
    passed = sum(outcome == "passed" for outcome in outcomes.values())
    print(f"{Path(folder).name}: {len(outcomes)} tests, {passed} pass, {recorded} runs recorded")
    if found or not recorded or not passed:
        sys.exit(f"end otherwise where they are recorded: {', '.join(found) or 'nothing was'}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[3:])
