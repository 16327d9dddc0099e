"""A PostgreSQL server of our own, a pgbouncer before it, and a proxy with a network's faults."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, urlencode

import psycopg

PASSWORD = "geheim-4711"
_DEBIAN = Path("/usr/lib/postgresql")
_MEMORY = Path("/dev/shm")
_SETTINGS = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 100
log_line_prefix = '%m %a '
"""
_POOLER = """
[databases]
* = host=127.0.0.1 port={server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
auth_type = scram-sha-256
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = 5
logfile = {folder}/log
pidfile = {folder}/pid
"""


def binaries():
    """The folder with ``initdb``, of the newest version; None without one."""
    found = sorted(_DEBIAN.glob("*/bin/initdb"), key=lambda file: int(file.parts[-3]))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else on_path and Path(on_path).parent


def pooler():
    """Return the path of pgbouncer, or None."""
    return shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")


def free_port():
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        return listening.getsockname()[1]


class SharedServer:
    """PostgreSQL in a folder of its own; root lends it the user ``postgres``.

    Args:
        model: A stopped server to copy: faster than ``initdb``.
        is_durable: Whether it waits for the disk, as one that is measured does.
    """

    def __init__(self, model=None, *, is_durable=False):
        place = _MEMORY if _MEMORY.is_dir() and not is_durable else None
        self.folder = Path(tempfile.mkdtemp(prefix="kp-postgres-", dir=place))
        self.port = free_port()
        self._data = self.folder / "data"
        _give(self.folder)
        if model is None:
            (self.folder / "password").write_text(PASSWORD)
            _give(self.folder / "password")
            self._run(
                *("initdb", "-D", self._data, "-U", "owner", "-A", "scram-sha-256", "-E", "UTF8"),
                *("--locale=C", "--no-sync", f"--pwfile={self.folder / 'password'}"),
            )
            with (self._data / "postgresql.conf").open("a") as file:
                file.write(f"{_SETTINGS}fsync = {'on' if is_durable else 'off'}\n")
        else:
            self._copy(model._data, self._data)

    @classmethod
    def standby_of(cls, primary):
        """A copy that follows, read-only, until it is promoted."""
        made = cls.__new__(cls)
        made.folder = Path(tempfile.mkdtemp(prefix="kp-postgres-", dir=primary.folder.parent))
        made.port = free_port()
        made._data = made.folder / "data"
        _give(made.folder)
        made._run("pg_basebackup", "-D", made._data, "-d", primary.url(), "-R", "-c", "fast")
        return made

    def promote(self):
        """Begin to write."""
        self._run("pg_ctl", *self._named, "-w", "promote")

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self):
        """Return when it answers. After a kill its children may hold the memory for a moment."""
        for _ in range(50):
            with suppress(subprocess.CalledProcessError):
                self._run(
                    "pg_ctl", *self._named, "-w", "-l", self.log, "-o", f"-p {self.port}", "start"
                )
                return
            time.sleep(0.1)
        raise RuntimeError(self.log.read_text())

    def stop(self, mode="fast"):
        with suppress(subprocess.CalledProcessError):
            self._run("pg_ctl", *self._named, "-w", "-m", mode, "stop")

    def kill(self):
        """As the kernel does when memory is short."""
        os.kill(self.pid, signal.SIGKILL)

    def restart(self):
        self.stop()
        self.start()

    @contextmanager
    def frozen(self):
        """It holds all connections, and says nothing."""
        every = [self.pid, *self._children()]
        [os.kill(pid, signal.SIGSTOP) for pid in every]
        try:
            yield
        finally:
            [os.kill(pid, signal.SIGCONT) for pid in every]

    def keep_copy(self):
        """Copy the folder of a stopped server, as a backup does."""
        self.stop()
        copy = self.folder / f"copy-{time.monotonic_ns()}"
        self._copy(self._data, copy)
        self.start()
        return copy

    def restore(self, copy):
        """Go back to what a copy has."""
        self.stop()
        shutil.rmtree(self._data)
        self._copy(copy, self._data)
        self.start()

    @property
    def log(self):
        """Return the server's log."""
        return self.folder / "log"

    def url(self, database="postgres", *, user="owner", password=PASSWORD, port=None, **options):
        asked = f"?{urlencode(options)}" if options else ""
        place = f"127.0.0.1:{port or self.port}"
        return f"postgresql://{quote(user)}:{quote(password)}@{place}/{database}{asked}"

    def create(self, database):
        """Make a database, and return its URL."""
        with self.open("postgres") as connection:
            connection.execute(f'CREATE DATABASE "{database}"')
        return self.url(database)

    def open(self, database, **options):
        """A connection that commits each statement."""
        return psycopg.connect(self.url(database, **options), autocommit=True)

    def dump(self, database):
        """The whole database as text; what is stored as bytes also as what they say."""
        return self._run("pg_dump", "--dbname", self.url(database), "--inserts")

    @property
    def _named(self):
        return "-D", self._data, "-s"

    @property
    def pid(self):
        return int((self._data / "postmaster.pid").read_text().split()[0])

    def _children(self):
        said = subprocess.run(
            ["pgrep", "-P", str(self.pid)], capture_output=True, text=True, check=False
        ).stdout
        return map(int, said.split())

    def _copy(self, source, target):
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("postmaster.*"))
        target.chmod(0o700)
        _give(target)
        for path in target.rglob("*"):
            _give(path)

    def _run(self, program, *words):
        return subprocess.run(
            [binaries() / program, *words],
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if program == "initdb" else subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            text=True,
            cwd="/",
            **_not_root(),
        ).stdout


