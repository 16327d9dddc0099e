import socket
import struct
import threading
import time
import traceback
from contextlib import contextmanager, suppress

import pytest
from failing_servers import at_a_closed_port, at_a_server, silent
from pydantic import SecretStr

from kp_middleware.errors import RegistryUnavailableError
from kp_middleware.export import OutboxItem, Registry

KEY = "kp_0123456789abcdef"
ITEM = OutboxItem(trace_seq=7, body=b"{}", idempotency_key="k-1")
TAKEN = b'{"data":{"id":"kp:trace:1"}}'
CREATED = b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n%b" % (len(TAKEN), TAKEN)


def reset(connection, *_):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def hang_up(connection, *_):
    connection.close()


def say_and_hang_up(raw):
    def behave(connection, *_):
        connection.sendall(raw)
        connection.close()

    return behave


def drip(connection, _, over):
    connection.sendall(b"HTTP/1.1 201 Created\r\nContent-Length: 1000000\r\n\r\n")
    while not over.wait(0.001):
        connection.sendall(b" ")


def drip_headers(connection, _, over):
    connection.sendall(b"HTTP/1.1 201 Created\r\nX-Long: ")
    while not over.wait(0.001):
        connection.sendall(b"a")


def never_end(connection, _, over):
    connection.sendall(b"HTTP/1.1 201 Created\r\nContent-Length: 1000000000\r\n\r\n")
    while not over.is_set():
        connection.sendall(b" " * 65_536)


@contextmanager
def registry_at(url, **options):
    registry = Registry(url, SecretStr(KEY), **options)
    yield registry
    registry.close()


def error_of(url, item=ITEM, **options):
    with registry_at(url, **options) as registry, pytest.raises(RegistryUnavailableError) as caught:
        registry.export(item)
    return caught.value


@pytest.mark.parametrize(
    ("behave", "words"),
    [
        (reset, "ReadError"),
        (hang_up, "without sending"),
        (say_and_hang_up(b"\x00\xffthis is not HTTP\r\n\r\n"), "RemoteProtocolError"),
        (
            say_and_hang_up(b"HTTP/1.1 201 Created\r\nContent-Length: 99\r\n\r\n{"),
            "RemoteProtocolError",
        ),
        (
            say_and_hang_up(b"HTTP/1.1 201 Created\r\nContent-Encoding: gzip\r\n\r\nplain"),
            "DecodingError",
        ),
        (never_end, "the response does not end"),
    ],
    ids=["a reset", "a hang-up", "noise", "half an answer", "false gzip", "no end"],
)
def test_a_connection_that_breaks_is_worth_another_try(behave, words):
    with at_a_server(behave) as (url, _):
        error = error_of(url)

    assert words in str(error)
    assert url in str(error)


@pytest.mark.parametrize(
    ("behave", "timeout_s", "words", "status"),
    [
        (silent, 0.02, "within 0.02 s", None),  # on a busy machine it is not even connected
        (drip, 0.5, "not complete", 201),
        (drip_headers, 0.5, "no response within 0.5 s", None),
    ],
    ids=["silent", "body", "headers"],
)
def test_a_registry_that_hangs_or_drips_is_given_up_and_worth_another_try(
    behave, timeout_s, words, status
):
    with at_a_server(behave) as (url, _):
        error = error_of(url, timeout_s=timeout_s)

    assert words in str(error)
    assert error.status == status


def test_a_registry_that_hardly_takes_a_byte_is_given_up():
    large = OutboxItem(trace_seq=7, body=b" " * 20_000_000, idempotency_key="k-1")

    def take_slowly():
        with suppress(OSError), listening.accept()[0] as connection:
            while connection.recv(1):
                time.sleep(0.001)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=take_slowly, daemon=True).start()
        error = error_of(f"http://127.0.0.1:{listening.getsockname()[1]}", large, timeout_s=0.5)

    assert "no response within 0.5 s" in str(error)


def test_nobody_at_home_is_worth_another_try():
    with at_a_closed_port() as (url, _):
        error = error_of(url)

    assert error.status is None
    assert "connection refused" in str(error)


def test_certificates_that_cannot_be_read_are_worth_another_try(monkeypatch, tmp_path):
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing.pem"))

    assert error_of("https://registry.invalid").status is None


def test_over_the_limit_counts_even_if_the_answer_never_ends():
    head = b"HTTP/1.1 429 Busy\r\nX-RateLimit-Limit: 60\r\nRetry-After: 7\r\n"

    with at_a_server(say_and_hang_up(head + b"Content-Length: 99\r\n\r\n{")) as (url, _):
        error = error_of(url)

    assert (error.status, error.retry_after_s) == (429, 7.0)


def test_who_hangs_up_waits_no_more_and_asks_nothing_more():
    asked, errors = threading.Event(), []

    def hang(_, __, over):
        asked.set()
        over.wait(30)

    def ask(registry):
        with pytest.raises(RegistryUnavailableError) as caught:
            registry.export(ITEM)
        errors.append(str(caught.value))

    with at_a_server(hang) as (url, _), registry_at(url, timeout_s=30) as registry:
        asking = threading.Thread(target=ask, args=(registry,))
        asking.start()
        asked.wait(10)
        was_sent = registry.abort()
        asking.join(10)
        asked.clear()
        ask(registry)
        with registry_at(url) as unused:
            had_sent = unused.abort()
            ask(unused)

    assert (was_sent, had_sent) == (True, False)
    assert len(errors) == 3
    assert all("broken off" in error for error in errors[1:])
    assert not asked.is_set()


def test_a_key_that_comes_back_as_noise_is_in_no_message():
    noise = b"HTTP/1.1 201 Created\r\nBearer %b is no header\r\n\r\n" % KEY.encode()

    with at_a_server(say_and_hang_up(noise)) as (url, _):
        error = error_of(url)

    assert "Bearer *** is no header" in str(error)
    assert KEY not in "".join(traceback.format_exception(error))


def test_a_connection_that_died_while_idle_is_replaced():
    closed = threading.Semaphore(0)

    def answer_and_hang_up(connection, *_):
        connection.sendall(CREATED)
        connection.close()
        closed.release()

    with at_a_server(answer_and_hang_up) as (url, _), registry_at(url) as registry:
        registry.export(ITEM)
        closed.acquire(timeout=10)
        receipt = registry.export(ITEM)

    assert receipt.remote_id == "kp:trace:1"


def test_one_connection_serves_many_documents():
    connections = set()

    def answer(connection, *_):
        connections.add(connection)
        connection.sendall(CREATED)

    with at_a_server(answer) as (url, _), registry_at(url) as registry:
        registry.export(ITEM)
        registry.export(ITEM)

    assert len(connections) == 1


BUSY = b"HTTP/1.1 429 Busy\r\nContent-Length: 0\r\n"


def test_a_registry_that_asks_for_patience_is_reached():
    behave = say_and_hang_up(BUSY + b"X-RateLimit-Limit: 60\r\n\r\n")

    with at_a_server(behave) as (url, _), registry_at(url) as registry:
        assert registry.reach() is None


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>",
        BUSY + b"\r\n",
        b"HTTP/1.1 503 Trouble\r\nContent-Length: 0\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n",
    ],
    ids=["a page", "another's limit", "trouble", "not HTTP"],
)
def test_what_is_no_registry_is_not_reached(raw):
    with (
        at_a_server(say_and_hang_up(raw)) as (url, _),
        registry_at(url) as registry,
        pytest.raises(RegistryUnavailableError),
    ):
        registry.reach()
