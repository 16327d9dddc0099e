"""The tests' own guard: who wants to leave this machine is refused, and fails the test."""

import asyncio
import socket
import subprocess
import sys
from contextlib import closing

import httpx2
import pytest

TEST_NET = "192.0.2.1"  # nobody has it (RFC 5737)
REACHING = f"import socket; socket.create_connection(({TEST_NET!r}, 80), timeout=1)"


def tried(reached_out):
    """Return the attempted connections, and forget them, or this test would fail by them."""
    text = reached_out.read_text()
    reached_out.write_text("")
    return text


def by_socket():
    with socket.socket() as ours:
        ours.connect((TEST_NET, 80))


def by_datagram():
    with socket.socket(type=socket.SOCK_DGRAM) as ours:
        ours.sendto(b"metrics", (TEST_NET, 8125))


def by_event_loop():
    asyncio.run(asyncio.open_connection(TEST_NET, 80))


def by_client():
    httpx2.get(f"http://{TEST_NET}/", trust_env=False)


@pytest.mark.parametrize("reach", [by_socket, by_datagram, by_event_loop, by_client])
def test_who_wants_to_leave_is_refused_and_written_down(reached_out, reach):
    with pytest.raises((OSError, httpx2.ConnectError), match="tests stay on this machine"):
        reach()

    assert TEST_NET in tried(reached_out)


def test_a_name_is_not_even_looked_up(reached_out):
    with pytest.raises(socket.gaierror, match="tests stay on this machine"):
        socket.create_connection(("registry.example.com", 443))

    assert tried(reached_out) == "registry.example.com\n"


def test_a_child_process_is_guarded_as_well(reached_out):
    ran = subprocess.run(
        [sys.executable, "-c", REACHING], capture_output=True, text=True, check=False
    )

    assert "PermissionError: tests stay on this machine" in ran.stderr
    assert TEST_NET in tried(reached_out)


def test_a_test_that_survives_the_refusal_fails_all_the_same(tmp_path, repository, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # half of the time
    (tmp_path / "conftest.py").write_text((repository / "tests" / "conftest.py").read_text())
    (tmp_path / "loopback").symlink_to(repository / "tests" / "loopback")
    swallowing = (
        f"def test_it():\n    try:\n        {REACHING}\n    except OSError:\n        pass\n"
    )
    (tmp_path / "test_it.py").write_text(swallowing)

    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert f"this tried to leave the machine: ('{TEST_NET}', 80)" in ran.stdout
    assert ran.returncode == 1


def test_this_machine_may_be_reached_by_address_and_by_name(reached_out):
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]

        socket.create_connection(("127.0.0.1", port)).close()
        socket.create_connection(("localhost", port)).close()

    assert reached_out.read_text() == ""
