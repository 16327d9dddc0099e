import asyncio
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from kp_middleware.web.server import Guard

HOST = "127.0.0.1:8001"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str


@pytest.fixture
def guard():
    return Guard(_page, port=8001, first_page="/-/kp/kp")


async def _page(scope, _, send):
    if scope["type"] == "http":
        plain = [(b"content-type", b"text/plain")]
        await send({"type": "http.response.start", "status": 200, "headers": plain})
        await send({"type": "http.response.body", "body": b"the page"})
    else:
        await send({"type": "the page"})


def sent(guard, scope):
    """Return the messages that answer this request."""
    messages = []

    async def send(message):
        messages.append(message)

    async def receive():
        return {"type": "http.disconnect"}

    asyncio.run(guard(scope, receive, send))
    return messages


def ask(guard, url="/any", *, method="GET", **headers):
    parts = urlsplit(url)
    given = {"host": HOST, **headers}
    start, body = sent(
        guard,
        {
            "type": "http",
            "method": method,
            "path": parts.path,
            "query_string": parts.query.encode(),
            "headers": [(name.encode(), text.encode()) for name, text in given.items()],
        },
    )
    told = {name.decode(): text.decode() for name, text in start["headers"]}
    return Answer(start["status"], told, body["body"].decode())


def cookie(guard, host=HOST):
    """Return the cookie of a browser that opened the link."""
    return ask(guard, guard.link, host=host).headers["set-cookie"].partition(";")[0]


def test_who_has_the_link_sees_the_page_and_is_led_to_the_first_one(guard):
    opened = ask(guard, guard.link)
    attributes = opened.headers["set-cookie"].split("; ")
    home = ask(guard, "/", cookie=attributes[0])
    page = ask(guard, cookie=attributes[0])

    assert guard.link.startswith(f"http://{HOST}/")
    assert opened.status == 200
    assert 'content="0; url=/-/kp/kp"' in opened.text
    assert attributes[1:] == ["Path=/", "HttpOnly", "SameSite=Strict"]
    assert (home.status, home.headers["location"]) == (302, "/-/kp/kp")
    # it may fetch nothing from elsewhere, and tells nobody where it was
    assert page.text == "the page"
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert page.headers["referrer-policy"] == "no-referrer"
    assert page.headers["content-type"] == "text/plain"


def test_who_has_not_opened_the_link_sees_nothing(guard):
    answer = ask(guard)

    assert answer.status == 403
    assert "the link that kp-middleware ui printed" in answer.text


@pytest.mark.parametrize(
    "shown",
    ["kp-ui-8001=", "kp-ui-8001=wrong", "kp-ui-8001=\u00fc", "kp-ui-8002={0}", "={0}", "{0}"],
)
def test_another_cookie_opens_nothing(guard, shown):
    value = cookie(guard).partition("=")[2]

    assert ask(guard, cookie=shown.format(value)).status == 403


def test_the_link_works_once_but_for_the_browser_that_opened_it(guard):
    shown = cookie(guard)

    again, empty = ask(guard, guard.link), ask(guard, "/-/kp-open")
    followed = ask(guard, guard.link, cookie=shown)

    assert (again.status, empty.status, followed.status) == (403, 403, 200)
    assert "kp-middleware ui" in again.text
    assert "set-cookie" not in again.headers
    assert "set-cookie" not in followed.headers


@pytest.mark.parametrize("query", ["", "?once=", "?once=wrong", "?once=%C3%BC", "?other=1"])
def test_another_link_opens_nothing_and_does_not_use_up_the_right_one(guard, query):
    assert ask(guard, f"/-/kp-open{query}").status == 403
    assert ask(guard, guard.link, method="HEAD").status == 403
    assert ask(guard, guard.link).status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8001", "127.0.0.1", "127.0.0.1:80", "127.0.0.1:8001.evil", ""],
)
def test_a_name_of_somebody_else_is_refused_even_with_the_cookie(guard, host):
    shown = cookie(guard)

    refused = ask(guard, host=host, cookie=shown)
    assert refused.status == 421
    assert "ssh -L 8001:127.0.0.1:8001" in refused.text
    assert ask(guard, guard.link, host=host).status == 421


@pytest.mark.parametrize("host", ["127.0.0.1:8001", "localhost:8001", "LOCALHOST:8001"])
def test_this_machine_may_be_called_by_its_names_beside_cookies_of_other_programs(guard, host):
    cookies = f'a[b]=1; {{"c": "d"}}; e="f; {cookie(guard)}; g'

    assert ask(guard, host=host, cookie=cookies).status == 200


def test_two_on_one_machine_have_cookies_of_their_own(guard):
    other = Guard(_page, port=8002, first_page="/")
    both = f"{cookie(guard)}; {cookie(other, host='127.0.0.1:8002')}"

    assert ask(guard, cookie=both).status == 200
    assert ask(other, host="127.0.0.1:8002", cookie=both).status == 200


def test_what_the_server_says_to_itself_gets_through_and_another_protocol_gets_no_answer(guard):
    assert sent(guard, {"type": "lifespan"}) == [{"type": "the page"}]
    assert sent(guard, {"type": "websocket"}) == []
