import time
from email.utils import formatdate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from kp_middleware.errors import (
    RegistryError,
    RegistryForbiddenError,
    RegistryRejectedError,
    RegistryUnavailableError,
)
from kp_middleware.export import OutboxItem, Registry
from kp_middleware.testing import Answer, LocalRegistry

ITEM = OutboxItem(trace_seq=7, body=b"{}", idempotency_key="k-1")


def receipts(*answers):
    """The receipt for each answer to a posted document, or its error."""
    with LocalRegistry(answers=answers) as local:
        registry = Registry(local.url, SecretStr(local.api_key))
        for _ in answers:
            try:
                yield registry.export(ITEM)
            except RegistryError as error:
                yield error
        registry.close()


def error_of(answer, kind):
    (error,) = receipts(answer)
    assert isinstance(error, kind)
    return error


@pytest.mark.parametrize("status", [400, 409, 422])
def test_a_document_of_the_wrong_shape_is_rejected_with_every_issue(status):
    issues = [
        {"path": "steps.0.type", "message": "Invalid enum value"},
        {"path": "id", "message": "Required"},
    ]

    answer = Answer.of(status, {"error": "Invalid", "issues": issues})
    error = error_of(answer, RegistryRejectedError)

    assert error.status == status
    assert error.reason == "Invalid: steps.0.type: Invalid enum value; id: Required"


@pytest.mark.parametrize("body", [b"", b"<html>"], ids=["empty", "a proxy's page"])
def test_a_document_that_is_too_large_is_rejected_whoever_says_so(body):
    error = error_of(Answer(413, body), RegistryRejectedError)

    assert (error.status, error.reason) == (413, "the document is too large")


@pytest.mark.parametrize(
    ("complaint", "reason"),
    [("no " * 2000, ("no " * 2000)[:2000]), ("no,\r\n\x1b[31m never", "no, [31m never")],
    ids=["endless", "steering a terminal"],
)
def test_a_complaint_is_cut_and_harmless(complaint, reason):
    assert error_of(Answer.of(400, {"error": complaint}), RegistryRejectedError).reason == reason


@pytest.mark.parametrize(
    "answer",
    [
        Answer.of(401, {"error": "Write scope required"}),
        Answer.of(403, {"error": "Write scope required"}),
        Answer(429, headers={"X-RateLimit-Limit": "0", "Retry-After": "60"}),
    ],
    ids=["401", "403", "a limit of none"],
)
def test_a_key_that_may_not_write_needs_the_user(answer):
    error = error_of(answer, RegistryForbiddenError)

    assert error.status == answer.status
    assert str(error).startswith(error.problem.description)
    assert "KP_API_KEY" in error.remedy


@pytest.mark.parametrize(
    ("status", "headers", "retry_after_s"),
    [
        (429, {"Retry-After": "2", "X-RateLimit-Limit": "30"}, 2.0),
        (429, {"Retry-After": "2"}, 2.0),
        (503, {"Retry-After": "90"}, 90.0),
        *((status, {}, None) for status in (200, 204, 302, 404, 408, 422, 500, 502, 503, 504, 599)),
    ],
)
def test_any_other_status_is_worth_another_try(status, headers, retry_after_s):
    error = error_of(Answer(status, headers=headers), RegistryUnavailableError)

    assert (error.status, error.retry_after_s) == (status, retry_after_s)


@pytest.mark.parametrize("status", [201, 400, 401, 403])
@pytest.mark.parametrize(
    "body",
    [b"", b"<html>Sign in to the guest network</html>", b"[]", b'{"data":{"id":7}}', b"\xff\x00"],
    ids=["nothing", "a page", "a list", "an id that is none", "noise"],
)
def test_words_that_are_not_the_registrys_are_worth_another_try(status, body):
    error = error_of(Answer(status, body), RegistryUnavailableError)

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
        ({"Retry-After": "Sun, 01 Nov 2026 10:00:30 GMT", "Date": ""}, 60.0),
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
    error = error_of(Answer(429, headers=headers), RegistryUnavailableError)

    assert error.retry_after_s == wait_s


def test_a_date_without_a_date_of_the_answer_is_one_of_our_clock():
    at = formatdate(time.time() + 1000, usegmt=True)
    later = Answer(429, headers={"Retry-After": at, "Date": ""})

    assert error_of(later, RegistryUnavailableError).retry_after_s == pytest.approx(1000, abs=30)


OF_HEADERS = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=200)


@given(st.lists(st.tuples(OF_HEADERS, OF_HEADERS), min_size=1, max_size=9))
@settings(deadline=None, max_examples=20)
def test_any_wait_is_from_none_to_a_day(told):
    asked = [{"Retry-After": retry_after, "Date": date} for retry_after, date in told]

    errors = [*receipts(*(Answer(503, headers=headers) for headers in asked))]

    assert all(0 <= error.retry_after_s <= 86_400 for error in errors)
