"""A real terminal: what a person sees when a command is typed there."""

import os
import pty
import re
import sys
import termios
import time
from functools import partial
from importlib import import_module

_ESCAPES = re.compile(r"\x1b\[(?:[0-9;]*m|\?25[lh]|1A)")


def typed(*words, columns=150):
    """Return what `kp-middleware` prints on a terminal this wide, without colors and progress."""
    printed, _ = on_a_terminal(partial(_command, words), columns=columns)
    return "\n".join(line.rsplit("\x1b[2K", 1)[-1] for line in printed.split("\n"))


def typed_with_keys(*words, keys, prompt, columns=100):
    """Return a command's output and exit code, typing a key each time it asks."""
    return on_a_terminal(partial(_command, words), columns=columns, keys=keys, prompt=prompt)


def _command(words):
    import_module("kp_middleware.cli").main(words)


def on_a_terminal(call, *, columns=150, keys=(), prompt=""):
    """All that a call prints on a terminal this wide, without colors, and its exit code.

    It runs in a fork of this process: to start Python and to import takes a third of a second.
    """
    child, terminal = pty.fork()
    if not child:
        _call_and_exit(call, columns)
    printed, asked, left = b"", 0, list(keys)
    while part := _read(terminal):
        printed += part
        if left and printed.count(prompt.encode()) > asked:
            asked += 1
            _wait_for_a_raw(terminal)
            os.write(terminal, left.pop(0).encode())
    os.close(terminal)
    _, ended = os.waitpid(child, 0)
    text = _ESCAPES.sub("", printed.decode()).replace("\r\n", "\n")
    return text, os.waitstatus_to_exitcode(ended)


def _wait_for_a_raw(terminal):
    """Wait until the program reads keys: what was typed before is thrown away."""
    while termios.tcgetattr(terminal)[3] & termios.ICANON:
        time.sleep(0.005)


def _call_and_exit(call, columns):
    """Run as a process of its own, and end it."""
    streams = [os.fdopen(number, mode, closefd=False) for number, mode in enumerate("rww")]
    sys.stdin, sys.stdout, sys.stderr = streams
    os.environ |= {"COLUMNS": str(columns), "TERM": "xterm"}
    code = 0
    try:
        call()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    finally:
        [stream.flush() for stream in streams[1:]]
        os._exit(code)


def _read(terminal):
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other end is closed
        return b""
