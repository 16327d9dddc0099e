import gzip
import json
import select
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx2
import pytest

from kp_middleware import ReasoningTrace, Step
from kp_middleware.testing import Answer, Fault, LocalRegistry


def trace_of(objective="add 1 and 2", **options):
    return ReasoningTrace.of(objective, [Step(step_id=0, type="thought", content="3")], **options)


def post(registry, body, key=None, timeout=5, **headers):
    authorization = f"Bearer {key or registry.api_key}"
    return httpx2.post(
        f"{registry.url}/v1/knowledge",
        content=body,
        headers={"Authorization": authorization, **headers},
        trust_env=False,
        timeout=timeout,
    )


def post_times(registry, times):
    return [post(registry, b"{}").status_code for _ in range(times)]


def post_trace(registry, trace, **headers):
    return post(registry, trace.model_dump_json().encode(), **headers)


def connection_to(registry):
    url = httpx2.URL(registry.url)
    return socket.create_connection((url.host, url.port), timeout=10)


def wait_until(is_so):
    deadline = time.monotonic() + 10
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.001)


def search(registry, **asked):
    found = httpx2.get(f"{registry.url}/v1/knowledge", params=asked, trust_env=False)
    return found.json()


@pytest.fixture
def registry(clock):
    with LocalRegistry(clock=clock) as registry:
        yield registry


def test_a_document_is_stored_and_described_and_the_same_id_again_overwrites(registry):
    trace = trace_of()

    answer = post_trace(registry, trace)

    assert answer.status_code == 201
    assert answer.headers["x-ratelimit-limit"] == "30"
    assert answer.headers["x-ratelimit-remaining"] == "29"
    assert answer.json()["data"]["id"] == trace.id
    assert set(answer.json()["data"]) == {"id", "unit", "visibility", "created_at", "updated_at"}
    assert registry.documents == {trace.id: trace}

    post_trace(registry, trace.model_copy(update={"source_skill": "sums"}))

    assert [stored.source_skill for stored in registry.documents.values()] == ["sums"]
    assert registry.times_stored == registry.times_received == {trace.id: 2}
    assert registry.most_at_once == 1


def test_a_document_of_the_wrong_shape_is_refused_with_the_path_of_each_issue(registry):
    document = json.loads(trace_of().model_dump_json())
    document["steps"][0] = {"step_id": 0, "type": "guess", "content": None}

    answer = post(registry, json.dumps(document).encode())

    assert answer.status_code == 400
    assert answer.json()["error"] == "Invalid KnowledgeUnit"
    assert {issue["path"] for issue in answer.json()["issues"]} == {
        "steps.0.type",
        "steps.0.content",
    }


@pytest.mark.parametrize(
    ("body", "status"),
    [
        *((body, 500) for body in (b"", b"{", b'{"a": NaN}', b"\xff", gzip.compress(b"{}"))),
        *((body, 400) for body in (b"[]", b"null", b'"text"')),
    ],
    ids=["nothing", "half", "NaN", "noise", "gzip", "a list", "null", "a text"],
)
def test_what_is_not_json_is_trouble_in_plain_text_and_other_json_of_the_wrong_shape(
    registry, body, status
):
    answer = post(registry, body)

    assert answer.status_code == status
    assert (answer.headers["content-type"] == "text/plain") == (status == 500)


def test_a_key_without_the_scope_or_an_unknown_one_is_reported_before_its_document_is_read():
    with LocalRegistry(may_write=False) as registry:
        without_scope = post(registry, b"{")
        unknown = post(registry, b"{}", key="kp_unknown")

    assert (without_scope.status_code, without_scope.json()) == (
        403,
        {"error": "Write scope required"},
    )
    assert (unknown.status_code, unknown.headers["x-ratelimit-limit"]) == (429, "0")


def test_after_a_burst_it_asks_for_patience_and_allows_one_more_as_time_goes_by(clock):
    with LocalRegistry(burst=2, refill_s=2.0, clock=clock) as registry:
        first = post_times(registry, 2)
        answer = post(registry, b"{}")
        clock.advance(2.0)
        second = post_times(registry, 2)

    assert (first, second) == ([400, 400], [400, 429])
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "2")
    assert answer.json() == {"error": "Rate limit exceeded", "retry_after": 2}


def test_a_third_429_within_an_hour_and_no_other_revokes_the_key(clock):
    with LocalRegistry(burst=0, clock=clock) as registry:
        post_times(registry, 2)
        clock.advance(3600.0)
        post_times(registry, 2)
        alive = not registry.revoked
        post_times(registry, 1)
        answer = post(registry, b"{}")

    assert alive
    assert registry.revoked
    assert answer.headers["x-ratelimit-limit"] == "0"


@pytest.mark.parametrize(
    ("replays", "first", "status"),
    [(True, b"{}", 400), (True, b"{", 201), (False, b"{}", 201)],
    ids=["known", "trouble", "no replays"],
)
def test_a_known_idempotency_key_gets_its_old_answer_whatever_the_body(replays, first, status):
    with LocalRegistry(replays=replays) as registry:
        post(registry, first, **{"Idempotency-Key": "k-1"})
        again = post_trace(registry, trace_of(), **{"Idempotency-Key": "k-1"})
        another = post_trace(registry, trace_of(), **{"Idempotency-Key": "k-2"})

    assert (again.status_code, another.status_code) == (status, 201)


def test_scripted_answers_come_in_order_and_then_it_is_itself_again():
    script = [500, 413, 403, 400, 429, 502, 503, 201, Answer(418, b"tea", {"X-Pot": "1"})]
    with LocalRegistry(answers=script) as registry:
        answers = [post(registry, b"{}") for _ in range(10)]

    statuses = [answer.status_code for answer in answers]
    assert statuses == [500, 413, 403, 400, 429, 502, 503, 400, 418, 400]
    assert [answer.headers["content-type"] for answer in answers[5:7]] == ["text/html"] * 2


