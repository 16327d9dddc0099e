import logging
import socket
import traceback
from contextlib import contextmanager

import pytest
from pydantic import SecretStr

from kp_middleware import ReasoningTrace, Step
from kp_middleware.errors import RegistryError, RegistryUnavailableError
from kp_middleware.export import OutboxItem, Receipt, Registry, payload
from kp_middleware.rate_limit import Allowance
from kp_middleware.testing import Answer, LocalRegistry

KEY = "kp_0123456789abcdef"
TRACE = ReasoningTrace.of("add 1 and 2", [Step(step_id=0, type="thought", content="3")])
ITEM = OutboxItem(trace_seq=7, body=payload(TRACE, score=0.8, agent_id=None), idempotency_key="k-1")


@contextmanager
def registry_at(url, key=KEY):
    registry = Registry(url, SecretStr(key))
    yield registry
    registry.close()


def error_of(url, key=KEY):
    with registry_at(url, key) as registry, pytest.raises(RegistryError) as caught:
        registry.export(ITEM)
    return caught.value


@pytest.fixture
def local():
    with LocalRegistry() as local:
        yield local


@pytest.fixture
def registry(local):
    with registry_at(local.url, local.api_key) as registry:
        yield registry


def test_exactly_the_given_bytes_are_posted_and_what_is_taken_brings_a_receipt(
    registry, local, caplog
):
    caplog.set_level(logging.DEBUG)

    receipt = registry.export(ITEM)

    assert receipt == Receipt(TRACE.id, 201, Allowance(per_minute=30, remaining=29))
    (request,) = local.requests
    assert (request.method, request.path, request.body) == ("POST", "/v1/knowledge", ITEM.body)
    assert request.headers["authorization"] == f"Bearer {local.api_key}"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["idempotency-key"] == "k-1"
    assert request.headers["user-agent"].startswith("kp-middleware/")
    assert caplog.records
    assert local.api_key not in caplog.text


def test_a_path_in_the_url_is_kept(local):
    error_of(f"{local.url}/behind/a/proxy/?x=1#y")

    assert local.requests[0].path == "/behind/a/proxy/v1/knowledge"


def test_a_limit_of_nothing_is_no_limit():
    headers = {"X-RateLimit-Limit": "0", "X-RateLimit-Remaining": "-1"}
    answer = Answer(201, b'{"data":{"id":"x"}}', headers)

    with LocalRegistry(answers=[answer]) as local, registry_at(local.url, local.api_key) as at:
        assert at.export(ITEM).allowance == Allowance()


@pytest.mark.parametrize("status", [400, 403, 429, 500])
def test_nothing_is_tried_twice(status):
    with LocalRegistry(answers=[status]) as local:
        error_of(local.url, local.api_key)

    assert len(local.requests) == 1


def test_a_redirect_is_not_followed(local):
    elsewhere = Answer(307, headers={"Location": f"{local.url}/v1/knowledge"})

    with LocalRegistry(answers=[elsewhere]) as moved:
        error = error_of(moved.url, moved.api_key)

    assert error.status == 307
    assert local.requests == ()


def test_a_key_that_a_redirect_repeats_is_in_no_error_and_its_headers_need_not_be_ascii():
    headers = {"Location": f"https://{KEY}.at", "Server": "München"}
    with LocalRegistry(answers=[Answer(302, headers=headers)]) as moved:
        error = error_of(moved.url)

    assert str(error).startswith("the server redirects (302, to https://***.at)")


def test_a_registry_on_this_machine_is_not_asked_through_a_proxy_nor_after_it_was_closed(
    registry, monkeypatch
):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")

    receipt = registry.export(ITEM)
    registry.close()
    again = registry.export(ITEM)

    assert (receipt.status, again.status) == (201, 201)


def test_reaching_a_registry_posts_nothing_and_shows_no_key(registry, local):
    registry.reach()

    assert [request.method for request in local.requests] == ["GET"]
    assert "authorization" not in local.requests[0].headers


@pytest.mark.parametrize(
    "url",
    [
        "https://registry.openknowledgepulse.org",
        "https://registry.example:8443/prefix",
        "http://localhost:3000",
        "http://127.0.0.1:3000",
        "http://127.8.8.8",
        "http://[::1]:3000",
    ],
)
def test_a_url_is_safe_if_nobody_can_listen(url):
    assert Registry(url, SecretStr(KEY)).url == url


@pytest.mark.parametrize(
    "url",
    [
        "http://registry.openknowledgepulse.org",
        "http://10.0.0.1",
        "http://0.0.0.0",
        "http://localhost.example.com",
        "http://127.0.0.1.example.com",
        "http://[::2]",
        "ftp://localhost",
        "//localhost",
        "localhost:3000",
        "registry.openknowledgepulse.org",
        "https://",
        "https://[::1",
        "",
    ],
)
def test_any_other_url_is_refused(url):
    with pytest.raises(ValueError, match="registry's URL"):
        Registry(url, SecretStr(KEY))


def test_a_password_in_the_url_is_refused_and_not_repeated():
    with pytest.raises(ValueError, match="user name or password") as caught:
        Registry("https://me:hunter2@registry.example", SecretStr(KEY))

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("key", ["", " ", "kp_1\n", "kp_1 kp_2", "kp_\x00", "kp_ü"], ids=ascii)
def test_a_key_that_fits_no_header_is_refused(key):
    with pytest.raises(ValueError, match="printable ASCII"):
        Registry("https://registry.example", SecretStr(key))


def test_nothing_is_opened_before_it_is_needed_and_its_words_are_without_its_key():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        registry = Registry(url, SecretStr(KEY), agent_id="agent-7")
        registry.close()

        with pytest.raises(TimeoutError):
            server.accept()
    assert repr(registry) == f"Registry('{url}', agent_id='agent-7')"


@pytest.mark.parametrize("status", [201, 400, 401, 403, 413, 429, 500])
def test_a_key_that_the_registry_repeats_is_in_no_error_and_no_log(status, caplog):
    def repeat_the_key(request):
        return Answer.of(status, {"error": f"what is {request.headers['authorization']}?"})

    caplog.set_level(logging.DEBUG)

    with LocalRegistry(answers=repeat_the_key) as local:
        error = error_of(local.url, KEY)

    assert KEY not in "".join(traceback.format_exception(error))
    assert KEY not in repr(vars(error))
    assert KEY not in caplog.text


def test_a_proxy_that_cannot_be_used_is_trouble_in_words(monkeypatch):
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1")
    registry = Registry("https://registry.example", SecretStr("kp_" + "0" * 64))

    with pytest.raises(RegistryUnavailableError, match="the proxy in ALL_PROXY cannot be used"):
        registry.reach()
