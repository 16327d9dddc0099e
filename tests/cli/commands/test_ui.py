"""The page as a user opens it: the real command in a process of its own."""

import os
import re
import signal
import socket
import stat
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import pytest
from hand_made import put, run, step

from kp_middleware.database import connect

UI = [sys.executable, "-m", "kp_middleware"]
WITHOUT_DATASETTE = (
    "import sys; sys.modules['datasette'] = None;from kp_middleware.cli import main; main()"
)


class Answer(NamedTuple):
    status: int
    text: str
    cookie: str


class Served:
    """A running page, and what a browser does with it."""

    def __init__(self, process):
        self.process = process
        self.link, _, self.hint = (process.stderr.readline().strip() for _ in range(3))
        self.port = int(re.search(r":(\d+)/", self.link).group(1))

    def get(self, url, **headers):
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request(
            "GET", url.removeprefix(f"http://127.0.0.1:{self.port}"), headers=headers
        )
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return Answer(response.status, text, response.getheader("set-cookie", "").split(";")[0])

    def enter(self):
        """Opens the link, and follows where it leads."""
        opened = self.get(self.link)
        first = re.search('url=([^"]*)', opened.text).group(1)
        return self.get(first, cookie=opened.cookie), opened.cookie

    def end(self, number=signal.SIGINT):
        """Its exit code, and what it printed until then."""
        self.process.send_signal(number)
        printed = self.process.communicate(timeout=30)
        return self.process.returncode, *printed


@pytest.fixture
def file(db):
    connect(db).close()
    return db


@pytest.fixture
def serve(file):
    """Starts `ui` for the file."""
    with ExitStack() as stack:
        yield partial(_serve, stack, file)


def _serve(stack, db, *words, **environment):
    process = subprocess.Popen(
        [*UI, "--db", str(db), "ui", *(words or ["--no-open"])],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "SSH_CONNECTION": "", **environment},
    )
    stack.enter_context(process)
    stack.callback(process.kill)
    return Served(process)


def test_the_printed_link_opens_the_overview(agent, serve):
    agent("fix the test")

    page, _ = serve().enter()

    assert page.status == 200
    assert "What your agents did" in page.text
    assert "fix the test" in page.text


def test_without_the_link_there_is_nothing_to_see(serve):
    page = serve()

    assert page.get("/").status == 403
    assert page.get("/", host="evil.example").status == 421


def test_the_link_opens_one_browser(serve):
    page = serve()

    first, second = page.get(page.link), page.get(page.link)

    assert (first.status, second.status) == (200, 403)


def test_it_listens_on_this_machine_alone(serve):
    port = serve().port

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port), timeout=5)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)]
)
def test_it_ends_quietly(serve, number, code):
    page = serve()
    page.enter()

    ended, out, err = page.end(number)

    assert ended == code
    assert (out, err) == ("", "")
    assert page.hint == "The link works once, in one browser. Press Ctrl-C to stop."


def test_it_ends_also_while_a_browser_keeps_its_connection(serve):
    page = serve()
    kept = HTTPConnection("127.0.0.1", page.port)
    kept.request("GET", "/")
    kept.getresponse().read()

    code, *_ = page.end()
    kept.close()

    assert code == 130


def test_a_page_that_is_not_there_is_not_told_on_the_terminal(serve):
    page = serve()
    _, cookie = page.enter()

    status = page.get("/nothing/of/this", cookie=cookie).status
    _, out, err = page.end()

    assert status == 404
    assert "Traceback" not in out + err


def test_a_file_that_takes_the_place_of_another_is_shown_on_our_pages(db, tmp_path, serve):
    other = tmp_path / "other.db"
    connect(db).close()
    put(db, run("the old question", step("thought", content="hm")))
    connect(other).close()
    put(other, run("the new question", step("thought", content="hm")))
    page = serve()
    _, cookie = page.enter()
    before = page.get("/-/kp/kp/traces/@last", cookie=cookie).text

    other.replace(db)
    after = page.get("/-/kp/kp/traces/@last", cookie=cookie).text

    assert "the old question" in before
    assert "the new question" in after
    assert "taken the place" not in after