@pytest.mark.parametrize(
    ("fault", "error", "stored"),
    [
        (Fault.HANG, httpx2.ReadTimeout, 0),
        (Fault.RESET, httpx2.ReadError, 0),
        (Fault.HANG_UP, httpx2.RemoteProtocolError, 0),
        (Fault.CUT, httpx2.RemoteProtocolError, 0),
        (Fault.STORE_AND_HANG, httpx2.ReadTimeout, 1),
        (Fault.STORE_AND_RESET, httpx2.ReadError, 1),
        (Fault.STORE_AND_CUT, httpx2.RemoteProtocolError, 1),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_with_a_fault_it_gives_no_answer(fault, error, stored):
    trace = trace_of()
    with LocalRegistry(answers=[fault]) as registry:
        with pytest.raises(error):
            post_trace(registry, trace, timeout=1)

        assert registry.times_stored.get(trace.id, 0) == len(registry.documents) == stored
        assert registry.times_received == {trace.id: 1}


@pytest.mark.parametrize(
    ("fault", "status", "words", "stored"),
    [
        (Fault.NONSENSE, 201, "<html>", 0),
        (Fault.NO_REPUTATION, 403, "KP-REP", 0),
        (Fault.DEAD_KEY, 429, "Rate limit", 0),
        (Fault.DRIP, 201, "kp:trace:", 1),
        (Fault.CLOSE_IDLE, 201, "kp:trace:", 1),
        (Fault.STORE_AND_FAIL, 500, "Internal", 1),
        (Fault.STORE_AND_BABBLE, 201, "<html>", 1),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_with_another_fault_its_answer_says_little_of_what_it_did(fault, status, words, stored):
    with LocalRegistry(answers=[fault]) as registry:
        answer = post_trace(registry, trace_of(), timeout=30)

    assert (answer.status_code, len(registry.documents)) == (status, stored)
    assert words in answer.text


def ask_for_nothing(registry):
    """A connection of our own on which this was asked."""
    connection = connection_to(registry)
    connection.sendall(b"POST /v1/knowledge HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
    return connection


def test_an_answer_that_crawls_lets_no_byte_be_waited_for_long():
    with (
        LocalRegistry(answers=[Fault.CRAWL]) as registry,
        ask_for_nothing(registry) as connection,
    ):
        begun = b"".join(connection.recv(1) for _ in range(12))

        assert begun == b"HTTP/1.1 429"
        assert select.select([connection], [], [], 0)[0] == []


def test_a_connection_that_is_closed_while_idle_is_not_announced():
    with (
        LocalRegistry(answers=[Fault.CLOSE_IDLE]) as registry,
        ask_for_nothing(registry) as connection,
    ):
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))

    assert b"Rate limit exceeded" in answer
    assert b"Connection:" not in answer


def test_what_hangs_ends_with_it():
    with LocalRegistry(answers=[Fault.HANG]) as registry, ThreadPoolExecutor() as pool:
        answer = pool.submit(post_trace, registry, trace_of(), timeout=30)
        wait_until(lambda: registry.requests)
        registry.__exit__(None, None, None)

        with pytest.raises(httpx2.HTTPError):
            answer.result()


def test_mixed_faults_are_the_same_for_a_seed():
    weights = {None: 2, 503: 1, Fault.RESET: 1}
    one, other = Fault.mixed(weights, seed=7), Fault.mixed(weights, seed=7)

    faults = [one(None) for _ in range(100)]

    assert faults == [other(None) for _ in range(100)]
    assert set(faults) == {None, 503, Fault.RESET}


def test_many_may_ask_at_once_and_a_function_may_decide_by_the_request():
    traces = [trace_of(objective) for objective in ["refused", *["stored"] * 7]]

    def wait_for_all_and_refuse_one(request):
        wait_until(lambda: registry.most_at_once == 8)
        return 500 if b"refused" in request.body else None  # no id has these letters

    with (
        LocalRegistry(answers=wait_for_all_and_refuse_one) as registry,
        ThreadPoolExecutor(max_workers=8) as pool,
    ):
        answers = [*pool.map(partial(post_trace, registry), traces)]

        assert [answer.status_code for answer in answers] == [500, *[201] * 7]
        assert (registry.most_at_once, len(registry.documents)) == (8, 7)


def test_who_is_gone_before_all_is_said_has_asked_nothing(registry):
    with connection_to(registry) as connection:
        connection.sendall(b"POST /v1/knowledge HTTP/1.1\r\nContent-Length: 9\r\n\r\n{")
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(65_536)

    assert answer == b""
    assert registry.requests == ()


def test_all_that_is_stored_is_listed_and_nothing_is_elsewhere(registry):
    traces = [trace_of(objective) for objective in ("add 1 and 2", "add 3 and 4")]
    for trace in traces:
        post_trace(registry, trace)

    found = search(registry)

    assert (found["total"], [one["id"] for one in found["data"]]) == (2, [one.id for one in traces])
    elsewhere = httpx2.get(f"{registry.url}/elsewhere", trust_env=False)
    assert elsewhere.status_code == 404


def test_it_ends_while_a_client_holds_its_connection_open_and_then_nobody_is_at_home():
    with LocalRegistry() as registry, httpx2.Client(trust_env=False) as client:
        url = f"{registry.url}/v1/knowledge"
        client.get(url)
        registry.__exit__(None, None, None)

        with pytest.raises(httpx2.ConnectError):
            client.get(url)
    with pytest.raises(RuntimeError, match="with statement"):
        print(registry.url)
