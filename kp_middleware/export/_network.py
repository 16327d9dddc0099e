"""The network as httpx2 uses it, where each step gets what is left of one deadline.

httpx2 gives every read the whole timeout anew: who sends a byte now and then is never given up.
"""

import ssl
from collections.abc import Iterable
from typing import Any, Final

import httpcore2
import httpx2

from kp_middleware.export._deadline import Deadline

_PIECE_BYTES: Final = 4096  # what a socket takes at once: so each piece gets what time is left


def keep_deadline(client: httpx2.Client, deadline: Deadline) -> None:
    """Let every connection that a client makes from now on keep this deadline."""
    for transport in (client._transport, *client._mounts.values()):  # noqa: SLF001 - no public way
        if isinstance(transport, httpx2.HTTPTransport):
            pool = transport._pool  # noqa: SLF001
            pool._network_backend = _Backend(pool._network_backend, deadline)  # noqa: SLF001


class _Backend(httpcore2.NetworkBackend):
    def __init__(self, backend: httpcore2.NetworkBackend, deadline: Deadline) -> None:
        self._backend = backend
        self._deadline = deadline

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ARG002
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:
        left_s = self._deadline.left_s()
        stream = self._backend.connect_tcp(host, port, left_s, local_address, socket_options)
        return _Stream(stream, self._deadline)


class _Stream(httpcore2.NetworkStream):
    def __init__(self, stream: httpcore2.NetworkStream, deadline: Deadline) -> None:
        self._stream = stream
        self._deadline = deadline
        deadline.meet(stream.get_extra_info("socket"))

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002
        return self._stream.read(max_bytes, self._deadline.left_s())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002
        self._deadline.ask()
        for start in range(0, len(buffer), _PIECE_BYTES):
            piece = buffer[start : start + _PIECE_BYTES]
            self._stream.write(piece, self._deadline.left_s())

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ARG002
    ) -> httpcore2.NetworkStream:
        left_s = self._deadline.left_s()
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, left_s), self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
