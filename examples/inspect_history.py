"""Query the trace database, which is plain SQLite, without our library.

python examples/inspect_history.py [kp.db]
"""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

QUESTIONS = {
    "What was decided, and why?": "SELECT objective, round(score, 3), reason FROM history LIMIT 10",
    "What just missed the threshold?": "SELECT objective, margin FROM near_misses LIMIT 10",
    "Which tools are slow?": "SELECT tool, calls, mean_ms FROM tool_usage ORDER BY mean_ms DESC",
    "What about Rome?": "SELECT objective FROM traces_fts WHERE traces_fts MATCH 'rome'",
}


def main() -> None:
    """Print the answers."""
    path = sys.argv[1] if len(sys.argv) > 1 else _default_path()
    if not Path(path).exists():
        sys.exit(f"{path} does not exist: run another example first")
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        for question, sql in QUESTIONS.items():
            print(question)
            for row in connection.execute(sql):
                print("  ", *row, sep="  ")


def _default_path() -> str:
    command = [sys.executable, "-m", "kp_middleware", "config", "get", "db"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
