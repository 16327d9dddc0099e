import json
import logging
import socket
import traceback
from contextlib import contextmanager

import pytest
from pydantic import SecretStr

from kp_middleware.errors import RegistryError, RegistryForbiddenError, RegistryUnavailableError
from kp_middleware.export import Registry, payload
from kp_middleware.outbox_items import OutboxItem, Receipt
from kp_middleware.rate_limit import Allowance
from kp_middleware.testing import Answer, LocalRegistry
from kp_middleware.traces import ReasoningTrace, Step

KEY = "kp_0123456789abcdef"
TRACE = ReasoningTrace.of("add 1 and 2", [Step(step_id=0, type="thought", content="3")])
ITEM = OutboxItem(trace_seq=7, body=payload(TRACE, score=0.8, agent_id=None), idempotency_key="k-1")


@contextmanager
def registry_at(url, key=KEY):
    registry = Registry(url, SecretStr(key))
    yield registry
    registry.close()


def error_of(url, key=KEY, item=ITEM):
    with registry_at(url, key) as registry, pytest.raises(RegistryError) as caught:
        registry.export(item)
    return caught.value


@pytest.fixture
def local():
    with LocalRegistry() as local:
        yield local


@pytest.fixture
def registry(local):
    with registry_at(local.url, local.api_key) as registry:
        yield registry


def test_a_document_that_is_taken_brings_a_receipt(registry):
    receipt = registry.export(ITEM)

    assert receipt == Receipt(TRACE.id, 201, Allowance(per_minute=30, remaining=29))


def test_exactly_the_given_bytes_are_posted(registry, local):
    registry.export(ITEM)

    assert [(sent.method, sent.path, sent.body) for sent in local.requests] == [
        ("POST", "/v1/knowledge", ITEM.body)
    ]


def test_a_document_goes_with_its_key_its_type_and_its_name(registry, local):
    registry.export(ITEM)

    headers = local.requests[0].headers
    assert headers["authorization"] == f"Bearer {local.api_key}"
    assert headers["content-type"] == "application/json"
    assert headers["idempotency-key"] == "k-1"
    assert headers["user-agent"].startswith("kp-middleware/")


def test_a_path_in_the_url_is_kept(local):
    error_of(f"{local.url}/behind/a/proxy/?x=1#y")

    assert local.requests[0].path == "/behind/a/proxy/v1/knowledge"


def test_a_document_of_the_wrong_shape_is_rejected_with_its_issues(local):
    document = json.loads(ITEM.body)
    document["steps"][0]["type"] = "guess"

    error = error_of(local.url, local.api_key, OutboxItem(7, json.dumps(document).encode(), "k-2"))

    assert error.status == 400
    assert error.reason.startswith("Invalid KnowledgeUnit: steps.0.type: ")


def test_an_unknown_key_needs_the_user(local):
    error = error_of(local.url, "kp_unknown")

    assert isinstance(error, RegistryForbiddenError)


def test_over_the_rate_limit_it_says_how_long_to_wait():
    with LocalRegistry(burst=0) as local:
        error = error_of(local.url, local.api_key)

    assert isinstance(error, RegistryUnavailableError)
    assert (error.status, error.retry_after_s) == (429, 2.0)


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


def test_a_registry_on_this_machine_is_not_asked_through_a_proxy(registry, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")

    receipt = registry.export(ITEM)

    assert receipt.status == 201


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


def test_a_registry_says_where_and_whose_it_is_but_not_its_key():
    registry = Registry("https://registry.example", SecretStr(KEY), agent_id="agent-7")

    assert repr(registry) == "Registry('https://registry.example', agent_id='agent-7')"


def test_nothing_is_opened_before_it_is_needed():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        registry = Registry(f"http://127.0.0.1:{server.getsockname()[1]}", SecretStr(KEY))
        registry.close()

        with pytest.raises(TimeoutError):
            server.accept()


def test_after_closing_it_can_be_used_again(registry):
    registry.export(ITEM)
    registry.close()

    receipt = registry.export(ITEM)

    assert receipt.status == 201


def echo(request, status):
    return Answer.of(status, {"error": f"what is {request.headers['authorization']}?"})


def test_the_key_is_in_no_log(registry, local, caplog):
    caplog.set_level(logging.DEBUG)

    registry.export(ITEM)

    assert caplog.records
    assert local.api_key not in caplog.text


@pytest.mark.parametrize("status", [201, 400, 401, 403, 413, 429, 500])
def test_a_key_that_the_registry_repeats_is_in_no_error_and_no_log(status, caplog):
    caplog.set_level(logging.DEBUG)

    with LocalRegistry(answers=lambda request: echo(request, status)) as local:
        error = error_of(local.url, KEY)

    assert KEY not in "".join(traceback.format_exception(error))
    assert KEY not in repr(vars(error))
    assert KEY not in caplog.text


def test_a_proxy_that_cannot_be_used_is_trouble_in_words(monkeypatch):
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1")
    registry = Registry("https://registry.example", SecretStr("kp_" + "0" * 64))

    with pytest.raises(RegistryUnavailableError, match="the proxy in ALL_PROXY cannot be used"):
        registry.reach()
