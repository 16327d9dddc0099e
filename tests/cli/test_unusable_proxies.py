"""A proxy variable that makes no sense is told, and its password is not."""

import json

import pytest

from kp_middleware import KnowledgePulse, current_trace

PASSWORD = "hunter2"
URL = "https://registry.example"
UNUSABLE = {
    "no port": ("HTTPS_PROXY", "http://proxy:port"),
    "a slash in the password": ("HTTPS_PROXY", f"http://user:{PASSWORD}/x@host:80"),
    "another scheme": ("HTTPS_PROXY", f"ftp://user:{PASSWORD}@host"),
    "of other requests": ("HTTP_PROXY", f"http://user:{PASSWORD}/x@host:80"),
    "no package for it": ("ALL_PROXY", f"socks5://user:{PASSWORD}@host:1080"),
    "no name": ("HTTPS_PROXY", f"http://user:{PASSWORD}@a..b:80"),
}
NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(params=UNUSABLE.values(), ids=UNUSABLE)
def variable(request, monkeypatch):
    """Set to a proxy that cannot be used."""
    name, value = request.param
    [monkeypatch.delenv(each, raising=False) for each in (*NAMES, *map(str.lower, NAMES))]
    monkeypatch.setenv(name, value)
    return name


@pytest.mark.usefixtures("usual_network")
def test_a_proxy_that_cannot_be_used_is_told_and_the_row_waits(db, type_command, variable, caplog):
    with KnowledgePulse(
        db=db, embedder=None, threshold=0, registry_url=URL, api_key="kp_" + "0" * 64
    ) as kp:
        kp.capture(_thinking)("six times seven")
        kp.flush(1)
    (row,) = json.loads(type_command("outbox", "list", "--json").stdout)
    told = type_command("status", "--json").stdout

    assert row["state"] == "pending"
    assert f"correct or unset {variable}" in told
    assert "Traceback" not in caplog.text
    assert PASSWORD not in caplog.text + told + json.dumps(row)


@pytest.mark.usefixtures("usual_network")
def test_the_doctor_names_the_variable_of_a_proxy_that_cannot_be_used(
    type_command, variable, monkeypatch, caplog
):
    monkeypatch.setenv("KP_EMBEDDER", "none")
    monkeypatch.setenv("KP_REGISTRY_URL", URL)
    monkeypatch.setenv("KP_API_KEY", "kp_" + "0" * 64)

    result = type_command("doctor", "--json")

    (found,) = [one for one in json.loads(result.stdout) if one["check"] == "registry"]
    assert not found["ok"]
    assert f"correct or unset {variable}" in found["detail"] + (found.get("remedy") or "")
    assert PASSWORD not in result.output + caplog.text


def _thinking(question):
    current_trace().thought(question)
    return "42"
