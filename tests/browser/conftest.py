"""A browser, a file of traces, and the page and the report of it."""

import os
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import chromium
import pytest
import serving

_HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def environment(tmp_path_factory):
    """A home of its own, and no settings of whoever runs the tests."""
    ours = {name: text for name, text in os.environ.items() if not name.upper().startswith("KP_")}
    home = str(tmp_path_factory.mktemp("home"))
    return ours | dict.fromkeys(
        ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"), home
    )


@pytest.fixture(scope="session")
def new_browser(tmp_path_factory):
    """Starts browsers that know nothing of one another."""
    if not chromium.is_here():
        missing = "needs chromium and chromedriver"
        pytest.fail(missing) if os.environ.get("KP_NEED_BROWSER") else pytest.skip(missing)
    with ExitStack() as stack:
        yield partial(_start, stack, tmp_path_factory)


def _start(stack, folders):
    browser = chromium.start(folders.mktemp("profile"))
    stack.callback(browser.driver.quit)
    return browser


@pytest.fixture(scope="session")
def month(environment, tmp_path_factory):
    """A file with a busy month in it."""
    path = tmp_path_factory.mktemp("month") / "kp.db"
    script = str(_HERE / "busy_month.py")
    subprocess.run([sys.executable, script, str(path)], env=environment, check=True)
    return path


@pytest.fixture(scope="session")
def command(environment, month):
    """Runs a command for this file; what it printed."""

    def run(*words):
        command = [sys.executable, "-m", "kp_middleware", "--db", str(month), *words]
        return subprocess.run(
            command, env=environment, check=True, capture_output=True, text=True
        ).stdout

    return run


@pytest.fixture(scope="session")
def serve(environment):
    """Starts the page of a file."""
    with ExitStack() as stack:
        yield partial(serving.serve, stack, environment)


@pytest.fixture(scope="session")
def page(serve, month):
    """Its page."""
    return serve(month)


@pytest.fixture(scope="session")
def browser(new_browser, page):
    """One that has opened the link."""
    browser = new_browser()
    browser.enter(page)
    return browser


@pytest.fixture
def report(command, tmp_path):
    """The address of the report, on the disk."""
    out = tmp_path / "report.html"
    command("report", str(out))
    return out.as_uri()


@pytest.fixture
def screenshots(repository):
    """The folder of pictures for people to look at, which CI keeps."""
    return repository / "build" / "screenshots"
