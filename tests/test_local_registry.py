import gzip
import json
import select
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx2
import pytest

from kp_middleware.testing import Answer, Fault, LocalRegistry
from kp_middleware.traces import ReasoningTrace, Step


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


def test_a_document_is_stored_and_described(registry):
    trace = trace_of()

    answer = post_trace(registry, trace)

    assert answer.status_code == 201
    assert answer.json()["data"]["id"] == trace.id
    assert set(answer.json()["data"]) == {"id", "unit", "visibility", "created_at", "updated_at"}
    assert registry.documents == {trace.id: trace}


def test_the_same_id_again_overwrites(registry):
    trace = trace_of()
    post_trace(registry, trace)

    post_trace(registry, trace.model_copy(update={"source_skill": "sums"}))

    assert [stored.source_skill for stored in registry.documents.values()] == ["sums"]


def test_what_was_received_is_kept_to_the_byte(registry):
    post(registry, b'{"not": "a trace"}  ', **{"Idempotency-Key": "k-1"})

    received = registry.requests[0]
    assert (received.method, received.path) == ("POST", "/v1/knowledge")
    assert received.headers["idempotency-key"] == "k-1"
    assert received.body == b'{"not": "a trace"}  '


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
    "body",
    [b"", b"{", b'{"a": NaN}', b"\xff", gzip.compress(b"{}")],
    ids=["nothing", "half", "NaN", "noise", "gzip"],
)
def test_what_is_not_json_is_trouble_in_plain_text(registry, body):
    answer = post(registry, body)

    assert answer.status_code == 500
    assert answer.headers["content-type"] == "text/plain"


@pytest.mark.parametrize("body", [b"[]", b"null", b'"text"'])
def test_json_of_another_kind_is_of_the_wrong_shape(registry, body):
    assert post(registry, body).status_code == 400


def test_a_key_without_the_scope_is_told_before_its_document_is_read():
    with LocalRegistry(may_write=False) as registry:
        answer = post(registry, b"{")

    assert (answer.status_code, answer.json()) == (403, {"error": "Write scope required"})


def test_an_unknown_key_has_a_limit_of_none(registry):
    answer = post(registry, b"{}", key="kp_unknown")

    assert answer.status_code == 429
    assert answer.headers["x-ratelimit-limit"] == "0"


def test_each_answer_says_how_many_are_left(registry):
    answer = post_trace(registry, trace_of())

    assert answer.headers["x-ratelimit-limit"] == "30"
    assert answer.headers["x-ratelimit-remaining"] == "29"


def test_after_a_burst_it_asks_for_patience(clock):
    with LocalRegistry(burst=2, refill_s=2.0, clock=clock) as registry:
        statuses = post_times(registry, 2)
        answer = post(registry, b"{}")

    assert statuses == [400, 400]
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "2")
    assert answer.json() == {"error": "Rate limit exceeded", "retry_after": 2}


def test_one_more_is_allowed_as_time_goes_by(clock):
    with LocalRegistry(burst=1, refill_s=2.0, clock=clock) as registry:
        first = post_times(registry, 2)
        clock.advance(2.0)
        second = post_times(registry, 2)

    assert (first, second) == ([400, 429], [400, 429])


def test_a_third_429_within_an_hour_revokes_the_key(clock):
    with LocalRegistry(burst=0, clock=clock) as registry:
        post_times(registry, 2)
        alive = not registry.revoked
        post_times(registry, 1)
        answer = post(registry, b"{}")

    assert alive
    assert registry.revoked
    assert answer.headers["x-ratelimit-limit"] == "0"


def test_two_429s_an_hour_leave_the_key_alive(clock):
    with LocalRegistry(burst=0, clock=clock) as registry:
        post_times(registry, 2)
        clock.advance(3600.0)
        post_times(registry, 2)

    assert not registry.revoked


def test_a_known_idempotency_key_gets_its_old_answer_whatever_the_body():
    with LocalRegistry(replays=True) as registry:
        refused = post(registry, b"{}", **{"Idempotency-Key": "k-1"})
        replayed = post_trace(registry, trace_of(), **{"Idempotency-Key": "k-1"})
        taken = post_trace(registry, trace_of(), **{"Idempotency-Key": "k-2"})

    assert (refused.status_code, replayed.status_code, taken.status_code) == (400, 400, 201)


def test_trouble_is_not_replayed():
    with LocalRegistry(replays=True) as registry:
        post(registry, b"{", **{"Idempotency-Key": "k-1"})
        answer = post_trace(registry, trace_of(), **{"Idempotency-Key": "k-1"})

    assert answer.status_code == 201


def test_without_replays_an_idempotency_key_means_nothing(registry):
    post(registry, b"{}", **{"Idempotency-Key": "k-1"})

    answer = post_trace(registry, trace_of(), **{"Idempotency-Key": "k-1"})

    assert answer.status_code == 201


def test_scripted_answers_come_in_order_and_then_it_is_itself_again():
    script = [500, 413, 403, 400, 429, 503, 201, Answer(418, b"tea", {"X-Pot": "1"})]
    with LocalRegistry(answers=script) as registry:
        statuses = post_times(registry, 9)

    assert statuses == [500, 413, 403, 400, 429, 503, 400, 418, 400]


