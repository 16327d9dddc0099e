"""Each way in which a registry can fail is told as what it is, with what to do."""

import json
import re
import time
from contextlib import closing, contextmanager

import failing_servers as at
import pytest
from pydantic import SecretStr

from kp_middleware import KnowledgePulse
from kp_middleware.database import connect
from kp_middleware.export import Registry, Sender
from kp_middleware.locations import pacing_file
from kp_middleware.storage import OutboxTable, PacingTable, SharedPace
from kp_middleware.testing import FakeClock, LocalRegistry

pytestmark = pytest.mark.usefixtures("usual_network")
INSTANT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
ASK = "it is retried automatically; if it persists, ask the registry's operator"
WAYS = {
    "refused": (
        at.at_a_closed_port,
        ("connection refused; start the registry, or correct KP_REGISTRY_URL"),
    ),
    "unknown host": (
        lambda: at_nobody("https://registry.invalid"),
        (
            "there is no host named registry.invalid; correct KP_REGISTRY_URL, or check this"
            " machine's network"
        ),
    ),
    "wrong path": (
        lambda: at.at_a_registry(path="/api"),
        (
            "a server answers, but there is no registry at this address (it answered 404); correct"
            " KP_REGISTRY_URL: leave out /v1/knowledge"
        ),
    ),
    "a page with 200": (
        lambda: at.at_a_server(at.page("200 OK", "Content-Type: text/html")),
        (
            "the response is not from a registry (200); correct"
            " KP_REGISTRY_URL, or check for a login page or proxy in between"
        ),
    ),
    "a page with 502": (
        lambda: at.at_a_server(at.page("502 Bad Gateway")),
        "a gateway cannot reach the registry (it answered 502); " + ASK,
    ),
    "a page with 403": (
        lambda: at.at_a_server(at.page("403 Forbidden")),
        (
            "a firewall or login page blocks the registry (it answered 403, with a page);"
            " check for a firewall or login in between, or ask the registry's operator"
        ),
    ),
    "500": (
        lambda: at.at_a_registry(answers=[500, 500]),
        "the registry failed (it answered 500); " + ASK,
    ),
    "redirect": (
        lambda: at.at_a_server(
            at.page("301 Moved", "Location: https://bob:secret@login.example/in?token=secret")
        ),
        (
            "the server redirects (301, to https://login.example); set KP_REGISTRY_URL to the"
            " registry's own address: API keys are never sent to a redirect"
        ),
    ),
    "silence": (
        lambda: at.at_a_server(at.silent),
        "connected, but no response within 1 s; " + ASK,
    ),
    "slow body": (
        lambda: at.at_a_server(at.slow),
        "the response was not complete within 1 s; " + ASK,
    ),
    "no TLS": (
        lambda: tls_at(at.at_a_server(at.page("400 Bad Request"))),
        "the server does not speak TLS (",
    ),
    "dead proxy": (
        at.behind_a_proxy,
        (
            "the proxy in HTTPS_PROXY cannot be reached (connection refused); correct or"
            " unset HTTPS_PROXY, or add the registry's host to NO_PROXY"
        ),
    ),
    "proxy with a password": (
        lambda: at.behind_a_proxy(at.page("407 Proxy Authentication Required")),
        (
            "the proxy in HTTPS_PROXY refuses the connection (it answered 407 Proxy"
            " Authentication Required); correct or unset HTTPS_PROXY, or add the registry's"
            " host to NO_PROXY"
        ),
    ),
}
DEAD = (
    "the registry refused the API key (unknown or revoked); set KP_API_KEY to"
    " another key (wait an hour after three 429s), or retry this one with"
    " kp-middleware outbox retry --failed"
)
KEYS = {
    "wrong key": (lambda: at.at_a_registry(key=at.KEY), DEAD),
    "revoked key": (lambda: at.at_a_registry(prepare=LocalRegistry.revoke), DEAD),
    "read-only key": (
        lambda: at.at_a_registry(may_write=False),
        "the API key is read-only; register a key with the write scope, and set KP_API_KEY to it",
    ),
    "no reputation": (
        at.no_reputation,
        (
            "the registry accepts nothing from this agent (Minimum KP-REP score of 0.1 required);"
            " set KP_API_KEY to a key of an agent in good standing, or retry this one with"
            " kp-middleware outbox retry --failed"
        ),
    ),
}


@contextmanager
def at_nobody(url):
    yield url, at.KEY


@contextmanager
def tls_at(server):
    with server as (url, key):
        yield url.replace("http:", "https:"), key


@pytest.fixture
def clock():
    """An hour ahead, so that what is tried next lies ahead of the command as well."""
    return FakeClock(time.time() + 3600)


@pytest.fixture
def queue(db, record):
    """Puts so many traces into the outbox for a registry."""

    def put(url, count=1):
        record(*(f"question {number}" for number in range(count)))
        with closing(connect(db)) as connection:
            outbox = OutboxTable(connection, registry=url, agent_id="agent-1")
            [outbox.add(seq + 1, b"{}", redactor="r", redactions={}) for seq in range(count)]

    return put


