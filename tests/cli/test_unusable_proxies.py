"""A proxy variable that makes no sense is told, and its password is not."""

import json

import pytest

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
def test_a_proxy_that_cannot_be_used_is_reported_with_its_variable_and_the_row_waits(
    record, type_command, variable, monkeypatch, caplog
):
    monkeypatch.setenv("KP_EMBEDDER", "none")
    monkeypatch.setenv("KP_REGISTRY_URL", URL)
    monkeypatch.setenv("KP_API_KEY", "kp_" + "0" * 64)

    record("six times seven", flush_s=1)
    listed = type_command("outbox", "list", "--json").stdout
    status = type_command("status", "--json").stdout
    doctor = type_command("doctor", "--json")

    assert [row["state"] for row in json.loads(listed)] == ["pending"]
    (found,) = [one for one in json.loads(doctor.stdout) if one["check"] == "registry"]
    assert not found["ok"]
    assert f"correct or unset {variable}" in found["detail"]
    assert f"correct or unset {variable}" in status
    assert "Traceback" not in caplog.text
    assert PASSWORD not in caplog.text + status + listed + doctor.output
