"""The doctor asks the registry what a program would meet, and changes nothing there."""

import json
import shutil
import subprocess
import time

import failing_servers as at
import pytest

from kp_middleware import KnowledgePulse
from kp_middleware.database import connect
from kp_middleware.locations import pacing_file
from kp_middleware.rate_limit import Pace
from kp_middleware.storage import PacingTable, read_paces
from kp_middleware.testing import Fault, LocalRegistry

pytestmark = pytest.mark.usefixtures("usual_network")


@pytest.fixture
def examined(type_command, monkeypatch):
    """Return doctor's findings at a registry, and its exit code."""
    monkeypatch.setenv("KP_EMBEDDER", "none")

    def ask(url, key):
        monkeypatch.setenv("KP_REGISTRY_URL", url)
        monkeypatch.setenv("KP_API_KEY", key)
        result = type_command("doctor", "--json")
        found = {one["check"]: one for one in json.loads(result.stdout)}
        return found["registry"], result.exit_code

    return ask


def test_a_key_that_may_write_is_taken_and_nothing_is_stored_or_deleted(record, examined):
    with LocalRegistry() as registry:
        record("six times seven", registry_url=registry.url, api_key=registry.api_key)
        before, (sent,) = dict(registry.documents), read_paces(pacing_file())

        found, exit_code = examined(registry.url, registry.api_key)

        after, (asked,) = dict(registry.documents), read_paces(pacing_file())
        assert found["detail"] == f"{registry.url} answers and accepts this API key"

    assert (found["ok"], exit_code) == (True, 0)
    assert len(before) == 1
    assert after == before
    assert asked.pace.full_at > sent.pace.full_at + 2  # a write like any other


@pytest.mark.parametrize(
    ("server", "code", "words"),
    [
        (lambda: at.at_a_registry(key=at.KEY), 3, "refused the API key (unknown"),
        (lambda: at.at_a_registry(prepare=LocalRegistry.revoke), 3, "(unknown or revoked)"),
        (
            lambda: at.at_a_registry(may_write=False),
            3,
            "the API key is read-only; register a key with the write scope",
        ),
        (at.no_reputation, 3, "accepts nothing from this agent (Minimum KP-REP score"),
        (lambda: at.at_a_server(at.page("200 OK")), 5, "the response is not from a registry"),
        (
            at.behind_a_proxy,
            5,
            (
                "the proxy in HTTPS_PROXY cannot be reached (connection refused);"
                " correct or unset HTTPS_PROXY"
            ),
        ),
    ],
    ids=["wrong", "revoked", "read-only", "no reputation", "no registry", "dead proxy"],
)
def test_a_key_or_a_server_of_no_use_fails_and_each_is_distinguished(examined, server, code, words):
    with server() as (url, key):
        found, exit_code = examined(url, key)
        again, _ = examined(url, key)

    assert (found["ok"], exit_code) == (False, code)
    assert words in found["detail"]
    assert words in again["detail"]


@pytest.mark.parametrize("command", ["doctor", "outbox reconcile"])
def test_a_429_to_a_command_counts_for_all_programs(db, type_command, monkeypatch, command):
    connect(db).close()
    monkeypatch.setenv("KP_AGENT_ID", "agent-1")
    monkeypatch.setenv("KP_API_KEY", at.KEY)

    with at.serving(at.page("429 Slow", "X-RateLimit-Limit: 30", "Retry-After: 7200")) as port:
        monkeypatch.setenv("KP_REGISTRY_URL", f"http://127.0.0.1:{port}")
        result = type_command(*command.split())

    (found,) = read_paces(pacing_file())
    assert result.exit_code == 5
    assert found.pace.paused_until - found.pace.limited_at >= 7200


@pytest.mark.parametrize("command", ["doctor", "outbox reconcile"])
def test_after_a_429_no_command_draws_another(db, type_command, monkeypatch, command):
    connect(db).close()
    monkeypatch.setenv("KP_AGENT_ID", "agent-1")
    with LocalRegistry() as registry:
        monkeypatch.setenv("KP_API_KEY", registry.api_key)
        monkeypatch.setenv("KP_REGISTRY_URL", registry.url)
        table = PacingTable(
            pacing_file(), registry=registry.url, agent_id="agent-1", key_hash="any"
        )
        table.change(lambda _: Pace().limited(time.time(), 60))

        result = type_command(*command.split())

        assert not [one for one in registry.requests if "authorization" in one.headers]
    assert result.exit_code == 5
    assert "the rate limit is exceeded" in result.output