@pytest.fixture
def program(db, clock):
    """A program that sends what is due, once, and ends."""

    def send(url, key, timeout_s=10.0):
        registry = Registry(url, SecretStr(key), agent_id="agent-1", timeout_s=timeout_s)
        table = PacingTable(
            pacing_file(), registry=url, agent_id="agent-1", key_hash=registry.key_hash
        )
        pace = SharedPace(table, longest_request_s=10, clock=clock)
        with closing(registry), closing(connect(db)) as connection:
            outbox = OutboxTable(connection, registry=url, agent_id="agent-1", clock=clock)
            Sender(outbox, registry, pace=pace, clock=clock).send_due()

    return send


@pytest.mark.parametrize(("server", "words"), WAYS.values(), ids=WAYS)
def test_what_a_registry_does_is_reported_with_since_when_how_often_and_when_next(
    queue, program, as_json, server, words
):
    with server() as (url, key):
        queue(url)
        program(url, key, timeout_s=1.0 if "within 1 s" in words else 10.0)

        (told,) = as_json("status")["troubles"]

    assert re.match(
        rf"nothing is sent to {re.escape(url)} \(since {INSTANT}, tried once, next at {INSTANT} if"
        rf" a program is running then\): {re.escape(words)}",
        told,
    )
    assert told.endswith("; 1 takes about 1 s then")


@pytest.mark.parametrize(("server", "words"), KEYS.values(), ids=KEYS)
def test_what_is_wrong_with_a_key_is_reported_until_the_user_acts(
    queue, program, as_json, type_command, server, words
):
    with server() as (url, key):
        queue(url)
        program(url, key)

        (told,) = as_json("status")["troubles"]

    assert re.fullmatch(
        rf"nothing is sent to {re.escape(url)} \(since {INSTANT}, tried once, paused until you"
        rf" fix it\): {re.escape(words)}",
        told,
    )
    lines = type_command("status").stdout.splitlines()
    assert " " * 21 + "1 waits until you fix it" in lines
    assert not any("kp-middleware outbox send" in line for line in lines)


@pytest.mark.parametrize(
    ("host", "trusted", "words"),
    [
        (
            "IP:127.0.0.1",
            False,
            (
                "its certificate is not trusted (self-signed certificate); set SSL_CERT_FILE to"
                " the certificate of the authority that signed it"
            ),
        ),
        ("DNS:another.example", True, "its certificate is not valid (IP address mismatch"),
    ],
    ids=["signed by nobody", "of another host"],
)
def test_a_bad_certificate_is_reported(
    queue, program, as_json, tmp_path, monkeypatch, host, trusted, words
):
    with at.with_a_certificate(tmp_path, host=host) as (url, key):
        if trusted:
            monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        queue(url)
        program(url, key)

        (told,) = as_json("status")["troubles"]

    assert words in told


def test_what_lasts_is_reported_with_its_beginning_and_every_try_until_it_is_over(
    queue, program, as_json, type_command, clock
):
    with LocalRegistry(answers=[500, 500]) as registry:
        queue(registry.url)
        program(registry.url, registry.api_key)
        (first,) = as_json("status")["troubles"]
        clock.advance(100)
        program(registry.url, registry.api_key)
        (later,) = as_json("status")["troubles"]
        listed = type_command("outbox", "list", "--json")
        clock.advance(1000)
        program(registry.url, registry.api_key)

    assert re.search(INSTANT, later)[0] == re.search(INSTANT, first)[0]
    assert "tried 2 times" in later
    (row,) = json.loads(listed.stdout)
    assert "the registry failed" in row["reason"]
    assert listed.stderr.splitlines() == [later]
    assert [
        trouble for trouble in as_json("status")["troubles"] if "nothing is sent" in trouble
    ] == []


def test_patience_is_reported_with_when_it_ends(queue, program, as_json):
    with LocalRegistry(answers=[429]) as registry:
        queue(registry.url, 3)
        program(registry.url, registry.api_key)

    (told,) = as_json("status")["troubles"]

    assert re.search(rf"tried once, next at {INSTANT}", told)
    assert "the rate limit is exceeded (429); sending resumes automatically; do not use" in told
    assert told.endswith("; 3 take about 5 s then")


def test_three_programs_at_once_are_told_with_how_long_all_will_take(queue, program, as_json):
    with LocalRegistry(burst=100, answers=lambda _: 400) as registry:
        queue(registry.url, 45)
        for _ in range(3):
            program(registry.url, registry.api_key)

        found = as_json("status")

    (sending,) = found["sending"]
    assert (sending["waiting"], sending["busy"]) == (25, True)
    assert sending["in_words"] == "a program is sending; 25 take about 53 s"
    assert [trouble for trouble in found["troubles"] if "nothing is sent" in trouble] == []


def test_a_program_that_has_closed_is_not_told_to_be_sending(db, agent, as_json):
    with LocalRegistry(answers=lambda _: 500) as registry:
        with KnowledgePulse(
            db=db, embedder=None, threshold=0, registry_url=registry.url, api_key=registry.api_key
        ) as kp:
            kp.capture(agent)("a question")
            kp.flush(0.5)
            (during,) = as_json("status")["sending"]
        (after,) = as_json("status")["sending"]

    assert (during["busy"], after["busy"]) == (True, False)
