import socket
import struct
import threading
import time
import traceback
from contextlib import contextmanager, suppress
from socketserver import BaseRequestHandler, ThreadingTCPServer

import pytest
from pydantic import SecretStr

from kp_middleware.errors import RegistryUnavailableError
from kp_middleware.export import Registry
from kp_middleware.outbox_items import OutboxItem
from kp_middleware.testing import Fault, LocalRegistry

KEY = "kp_0123456789abcdef"
ITEM = OutboxItem(trace_seq=7, body=b"{}", idempotency_key="k-1")
TAKEN = b'{"data":{"id":"kp:trace:1"}}'
CREATED = b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n%b" % (len(TAKEN), TAKEN)


def read_request(connection):
    """To the last byte: who hangs up with bytes unread resets the connection."""
    request = connection.recv(65_536)
    while request.startswith(b"POST") and not request.endswith(ITEM.body):
        more = connection.recv(65_536)
        if not more:
            return
        request += more


def read_slowly(connection):
    for _ in range(1000):
        time.sleep(0.001)
        connection.recv(1)


@contextmanager
def raw_server(behave, read=read_request):
    """A server that does with each connection what it is told, until ``stopped``."""
    stopped = threading.Event()

    class Handler(BaseRequestHandler):
        def handle(self):
            with suppress(OSError):
                read(self.request)
                behave(self.request, stopped)

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            stopped.set()
            server.shutdown()


def reset(connection, _):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def hang(_, stopped):
    stopped.wait(30)


def hang_up(connection, _):
    connection.close()


def drip(connection, stopped):
    connection.sendall(b"HTTP/1.1 201 Created\r\nContent-Length: 1000000\r\n\r\n")
    while not stopped.wait(0.001):
        connection.sendall(b" ")


def drip_headers(connection, stopped):
    connection.sendall(b"HTTP/1.1 201 Created\r\nX-Long: ")
    while not stopped.wait(0.001):
        connection.sendall(b"a")


def never_end(connection, stopped):
    connection.sendall(b"HTTP/1.1 201 Created\r\nContent-Length: 1000000000\r\n\r\n")
    while not stopped.is_set():
        connection.sendall(b" " * 65_536)


def say(raw):
    return lambda connection, _: connection.sendall(raw)


@contextmanager
def registry_at(url, **options):
    registry = Registry(url, SecretStr(KEY), **options)
    yield registry
    registry.close()


def error_of(url, **options):
    with registry_at(url, **options) as registry, pytest.raises(RegistryUnavailableError) as caught:
        registry.export(ITEM)
    return caught.value


def error_in(registry):
    with pytest.raises(RegistryUnavailableError) as caught:
        registry.export(ITEM)
    return caught.value


@pytest.mark.parametrize(
    ("behave", "words"),
    [
        (reset, "ReadError"),
        (hang_up, "without sending"),
        (say(b"\x00\xffthis is not HTTP\r\n\r\n"), "RemoteProtocolError"),
        (say(b"HTTP/1.1 201 Created\r\nContent-Length: 99\r\n\r\n{"), "RemoteProtocolError"),
        (say(b"HTTP/1.1 201 Created\r\nContent-Encoding: gzip\r\n\r\nplain"), "DecodingError"),
        (never_end, "the answer does not end"),
    ],
    ids=["a reset", "a hang-up", "noise", "half an answer", "false gzip", "no end"],
)
def test_a_connection_that_breaks_is_worth_another_try(behave, words):
    with raw_server(behave) as url:
        error = error_of(url)

    assert words in str(error)
    assert url in str(error)


def test_a_registry_that_hangs_is_worth_another_try():
    with raw_server(hang) as url:
        error = error_of(url, timeout_s=0.02)

    assert "within 0.02 s" in str(error)  # on a busy machine it is not even connected


@pytest.mark.parametrize(
    ("behave", "words", "status"),
    [(drip, "not complete", 201), (drip_headers, "no response within 0.5 s", None)],
    ids=["body", "headers"],
)
def test_an_answer_that_drips_is_given_up(behave, words, status):
    with raw_server(behave) as url:
        error = error_of(url, timeout_s=0.5)

    assert words in str(error)
    assert error.status == status


