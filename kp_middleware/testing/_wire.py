"""HTTP/1.1 over loopback: requests in, answers out."""

import json
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler
from socketserver import BaseServer, ThreadingTCPServer
from typing import TypeAlias

_Request: TypeAlias = socket.socket | tuple[bytes, socket.socket]


@dataclass(frozen=True, slots=True)
class Received:
    """One request.

    Attributes:
        method: ``GET``, ``POST``, …
        path: With the query.
        headers: By lower-case name.
        body: Exactly the bytes that came.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer; ``Date`` and ``Content-Length`` are added on the way.

    Attributes:
        status: The HTTP status.
        body: The bytes.
        headers: By name.
    """

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, status: int, document: object, **headers: str) -> "Answer":
        """An answer in JSON; underscores in header names become hyphens.

        >>> Answer.of(429, {"error": "Rate limit exceeded"}, Retry_After="2").headers["Retry-After"]
        '2'
        """
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return cls(
            status, json.dumps(document).encode(), {"Content-Type": "application/json", **named}
        )


class WireServer(ThreadingTCPServer):
    """Asks ``answer`` for the answer to each request, in a thread per connection.

    Not an ``HTTPServer``, which looks up this machine's name and may wait seconds for it.
    """

    request_queue_size = 128

    def __init__(self, answer: Callable[[Received], Answer]) -> None:
        super().__init__(("127.0.0.1", 0), partial(_Handler, answer))
        self._open: set[socket.socket] = set()

    def get_request(self) -> tuple[socket.socket, object]:
        """Accept a connection and remember it."""
        connection, address = super().get_request()
        self._open.add(connection)
        return connection, address

    def shutdown_request(self, request: _Request) -> None:
        """Close a connection and forget it."""
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: _Request, client_address: object) -> None:
        """Say nothing of clients that hung up: tests make them do it."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def stop(self) -> None:
        """Hang up on everybody, and return when the last thread has ended."""
        self.shutdown()
        for connection in tuple(self._open):
            _hang_up(connection)
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 8.0  # the real one hangs up on idle connections after 8 to 11 s
    wbufsize = -1  # one packet for head and body, or each answer takes 40 ms

    def __init__(
        self,
        answer: Callable[[Received], Answer],
        connection: _Request,
        address: object,
        server: BaseServer,
    ) -> None:
        self._answer = answer
        super().__init__(connection, address, server)

    def do_POST(self) -> None:
        size_bytes = int(self.headers.get("Content-Length", 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        received = Received(self.command, self.path, headers, self.rfile.read(size_bytes))
        self._send(self._answer(received))

    do_GET = do_POST  # noqa: N815

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, *_: object) -> None:
        pass


def _hang_up(connection: socket.socket) -> None:
    with suppress(OSError):  # it was closed meanwhile
        connection.shutdown(socket.SHUT_RDWR)