class Pooler:
    """pgbouncer in transaction mode before a server."""

    def __init__(self, server):
        self.folder = Path(tempfile.mkdtemp(prefix="kp-pgbouncer-"))
        self.port = free_port()
        (self.folder / "users").write_text(f'"owner" "{PASSWORD}"\n')
        words = _POOLER.format(server=server.port, port=self.port, folder=self.folder)
        (self.folder / "ini").write_text(words)
        _give(self.folder)
        [_give(path) for path in self.folder.iterdir()]
        self._process = None

    def __enter__(self):
        self._process = subprocess.Popen(
            [pooler(), "-q", self.folder / "ini"], cwd="/", stderr=subprocess.DEVNULL, **_not_root()
        )
        _wait_for(self.port)
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Proxy:
    """Passes on what it gets: after a delay, or not at all, as a firewall that drops packets.

    Attributes:
        delay_s: Of each piece, in each direction.
    """

    def __init__(self, port, *, delay_s=0.0):
        self.delay_s = delay_s
        self._target = port
        self._passing = threading.Event()
        self._passing.set()
        self._over = False
        self._open = []
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.port = self._listening.getsockname()[1]

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._over = True
        self._passing.set()
        for one in [self._listening, *self._open]:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    @contextmanager
    def silent(self):
        """It accepts and acknowledges, and nothing arrives; afterwards all of it does."""
        self._passing.clear()
        try:
            yield
        finally:
            self._passing.set()

    def _accept(self):
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near):
        self._open.append(near)
        self._passing.wait()
        with suppress(OSError):  # one of them is away, or we are over
            far = socket.create_connection(("127.0.0.1", self._target))
            self._open.append(far)
            for one in (near, far):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._pass_on, args=(far, near), daemon=True).start()
            self._pass_on(near, far)
        near.close()

    def _pass_on(self, source, target):
        with suppress(OSError):
            while piece := source.recv(1 << 16):
                self._passing.wait()
                if self._over:
                    break
                time.sleep(self.delay_s)
                target.sendall(piece)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def _wait_for(port):
    for _ in range(500):
        with suppress(OSError), closing(socket.create_connection(("127.0.0.1", port))):
            return
        time.sleep(0.01)
    raise TimeoutError(f"nothing listens at {port}")


def _not_root():
    """PostgreSQL refuses to be run by root."""
    if os.geteuid():
        return {}
    return {
        "user": "postgres",
        "group": "postgres",
        "extra_groups": [],
        "env": {"PATH": os.environ["PATH"]},
    }


def _give(path):
    if not os.geteuid():
        who = pwd.getpwnam("postgres")
        os.chown(path, who.pw_uid, who.pw_gid)
