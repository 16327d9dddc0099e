"""What a command loads, in a process of its own."""

import subprocess
import sys

HEAVY = {"numpy", "sqlite_utils", "httpx2", "langchain", "datasette"}


def heavy_modules(*words):
    """What a command has loaded when it ends, and what it printed."""
    code = (
        "import sys\n"
        "from kp_middleware.cli import main\n"
        "code = main(sys.argv[1:], standalone_mode=False)\n"
        f"print(*sorted({HEAVY} & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True
    )
    return done.stderr.splitlines()[-1].split(), done.stdout
