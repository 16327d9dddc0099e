"""A server for tracers that need one: it accepts whatever is sent, and discards it.

In a process of its own, so that its work is nobody's; it ends with the program that began it.
"""

import subprocess
import sys
import threading
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

_PLAIN: Final = {"/version": b"3.17.2"}  # MLflow's client asks what its server can do
_STORED: Final = (
    b'{"trace":{"trace_info":{"tags":{"mlflow.trace.spansLocation":"TRACKING_STORE"}}}}'
)


@cache
def sink_url() -> str:
    """Return the server's address; the first call starts it."""
    process = subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process.stdout.readline().strip()


class AcceptingHandler(BaseHTTPRequestHandler):
    """A handler that answers 200 to everything."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        answer = _PLAIN.get(self.path, _STORED)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_PUT = do_PATCH = do_POST  # noqa: N815 - the library's own names

    def log_message(self, *_: object) -> None: ...


def main() -> None:
    """Serve until the parent program ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), AcceptingHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