def test_a_registry_that_asks_for_patience_is_not_asked_for_more(examined, monkeypatch):
    monkeypatch.setenv("KP_AGENT_ID", "agent-1")
    with LocalRegistry() as registry:
        table = PacingTable(
            pacing_file(), registry=registry.url, agent_id="agent-1", key_hash="any"
        )
        table.change(lambda _: Pace(noted_at=time.time(), paused_until=4e9))

        found, exit_code = examined(registry.url, registry.api_key)

        assert [one.method for one in registry.requests] == ["GET", "DELETE"]
    assert (found["ok"], exit_code) == (True, 0)
    assert found["detail"].endswith("knows this API key; sending is paused")


def rehashed(certificate):
    """A folder as OpenSSL wants it."""
    folder = certificate.parent / "hashed"
    folder.mkdir()
    asked = ["openssl", "x509", "-hash", "-noout", "-in", str(certificate)]
    name = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    shutil.copy(certificate, folder / f"{name}.0")
    return folder


@pytest.mark.parametrize(
    ("variable", "named"),
    [
        ("SSL_CERT_FILE", lambda certificate: certificate),
        ("SSL_CERT_DIR", rehashed),
        ("REQUESTS_CA_BUNDLE", lambda certificate: certificate),
        ("CURL_CA_BUNDLE", lambda certificate: certificate),
    ],
    ids=["file", "folder", "requests", "curl"],
)
def test_an_authority_of_one_s_own_is_believed_where_a_variable_names_it(
    examined, tmp_path, monkeypatch, variable, named
):
    with at.with_a_certificate(tmp_path) as (url, key):
        unnamed, _ = examined(url, key)
        monkeypatch.setenv(variable, str(named(tmp_path / "ca.pem")))
        found, exit_code = examined(url, key)

    assert "SSL_CERT_FILE" in unnamed["detail"]
    assert "KP_REGISTRY_URL" not in unnamed["detail"]
    assert (found["ok"], exit_code) == (True, 0)


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"])
def test_a_variable_that_names_no_certificates_is_reported(
    examined, tmp_path, monkeypatch, variable
):
    monkeypatch.setenv(variable, str(tmp_path / "none"))
    with LocalRegistry() as registry:
        found, _ = examined(registry.url, registry.api_key)

    assert (
        f"{variable} is {tmp_path / 'none'}, which has no readable certificates" in found["detail"]
    )
    assert f"correct or unset {variable}" in found["detail"]


@pytest.fixture
def login(home):
    """Writes the files of the reference command line."""
    folder = home / ".config" / "knowledgepulse"
    folder.mkdir(parents=True)

    def write(auth, **config):
        (folder / "auth.json").write_text(json.dumps(auth))
        if config:
            (folder / "config.json").write_text(json.dumps(config))

    return write


@pytest.mark.parametrize(
    ("config", "environment", "words"),
    [
        (
            {},
            {},
            (
                "does not name its registry (kp auth register uses http://localhost:3000 then):"
                " add the key's registry to that file as registryUrl, or set KP_API_KEY"
            ),
        ),
        ({}, {"KP_REGISTRY_URL": "https://one.example"}, "does not name its registry"),
        (
            {"registryUrl": "https://one.example"},
            {"KP_REGISTRY_URL": "https://other.example"},
            (
                "names https://one.example as its registry, but traces go to"
                " https://other.example; set KP_API_KEY to a key of that registry"
            ),
        ),
    ],
    ids=["no config", "no config and a variable", "another registry"],
)
def test_a_login_of_another_registry_sends_nothing_and_is_reported_everywhere(
    record, login, type_command, as_json, monkeypatch, config, environment, words
):
    monkeypatch.setenv("KP_EMBEDDER", "none")
    login({"apiKey": at.KEY, "agentId": "agent-1"}, **config)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    kp = record("six times seven")

    doctor = type_command("doctor")
    (told,) = as_json("status")["troubles"]
    listed = as_json("list")

    assert kp.settings.api_key is None
    assert [row["state"] for row in listed] == ["not queued"]
    assert words in told
    assert doctor.exit_code == 3
    assert words in doctor.stdout
    assert not pacing_file().exists()


def test_a_login_is_used_at_its_own_registry(record, login, as_json):
    with LocalRegistry(answers=[Fault.DRIP]) as registry:
        login({"apiKey": registry.api_key, "agentId": "agent-1"}, registryUrl=registry.url + "/")
        record("six times seven")

        assert len(registry.documents) == 1
    assert as_json("status")["troubles"] == []


def test_a_key_that_is_named_goes_with_whatever_registry_is_named(login, monkeypatch):
    login({"apiKey": "kp_stored", "agentId": "agent-1"}, registryUrl="https://one.example")
    monkeypatch.setenv("KP_REGISTRY_URL", "https://other.example")
    monkeypatch.setenv("KP_API_KEY", "kp_named")

    settings = KnowledgePulse().settings

    assert settings.api_key.get_secret_value() == "kp_named"
    assert (settings.registry_url, settings.agent_id) == ("https://other.example", None)