def test_two_at_once_do_not_disturb_one_another(serve):
    one, other = serve(), serve()
    _, cookie = one.enter()
    _, other_cookie = other.enter()
    both = f"{cookie}; {other_cookie}"

    assert one.get("/kp", cookie=both).status == other.get("/kp", cookie=both).status == 200
    assert one.get("/kp", cookie=other_cookie).status == 403


def test_a_port_that_is_taken_is_said(file, serve):
    taken = serve().port

    result = subprocess.run(
        [*UI, "--db", str(file), "ui", "--no-open", "--port", str(taken)],
        check=False,
        capture_output=True,
        text=True,
    )

    assert result.returncode == 1
    assert f"port {taken} cannot be used" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_port_can_be_chosen(serve):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    page = serve("--no-open", "--port", str(port))

    assert page.port == port
    assert page.enter()[0].status == 200


@pytest.fixture
def shown(tmp_path):
    """A browser that tells with which words it was started; to read this is to wait for it."""
    shown, browser = tmp_path / "shown", tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$*" > "{shown}"\n')
    browser.chmod(0o700)
    os.mkfifo(shown)
    return shown


def file_shown(shown):
    return Path(unquote(shown.read_text().strip()).removeprefix("file://"))


def test_the_browser_is_shown_the_link_by_a_file_of_its_user_alone(serve, shown):
    page = serve("--open", BROWSER=f"'{shown.with_name('browser')}' %s")

    file = file_shown(shown)

    assert page.link.partition("once=")[2] not in str(file)
    assert f'content="0; url={page.link}"' in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_the_file_is_gone_once_the_link_was_used(serve, shown):
    page = serve("--open", BROWSER=f"'{shown.with_name('browser')}' %s")
    file = file_shown(shown)

    page.get(f"http://127.0.0.1:{page.port}/-/kp-open?once=wrong")
    before = file.exists()
    page.enter()

    assert (before, file.exists(), file.parent.exists()) == (True, False, False)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_file_is_gone_when_it_ends(serve, shown, number):
    page = serve("--open", BROWSER=f"'{shown.with_name('browser')}' %s")
    file = file_shown(shown)

    page.end(number)

    assert not file.parent.exists()


NOWHERE = {"BROWSER": "", "DISPLAY": "", "WAYLAND_DISPLAY": ""}


@pytest.mark.skipif(sys.platform != "linux", reason="others have a screen")
def test_where_there_is_no_screen_no_browser_takes_the_terminal_or_the_link(serve, tmp_path):
    browser = tmp_path / "w3m"
    browser.write_text("#!/bin/sh\ntouch $0.was-started\n")
    browser.chmod(0o700)

    page = serve("--open", **NOWHERE, PATH=f"{tmp_path}:{os.environ['PATH']}")

    assert "no browser was started" in page.process.stderr.readline()
    assert page.enter()[0].status == 200
    page.end()
    assert not browser.with_name("w3m.was-started").exists()


def test_who_came_by_ssh_is_told_how_to_reach_it(serve):
    page = serve("--open", **NOWHERE, SSH_CONNECTION="10.0.0.2 51000 10.0.0.1 22")

    assert f"ssh -L {page.port}:127.0.0.1:{page.port}" in page.process.stderr.readline()
    assert f"ssh -L {page.port}:" in page.get("/", host="localhost:9999").text


def test_home_is_the_overview(serve):
    page = serve()
    _, cookie = page.enter()
    connection = HTTPConnection("127.0.0.1", page.port, timeout=30)

    connection.request("GET", "/", headers={"cookie": cookie})
    answer = connection.getresponse()
    connection.close()

    assert (answer.status, answer.getheader("location")) == (302, "/-/kp/kp")


def test_without_datasette_the_extra_is_named(file):
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_DATASETTE, "--db", str(file), "ui", "--no-open"],
        check=False,
        capture_output=True,
        text=True,
    )

    assert result.returncode == 1
    assert 'pip install "kp-middleware[ui]"' in result.stderr


def test_a_file_that_is_not_there_is_said(type_command):
    result = type_command("ui", "--no-open")

    assert result.exit_code == 1
    assert "does not exist" in result.stderr


def test_a_path_in_the_home_folder_may_be_written_short(home):
    connect(home / "kp.db").close()

    with ExitStack() as stack:
        page = _serve(stack, "~/kp.db")
        assert page.enter()[0].status == 200
