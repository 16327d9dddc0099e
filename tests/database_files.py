"""Files that are opened, read and refused, here and in processes of their own."""

import os
import stat
import subprocess
import sys

import pytest

from kp_middleware.database import connect
from kp_middleware.errors import DatabaseError


def meta(connection):
    return dict(connection.execute("SELECT key, value FROM meta"))


def write(connection, key, value=""):
    connection.execute("INSERT INTO meta (key, value) VALUES (?, ?)", (key, value))


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def child(script, *arguments):
    """A Python of its own, which has imported what it needs before it becomes another user."""
    preamble = "import os, sys, urllib.request\nfrom kp_middleware.database import connect\n"
    return subprocess.Popen(
        [sys.executable, "-c", preamble + script, *map(str, arguments)],
        env={name: value for name, value in os.environ.items() if "COVERAGE" not in name},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def refused(path, **how):
    with pytest.raises(DatabaseError) as raised:
        connect(path, **how)
    assert raised.value.path == path
    assert str(raised.value).startswith(f"{path}: ")
    return str(raised.value).removeprefix(f"{path}: ")
