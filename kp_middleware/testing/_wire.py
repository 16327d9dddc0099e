"""A minimal HTTP/1.1 server on loopback."""

import json
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Final, Literal, TypeAlias, cast

_Request: TypeAlias = socket.socket | tuple[bytes, socket.socket]

_RESET_WHEN_CLOSED: Final = struct.pack("ii", 1, 0)


Manner: TypeAlias = Literal[
    "whole", "last", "dripping", "crawling", "cut", "silent", "closed", "reset"
]
"""The way an answer is delivered.

``whole``, and the connection stays open, or it is the ``last`` on it; byte by byte, a thousand in
a second (``dripping``) or, from its headers on, twenty (``crawling``); half of its body (``cut``).
Not at all: the connection stays open until the client closes it (``silent``), is closed, or reset.
"""


@dataclass(frozen=True, slots=True)
class Received:
    """A received request.

    Attributes:
        method: ``GET``, ``POST``, …
        path: The path with the query.
        headers: The headers by lower-case name.
        body: The raw bytes.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer; the server adds ``Date`` and ``Content-Length``.

    Attributes:
        status: The HTTP status.
        body: The raw bytes.
        headers: The headers by name.
        manner: How it is delivered.
    """

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    manner: Manner = "whole"

    @classmethod
    def of(cls, status: int, document: object, **headers: str) -> "Answer":
        """Return a JSON answer; underscores in header names become hyphens.

        >>> Answer.of(429, {"error": "Rate limit exceeded"}, Retry_After="2").headers["Retry-After"]
        '2'
        """
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named = {"Content-Type": "application/json", **named}
        return cls(status, json.dumps(document).encode(), named)


class WireServer(ThreadingTCPServer):
    """A server that calls ``answer`` for each request, with a thread per connection.

    Not an ``HTTPServer``, which looks up this machine's name and may wait seconds for it.
    """

    request_queue_size = 128

    def __init__(self, answer: Callable[[Received], Answer]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self._open: set[socket.socket] = set()

    def get_request(self) -> tuple[socket.socket, object]:
        connection, address = super().get_request()
        self._open.add(connection)
        return connection, address

    def shutdown_request(self, request: _Request) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: _Request, client_address: object) -> None:
        if not isinstance(sys.exception(), OSError):  # tests make clients disconnect
            super().handle_error(request, client_address)

    def stop(self) -> None:
        """Close all connections, and wait for the threads to end."""
        self.shutdown()
        for connection in tuple(self._open):
            with suppress(OSError):  # it was closed meanwhile
                connection.shutdown(socket.SHUT_RDWR)
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 8.0  # the real one hangs up on idle connections after 8 to 11 s
    disable_nagle_algorithm = True  # or each answer in two packets takes 40 ms

    def do_POST(self) -> None:
        size_bytes = int(self.headers.get("Content-Length", 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(size_bytes)
        if len(body) < size_bytes:
            self.close_connection = True  # the client disconnected within its request
            return
        received = Received(self.command, self.path, headers, body)
        answer = cast("WireServer", self.server).answer(received)
        self.close_connection |= answer.manner not in {"whole", "dripping", "crawling"}
        self._send(answer)

    do_GET = do_DELETE = do_POST  # noqa: N815

    def _send(self, answer: Answer) -> None:
        length = str(len(answer.body))
        headers = {"Date": self.date_time_string(), **answer.headers, "Content-Length": length}
        phrase, _ = self.responses.get(answer.status, ("", ""))
        lines = [f"{self.protocol_version} {answer.status} {phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        raw = "\r\n".join([*lines, "", ""]).encode("latin-1") + answer.body
        match answer.manner:
            case "whole" | "last":
                self.connection.sendall(raw)
            case "dripping" | "crawling" as manner:
                for byte in raw:
                    self.connection.sendall(bytes((byte,)))
                    time.sleep(0.001 if manner == "dripping" else 0.05)
            case "cut":
                self.connection.sendall(raw[: -1 - len(answer.body) // 2])
            case "silent":
                self.connection.settimeout(None)
                while self.connection.recv(65_536):
                    pass
            case "closed":
                pass
            case "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_WHEN_CLOSED)
                self.rfile.close()
                self.connection.close()

    def log_message(self, *_: object) -> None:
        pass
