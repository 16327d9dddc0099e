"""Nothing that the tests run reaches further than this machine.

Python imports a module of this name as it starts, so child processes are guarded as well: their
``PYTHONPATH`` has this folder. Who tries is refused, and written down: code that survives the
refusal must not hide it. A child that is started with ``-I`` or ``-S`` is not guarded.
"""

import os
import sys


def _refuse(event, arguments):
    if event in {"socket.connect", "socket.sendto", "socket.sendmsg"}:
        _connect(arguments[1])
    elif event in {"socket.getaddrinfo", "socket.gethostbyname"}:
        _look_up(arguments[0])
    elif event == "socket.gethostbyaddr":
        _connect((arguments[0],))
    elif event == "socket.getnameinfo":
        _connect(arguments[0])


def _connect(address):
    if isinstance(address, tuple) and not _is_here(address[0]):
        _write_down(address)
        raise PermissionError(f"tests stay on this machine: {address}")


def _look_up(host):
    from socket import EAI_NONAME, gaierror

    if _is_here(host) or _as_address(host):
        return
    if not str(host).endswith(".invalid"):  # such a name is nowhere (RFC 6761): no harm is meant
        _write_down(host)
    raise gaierror(EAI_NONAME, f"tests stay on this machine: {host}")


def _is_here(host):
    """Return whether a host is this machine, without a DNS query."""
    if host in {None, "", b"", "localhost", b"localhost"}:
        return True
    address = _as_address(host)
    return address is not None and (address.is_loopback or address.is_unspecified)


def _as_address(host):
    from ipaddress import ip_address

    try:
        return ip_address(host.decode() if isinstance(host, bytes) else host)
    except ValueError:
        return None


def _write_down(attempt):
    with open(os.environ.get("REACHED_OUT", os.devnull), "a") as attempts:  # noqa: PTH123
        attempts.write(f"{attempt}\n")


sys.addaudithook(_refuse)
