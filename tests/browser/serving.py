"""A running page."""

import subprocess
import sys
from urllib.parse import urlsplit


class Page:
    """A running `kp-middleware ui`."""

    def __init__(self, process):
        self.link = process.stderr.readline().strip()
        self.overview = f"http://{urlsplit(self.link).netloc}/-/kp/kp"

    def trace(self, name):
        return f"{self.overview}/traces/{name}"


def serve(stack, environment, db):
    """Starts the page of a file; the stack ends it."""
    command = [sys.executable, "-m", "kp_middleware", "--db", str(db), "ui", "--no-open"]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    stack.enter_context(process)
    stack.callback(process.terminate)
    return Page(process)
