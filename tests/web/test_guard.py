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
    """What is sent in answer to this."""
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
    """What a browser that opened the link shows from then on."""
    return ask(guard, guard.link, host=host).headers["set-cookie"].partition(";")[0]


def test_who_has_the_link_sees_the_page(guard):
    shown = cookie(guard)

    assert ask(guard, cookie=shown).text == "the page"


def test_the_link_leads_to_the_first_page(guard):
    opened = ask(guard, guard.link)

    assert opened.status == 200
    assert 'content="0; url=/-/kp/kp"' in opened.text
    assert guard.link.startswith(f"http://{HOST}/")


def test_the_first_page_of_datasette_leads_there_too(guard):
    home = ask(guard, "/", cookie=cookie(guard))

    assert (home.status, home.headers["location"]) == (302, "/-/kp/kp")


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


def test_cookies_of_other_programs_on_this_machine_do_not_matter(guard):
    shown = cookie(guard)

    assert ask(guard, cookie=f'a[b]=1; {{"c": "d"}}; e="f; {shown}; g').status == 200


def test_the_link_works_once(guard):
    ask(guard, guard.link)

    again = ask(guard, guard.link)

    assert again.status == 403
    assert "kp-middleware ui" in again.text
    assert "set-cookie" not in again.headers


def test_a_link_that_was_used_is_not_replaced_by_an_empty_one(guard):
    ask(guard, guard.link)

    assert ask(guard, "/-/kp-open").status == 403


def test_the_browser_that_opened_the_link_may_follow_it_again(guard):
    shown = cookie(guard)

    again = ask(guard, guard.link, cookie=shown)

    assert again.status == 200
    assert "set-cookie" not in again.headers


@pytest.mark.parametrize("query", ["", "?once=", "?once=wrong", "?once=%C3%BC", "?other=1"])
def test_another_link_opens_nothing_and_does_not_use_up_the_right_one(guard, query):
    refused = ask(guard, f"/-/kp-open{query}")

    assert refused.status == 403
    assert ask(guard, guard.link).status == 200


def test_who_only_asks_what_the_link_is_does_not_use_it_up(guard):
    assert ask(guard, guard.link, method="HEAD").status == 403
    assert ask(guard, guard.link).status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8001", "127.0.0.1", "127.0.0.1:80", "127.0.0.1:8001.evil", ""],
)
def test_a_name_of_somebody_else_is_refused_even_with_the_cookie(guard, host):
    shown = cookie(guard)

    assert ask(guard, host=host, cookie=shown).status == 421
    assert ask(guard, guard.link, host=host).status == 421


def test_who_comes_by_another_port_is_told_how_to_come(guard):
    assert "ssh -L 8001:127.0.0.1:8001" in ask(guard, host="localhost:9001").text


@pytest.mark.parametrize("host", ["127.0.0.1:8001", "localhost:8001", "LOCALHOST:8001"])
def test_this_machine_may_be_called_by_its_names(guard, host):
    assert ask(guard, host=host, cookie=cookie(guard)).status == 200


def test_the_cookie_is_for_this_page_alone(guard):
    attributes = ask(guard, guard.link).headers["set-cookie"].split("; ")[1:]

    assert attributes == ["Path=/", "HttpOnly", "SameSite=Strict"]


def test_two_on_one_machine_have_cookies_of_their_own(guard):
    other = Guard(_page, port=8002, first_page="/")
    both = f"{cookie(guard)}; {cookie(other, host='127.0.0.1:8002')}"

    assert ask(guard, cookie=both).status == 200
    assert ask(other, host="127.0.0.1:8002", cookie=both).status == 200


def test_the_page_may_fetch_nothing_from_elsewhere_and_tells_nobody_where_it_was(guard):
    headers = ask(guard, cookie=cookie(guard)).headers

    assert "default-src 'self'" in headers["content-security-policy"]
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["content-type"] == "text/plain"


def test_what_the_server_says_to_itself_gets_through(guard):
    assert sent(guard, {"type": "lifespan"}) == [{"type": "the page"}]


@pytest.mark.parametrize("protocol", ["websocket", "carrier pigeon"])
def test_another_protocol_gets_no_answer(guard, protocol):
    assert sent(guard, {"type": protocol}) == []