def test_a_registry_that_hardly_takes_a_byte_is_given_up():
    large = OutboxItem(trace_seq=7, body=b" " * 20_000_000, idempotency_key="k-1")

    with (
        raw_server(hang, read_slowly) as url,
        registry_at(url, timeout_s=0.5) as registry,
        pytest.raises(RegistryUnavailableError) as caught,
    ):
        registry.export(large)

    assert "no response within 0.5 s" in str(caught.value)


def test_an_answer_that_crawls_is_given_up_and_costs_no_more_than_its_time():
    with LocalRegistry(answers=[Fault.CRAWL]) as local:
        error = error_of(local.url, timeout_s=2)

    assert "no response within 2 s" in str(error)


def test_over_the_limit_counts_even_if_the_answer_never_ends():
    head = b"HTTP/1.1 429 Busy\r\nX-RateLimit-Limit: 60\r\nRetry-After: 7\r\n"

    with raw_server(say(head + b"Content-Length: 99\r\n\r\n{")) as url:
        error = error_of(url)

    assert (error.status, error.retry_after_s) == (429, 7.0)


def test_who_hangs_up_waits_no_more_and_asks_nothing_more():
    asked, results = threading.Event(), []

    def hang(_, stopped):
        asked.set()
        stopped.wait(30)

    with raw_server(hang) as url, registry_at(url, timeout_s=30) as registry:
        asking = threading.Thread(target=lambda: results.append(error_in(registry)))
        asking.start()
        asked.wait(10)
        was_sent = registry.hang_up()
        asking.join(10)
        asked.clear()
        results.append(error_in(registry))

    assert was_sent
    assert [type(error) for error in results] == [RegistryUnavailableError] * 2
    assert not asked.is_set()


def test_who_hangs_up_before_anything_is_sent_has_asked_nothing():
    with raw_server(hang) as url, registry_at(url) as registry:
        was_sent = registry.hang_up()
        error = error_in(registry)

    assert not was_sent
    assert "broken off" in str(error)


def test_a_key_that_comes_back_as_noise_is_in_no_message():
    noise = b"HTTP/1.1 201 Created\r\nBearer %b is no header\r\n\r\n" % KEY.encode()

    with raw_server(say(noise)) as url:
        error = error_of(url)

    assert "Bearer *** is no header" in str(error)
    assert KEY not in "".join(traceback.format_exception(error))


def test_nobody_at_home_is_worth_another_try():
    with raw_server(hang_up) as url:
        pass

    error = error_of(url)

    assert error.status is None
    assert "connection refused" in str(error)


def test_certificates_that_cannot_be_read_are_worth_another_try(monkeypatch, tmp_path):
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing.pem"))

    error = error_of("https://registry.invalid")

    assert error.status is None


def test_a_connection_that_died_while_idle_is_replaced():
    closed = threading.Semaphore(0)

    def answer_and_hang_up(connection, _):
        connection.sendall(CREATED)
        connection.close()
        closed.release()

    with raw_server(answer_and_hang_up) as url, registry_at(url) as registry:
        registry.export(ITEM)
        closed.acquire(timeout=10)
        receipt = registry.export(ITEM)

    assert receipt.remote_id == "kp:trace:1"


def test_one_connection_serves_many_documents():
    connections = []

    def answer_twice(connection, _):
        connections.append(connection)
        connection.sendall(CREATED)
        read_request(connection)
        connection.sendall(CREATED)

    with raw_server(answer_twice) as url, registry_at(url) as registry:
        registry.export(ITEM)
        registry.export(ITEM)

    assert len(connections) == 1


def test_a_registry_that_asks_for_patience_is_reached():
    busy = b"HTTP/1.1 429 Busy\r\nX-RateLimit-Limit: 60\r\nContent-Length: 0\r\n\r\n"

    with raw_server(say(busy)) as url, registry_at(url) as registry:
        assert registry.reach() is None


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>",
        b"HTTP/1.1 429 Busy\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 503 Trouble\r\nContent-Length: 0\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n",
    ],
    ids=["a page", "another's limit", "trouble", "not HTTP"],
)
def test_what_is_no_registry_is_not_reached(raw):
    with (
        raw_server(say(raw)) as url,
        registry_at(url) as registry,
        pytest.raises(RegistryUnavailableError),
    ):
        registry.reach()
