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
from urllib.parse import unquote

import httpx
import pytest

from kp_middleware.database import connect

UI = [sys.executable, "-m", "kp_middleware"]
WITHOUT_DATASETTE = (
    "import sys; sys.modules['datasette'] = None;from kp_middleware.cli import main; main()"
)


class Served:
    """A running page, and what a browser does with it."""

    def __init__(self, process):
        self.process = process
        self.link, _, self.hint = (process.stderr.readline().strip() for _ in range(3))
        self.port = int(re.search(r":(\d+)/", self.link).group(1))

    def get(self, path, **headers):
        with httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=30) as client:
            return client.get(path, headers=headers)

    def enter(self):
        """Opens the link, and follows where it leads; the page and the cookie."""
        opened = self.get(self.link)
        cookie = opened.headers["set-cookie"].split(";")[0]
        first = re.search('url=([^"]*)', opened.text).group(1)
        return self.get(first, cookie=cookie), cookie

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


def test_the_link_opens_the_overview_for_one_browser_of_this_machine(agent, serve):
    agent("fix the test")
    page = serve()

    assert page.get("/").status_code == 403
    assert page.get("/", host="evil.example").status_code == 421
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", page.port), timeout=5)

    overview, cookie = page.enter()

    assert overview.status_code == 200
    assert "What your agents did" in overview.text
    assert "fix the test" in overview.text
    assert page.get("/", cookie=cookie).status_code == 302
    assert page.get(page.link).status_code == 403


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)]
)
def test_it_ends_quietly_also_while_a_browser_keeps_its_connection(serve, number, code):
    page = serve()
    _, cookie = page.enter()
    missing = page.get("/nothing/of/this", cookie=cookie)
    kept = HTTPConnection("127.0.0.1", page.port)
    kept.request("GET", "/")
    kept.getresponse().read()

    ended, out, err = page.end(number)
    kept.close()

    assert missing.status_code == 404
    assert ended == code
    assert (out, err) == ("", "")
    assert page.hint == "The link works once, in one browser. Press Ctrl-C to stop."


def test_a_port_can_be_chosen_that_is_not_taken_and_the_home_folder_be_written_short(
    home, type_command
):
    connect(home / "kp.db").close()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    with ExitStack() as stack:
        page = _serve(stack, "~/kp.db", "--no-open", "--port", str(port))
        second = type_command("--db", "~/kp.db", "ui", "--no-open", "--port", str(port))

        assert page.port == port
        assert page.enter()[0].status_code == 200
    assert second.exit_code == 1
    assert f"port {port} cannot be used" in second.stderr


@pytest.fixture
def shown(tmp_path):
    """A browser that writes down with which words it was started; to read this is to wait."""
    shown, browser = tmp_path / "shown", tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$*" > "{shown}"\n')
    browser.chmod(0o700)
    os.mkfifo(shown)
    return shown


@pytest.fixture
def opened(serve, shown):
    """A page that was opened in that browser, and the file that the browser was shown."""
    page = serve("--open", BROWSER=f"'{shown.with_name('browser')}' %s")
    return page, Path(unquote(shown.read_text().strip()).removeprefix("file://"))


def test_the_browser_is_shown_the_link_by_a_file_of_its_user_that_is_gone_once_it_was_used(opened):
    page, file = opened

    assert page.link.partition("once=")[2] not in str(file)
    assert f'content="0; url={page.link}"' in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700

    page.get("/-/kp-open?once=wrong")
    before = file.exists()
    page.enter()

    assert (before, file.exists(), file.parent.exists()) == (True, False, False)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_file_is_gone_when_it_ends(opened, number):
    page, file = opened

    page.end(number)

    assert not file.parent.exists()


NOWHERE = {"BROWSER": "", "DISPLAY": "", "WAYLAND_DISPLAY": ""}


@pytest.mark.skipif(sys.platform != "linux", reason="others have a screen")
def test_where_there_is_no_screen_no_browser_takes_the_terminal_or_the_link(serve, tmp_path):
    browser = tmp_path / "w3m"
    browser.write_text("#!/bin/sh\ntouch $0.was-started\n")
    browser.chmod(0o700)

    page = serve("--open", **NOWHERE, PATH=f"{tmp_path}:{os.environ['PATH']}")

    assert page.enter()[0].status_code == 200
    page.end()
    assert not browser.with_name("w3m.was-started").exists()


def test_who_came_by_ssh_is_told_how_to_reach_it(serve):
    page = serve("--open", **NOWHERE, SSH_CONNECTION="10.0.0.2 51000 10.0.0.1 22")

    assert f"ssh -L {page.port}:127.0.0.1:{page.port}" in page.process.stderr.readline()


def test_without_datasette_the_extra_is_named(file):
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_DATASETTE, "--db", str(file), "ui", "--no-open"],
        check=False,
        capture_output=True,
        text=True,
    )

    assert result.returncode == 1
    assert 'pip install "kp-middleware[ui]"' in result.stderr
