"""Real servers on loopback, one for each way in which a registry can fail a client."""

import re
import shutil
import socket
import ssl
import subprocess
import threading
from contextlib import contextmanager, nullcontext, suppress
from socketserver import BaseRequestHandler, ThreadingTCPServer

import pytest

from kp_middleware.testing import Fault, LocalRegistry

KEY = "kp_" + "0" * 64
ANSWERS = {
    b"GET": (b"200 OK", b'{"data":[],"total":0}'),
    b"DELETE": (b"404 Not Found", b'{"error":"Knowledge unit not found"}'),
    b"POST": (b"400 Bad Request", b'{"error":"Invalid KnowledgeUnit","issues":[]}'),
}


@contextmanager
def serving(behave, context=None):
    """A server that does with each connection what it is told; gives its port."""
    over = threading.Event()

    class Handler(BaseRequestHandler):
        def handle(self):
            with suppress(OSError), _wrapped(self.request, context) as connection:
                while asked := _request(connection):
                    behave(connection, asked, over)

    class Server(ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            over.set()
            server.shutdown()


def _request(connection):
    """A whole request, however many pieces it comes in; what is no HTTP as it comes."""
    asked = piece = connection.recv(65_536)
    while piece and asked[:1].isalpha() and not _is_whole(asked):
        asked += (piece := connection.recv(65_536))
    return asked


def _is_whole(asked):
    head, end, body = asked.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
    return bool(end) and len(body) >= int(length[1] if length else 0)


def _wrapped(connection, context):
    """The same in TLS, if there is a context for it; the handshake comes with the first byte."""
    if context is None:
        return nullcontext(connection)
    return context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)


def replying(raw):
    return lambda connection, _, __: connection.sendall(raw)


def page(status, *headers):
    """Return an HTML page, as servers send to people."""
    body = b"<html>welcome</html>"
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return replying("\r\n".join(head).encode() + body)


def registry_like(connection, asked, _):
    """Answers the doctor's questions as a registry that is well."""
    status, body = ANSWERS[asked.partition(b" ")[0]]
    connection.sendall(b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))


def silent(_, __, over):
    over.wait(30)


def slow(connection, _, over):
    connection.sendall(b"HTTP/1.1 201 Created\r\nContent-Length: 99\r\n\r\n{")
    over.wait(30)


@contextmanager
def at_a_server(behave):
    with serving(behave) as port:
        yield f"http://127.0.0.1:{port}", KEY


@contextmanager
def at_a_closed_port():
    with socket.create_server(("127.0.0.1", 0)) as once:
        port = once.getsockname()[1]
    yield f"http://127.0.0.1:{port}", KEY


@contextmanager
def at_a_registry(key=None, path="", prepare=None, **options):
    with LocalRegistry(**options) as registry:
        if prepare is not None:
            prepare(registry)
        yield registry.url + path, key or registry.api_key


@contextmanager
def behind_a_proxy(behave=None):
    """A registry far away, and a proxy that does this to whoever asks; or is not there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("NO_PROXY", raising=False)
        patch.delenv("no_proxy", raising=False)
        with at_a_closed_port() if behave is None else at_a_server(behave) as (proxy, _):
            patch.setenv("HTTPS_PROXY", proxy)
            yield "https://registry.example", KEY


@contextmanager
def with_a_certificate(folder, *, host="IP:127.0.0.1", behave=registry_like):
    """A server whose certificate nobody has signed; it lies in the folder as ``ca.pem``."""
    certificate, key = make_certificate(folder, host)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with serving(behave, context) as port:
        yield f"https://127.0.0.1:{port}", KEY


def make_certificate(folder, host):
    """A certificate for a host, and its key, as files."""
    openssl = shutil.which("openssl") or pytest.skip("openssl, which makes certificates, is away")
    certificate, key = folder / "ca.pem", folder / "key.pem"
    subprocess.run(
        [
            openssl,
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=a registry",
            "-addext",
            f"subjectAltName={host}",
            "-keyout",
            str(key),
            "-out",
            str(certificate),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key


def no_reputation():
    return at_a_registry(answers=[Fault.NO_REPUTATION])
