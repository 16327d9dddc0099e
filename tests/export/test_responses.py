import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kp_middleware.errors import (
    RegistryForbiddenError,
    RegistryRejectedError,
    RegistryUnavailableError,
)
from kp_middleware.export._responses import Answer, receipt_of, wait_asked_s
from kp_middleware.outbox_items import Receipt


def saying(status, document, **headers):
    return Answer(status, headers, json.dumps(document).encode())


def error_of(answer, kind):
    with pytest.raises(kind) as caught:
        receipt_of(answer)
    return caught.value


def test_a_document_that_was_stored_brings_its_id():
    answer = saying(201, {"data": {"id": "kp:trace:1", "unit": {}}, "quality_score": 0.8})

    receipt = receipt_of(answer)

    assert receipt == Receipt(remote_id="kp:trace:1", status=201)


def test_a_document_of_the_wrong_shape_is_rejected_with_every_issue():
    issues = [
        {"path": "steps.0.type", "message": "Invalid enum value"},
        {"path": "id", "message": "Required"},
    ]

    error = error_of(saying(400, {"error": "Invalid", "issues": issues}), RegistryRejectedError)

    assert error.status == 400
    assert error.reason == "Invalid: steps.0.type: Invalid enum value; id: Required"


@pytest.mark.parametrize("body", [b"", b"<html>"], ids=["empty", "a proxy's page"])
def test_a_document_that_is_too_large_is_rejected_whoever_says_so(body):
    error = error_of(Answer(413, {}, body), RegistryRejectedError)

    assert (error.status, error.reason) == (413, "the document is too large")


def test_an_endless_complaint_is_cut():
    error = error_of(saying(400, {"error": "no " * 2000}), RegistryRejectedError)

    assert len(error.reason) == 2000


def test_a_complaint_cannot_steer_a_terminal():
    error = error_of(saying(400, {"error": "no,\r\n\x1b[31m never"}), RegistryRejectedError)

    assert error.reason == "no, [31m never"


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_may_not_write_needs_the_user(status):
    error = error_of(saying(status, {"error": "Write scope required"}), RegistryForbiddenError)

    assert error.status == status
    assert str(error).startswith(error.problem.what)
    assert "KP_API_KEY" in error.remedy


def test_a_429_with_a_limit_of_none_means_the_key_is_dead():
    answer = Answer(429, {"X-RateLimit-Limit": "0", "Retry-After": "60"}, b"")

    error = error_of(answer, RegistryForbiddenError)

    assert error.status == 429
    assert "KP_API_KEY" in error.remedy


@pytest.mark.parametrize("limit", [{"X-RateLimit-Limit": "30"}, {}], ids=["its", "a proxy's"])
def test_any_other_429_asks_for_patience(limit):
    error = error_of(Answer(429, {"Retry-After": "2", **limit}, b""), RegistryUnavailableError)

    assert (error.status, error.retry_after_s) == (429, 2.0)


@pytest.mark.parametrize("status", [200, 204, 302, 404, 408, 422, 500, 502, 503, 504, 599])
def test_any_other_status_is_worth_another_try(status):
    error = error_of(Answer(status, {}, b""), RegistryUnavailableError)

    assert (error.status, error.retry_after_s) == (status, None)


def test_a_registry_in_trouble_may_ask_for_patience():
    error = error_of(Answer(503, {"Retry-After": "90"}, b""), RegistryUnavailableError)

    assert (error.status, error.retry_after_s) == (503, 90.0)


@pytest.mark.parametrize("status", [201, 400, 401, 403])
@pytest.mark.parametrize(
    "body",
    [b"", b"<html>Sign in to the guest network</html>", b"[]", b'{"data":{"id":7}}', b"\xff\x00"],
    ids=["nothing", "a page", "a list", "an id that is none", "noise"],
)
def test_words_that_are_not_the_registrys_are_worth_another_try(status, body):
    error = error_of(Answer(status, {}, body), RegistryUnavailableError)

    assert error.status == status


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "0"}, 0.0),
        ({"Retry-After": "1.5"}, 1.5),
        (
            {
                "Retry-After": "Sun, 01 Nov 2026 10:00:30 GMT",
                "Date": "Sun, 01 Nov 2026 10:00:00 GMT",
            },
            30.0,
        ),
        ({"Retry-After": "Sun, 01 Nov 2026 10:00:30 GMT"}, 60.0),
        (
            {
                "Retry-After": "Sun, 01 Nov 2026 10:00:00 GMT",
                "Date": "Sun, 01 Nov 2026 11:00:00 GMT",
            },
            60.0,
        ),
        ({}, 60.0),
        ({"Retry-After": ""}, 60.0),
        ({"Retry-After": "-5"}, 60.0),
        ({"Retry-After": "nan"}, 60.0),
        ({"Retry-After": "inf"}, 60.0),
        ({"Retry-After": "in a while"}, 60.0),
        ({"Retry-After": "1" * 5000}, 60.0),
        ({"Retry-After": "999999999"}, 86_400.0),
    ],
    ids=[
        "seconds",
        "at once",
        "a fraction",
        "a date",
        "a date without a Date",
        "a date in the past",
        "missing",
        "empty",
        "negative",
        "not a number",
        "for ever",
        "words",
        "thousands of digits",
        "years",
    ],
)
def test_the_wait_is_what_the_registry_asks_for_if_it_makes_sense(headers, wait_s):
    asked_s = wait_asked_s(headers)

    assert asked_s == wait_s


@given(st.text(), st.text())
def test_any_wait_is_from_none_to_a_day(retry_after, date):
    assert 0 <= wait_asked_s({"Retry-After": retry_after, "Date": date}) <= 86_400
