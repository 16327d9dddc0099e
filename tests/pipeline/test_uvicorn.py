"""uvicorn, which ends by the signal it got: Python's own exit is skipped."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing, contextmanager

import pytest
from pipeline_helpers import column_of

from kp_middleware.testing import Fault, LocalRegistry

pytest.importorskip("uvicorn", reason="needs uvicorn")

SERVER = """
import asyncio, sys, uvicorn
from kp_middleware import KnowledgePulse
from kp_middleware.testing import StandInEmbedder

kp = KnowledgePulse(embedder=StandInEmbedder(), threshold=0)
answer = kp.capture(lambda question: question)

async def app(scope, receive, send):
    while scope["type"] == "lifespan":
        message = await receive()
        if message["type"] == "lifespan.shutdown":
            await asyncio.to_thread(kp.close)
        await send({"type": message["type"] + ".complete"})
        if message["type"] == "lifespan.shutdown":
            return
    answer(scope["path"])
    await send({"type": "http.response.start", "status": 204})
    await send({"type": "http.response.body"})

uvicorn.run(app, port=int(sys.argv[1]), log_level="error")
"""
PATIENCE_S = 60


def get(port):
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)) as client:
            try:
                client.request("GET", "/question")
                return client.getresponse().status
            except ConnectionRefusedError:
                assert time.monotonic() < deadline
                time.sleep(0.1)


@contextmanager
def serving(program, registry, db):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    sent_to = {"KP_REGISTRY_URL": registry.url, "KP_API_KEY": registry.api_key, "KP_DB": str(db)}
    environment = {**os.environ, **sent_to}
    with subprocess.Popen([sys.executable, str(program), str(port)], env=environment) as server:
        try:
            yield port, server
        finally:
            server.kill()


def test_a_pipeline_closed_by_the_lifespan_keeps_its_run_and_releases_what_it_was_sending(
    db, tmp_path
):
    program = tmp_path / "server.py"
    program.write_text(SERVER)

    with (
        LocalRegistry(answers=lambda _: Fault.HANG) as registry,
        serving(program, registry, db) as (port, server),
    ):
        status = get(port)
        server.send_signal(signal.SIGTERM)
        server.wait(PATIENCE_S)

    assert (status, server.returncode) == (204, -signal.SIGTERM)
    assert column_of(db, "objective") == ["/question"]
    assert column_of(db, "state", "outbox") == ["pending"]