def test_a_function_may_decide_by_the_request():
    with LocalRegistry(answers=lambda request: 500 if b"bad" in request.body else None) as registry:
        bad, good = post(registry, b'"bad"'), post_trace(registry, trace_of())

    assert (bad.status_code, good.status_code) == (500, 201)


@pytest.mark.parametrize(
    ("mood", "error", "stored"),
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
def test_in_a_bad_mood_it_gives_no_answer(mood, error, stored):
    trace = trace_of()
    with LocalRegistry(answers=[mood]) as registry:
        with pytest.raises(error):
            post_trace(registry, trace, timeout=0.1)

        assert registry.times_stored.get(trace.id, 0) == len(registry.documents) == stored
        assert registry.times_received == {trace.id: 1}


@pytest.mark.parametrize(
    ("mood", "status", "words", "stored"),
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
def test_in_another_mood_its_answer_says_little_of_what_it_did(mood, status, words, stored):
    with LocalRegistry(answers=[mood]) as registry:
        answer = post_trace(registry, trace_of(), timeout=30)

    assert (answer.status_code, len(registry.documents)) == (status, stored)
    assert words in answer.text


def test_an_answer_that_crawls_lets_no_byte_be_waited_for_long():
    with (
        LocalRegistry(answers=[Fault.CRAWL]) as registry,
        connection_to(registry) as connection,
    ):
        connection.sendall(b"POST /v1/knowledge HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
        begun = b"".join(connection.recv(1) for _ in range(12))

        assert begun == b"HTTP/1.1 429"
        assert select.select([connection], [], [], 0)[0] == []


def test_a_connection_that_is_closed_while_idle_is_not_announced():
    with (
        LocalRegistry(answers=[Fault.CLOSE_IDLE]) as registry,
        connection_to(registry) as connection,
    ):
        connection.sendall(b"POST /v1/knowledge HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
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


def test_a_page_of_a_proxy_stands_for_what_is_behind_it():
    with LocalRegistry(answers=[502, 503]) as registry:
        answers = [post(registry, b"{}") for _ in range(2)]

    assert [answer.status_code for answer in answers] == [502, 503]
    assert {answer.headers["content-type"] for answer in answers} == {"text/html"}


def test_mixed_faults_are_the_same_for_a_seed():
    weights = {None: 2, 503: 1, Fault.RESET: 1}
    one, other = Fault.mixed(weights, seed=7), Fault.mixed(weights, seed=7)

    faults = [one(None) for _ in range(100)]

    assert faults == [other(None) for _ in range(100)]
    assert set(faults) == {None, 503, Fault.RESET}


def test_what_is_overwritten_is_counted():
    trace = trace_of()
    with LocalRegistry(answers=[500]) as registry:
        for _ in range(3):
            post_trace(registry, trace)

        assert registry.times_stored == {trace.id: 2}
        assert registry.times_received == {trace.id: 3}


def test_how_many_ask_at_once_is_counted():
    def wait_for_a_second(_):
        wait_until(lambda: registry.most_at_once == 2)

    with LocalRegistry(answers=wait_for_a_second) as registry, ThreadPoolExecutor() as pool:
        [*pool.map(partial(post_trace, registry), [trace_of(), trace_of()])]

        assert registry.most_at_once == 2


def test_one_after_the_other_is_one_at_once(registry):
    post_times(registry, 2)

    assert registry.most_at_once == 1


def test_who_is_gone_before_all_is_said_has_asked_nothing(registry):
    with connection_to(registry) as connection:
        connection.sendall(b"POST /v1/knowledge HTTP/1.1\r\nContent-Length: 9\r\n\r\n{")
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(65_536)

    assert answer == b""
    assert registry.requests == ()


def test_an_unknown_path_is_not_found(registry):
    assert httpx2.get(f"{registry.url}/elsewhere", trust_env=False).status_code == 404


def test_a_page_says_how_much_there_is(registry):
    post_trace(registry, trace_of())
    post_trace(registry, trace_of())

    answer = search(registry, limit="1")

    assert (answer["total"], answer["offset"], answer["limit"]) == (2, 0, 1)


def test_the_next_page_has_the_rest(registry):
    for objective in ("add 1 and 2", "add 3 and 4", "add 5 and 6"):
        post_trace(registry, trace_of(objective))

    whole, rest = search(registry), search(registry, offset="1", limit="5")

    assert (rest["total"], rest["offset"]) == (3, 1)
    assert rest["data"] == whole["data"][1:]


def test_many_may_ask_at_once(registry):
    traces = [trace_of() for _ in range(20)]

    with ThreadPoolExecutor(max_workers=20) as pool:
        answers = list(pool.map(partial(post_trace, registry), traces))

    assert {answer.status_code for answer in answers} == {201}
    assert len(registry.documents) == len(registry.requests) == 20


def test_outside_of_its_with_statement_there_is_nobody_at_home():
    with LocalRegistry() as registry:
        url = registry.url

    with pytest.raises(httpx2.ConnectError):
        httpx2.get(url, trust_env=False)
    with pytest.raises(RuntimeError, match="with statement"):
        print(registry.url)


def test_it_ends_while_a_client_holds_its_connection_open():
    with LocalRegistry() as registry, httpx2.Client(trust_env=False) as client:
        url = f"{registry.url}/v1/knowledge"
        client.get(url)
        registry.__exit__(None, None, None)

        with pytest.raises(httpx2.ConnectError):
            client.get(url)
