"""Takes away what Python has not on Windows: for a child process, before anything of ours is there.

What is of others is imported first: it knows the system by another name.
"""

import os
import shutil
import signal
import sys
from importlib import import_module
from importlib.util import find_spec
from itertools import chain

OF_OTHERS = (
    *("asyncio", "multiprocessing.util", "socketserver", "subprocess", "tempfile", "webbrowser"),
    *("click", "httpx2", "numpy", "platformdirs", "pydantic", "rich.console", "rich.table"),
    *("langchain.agents", "langgraph.graph", "langchain_core.tracers.context"),
)
OF_OTHERS_IF_THERE = ("trio",)  # httpx2's transports import it
NO_MODULES = ("fcntl", "grp", "pwd", "resource", "termios", "tty", "pty", "_posixsubprocess")
NOT_IN = {
    os: (
        *("register_at_fork", "fork", "forkpty", "pread", "pwrite", "preadv", "pwritev"),
        *("getuid", "geteuid", "getgid", "getegid", "getgroups", "getpgid", "getsid"),
        *(
            "fchmod",
            "fchown",
            "chown",
            "lchown",
            "chroot",
            "mkfifo",
            "mknod",
            "statvfs",
            "fstatvfs",
        ),
        *("killpg", "setsid", "setuid", "setgid", "setpgid", "nice", "getloadavg", "sysconf"),
        *("wait", "wait3", "wait4", "waitid", "posix_spawn", "sched_getaffinity", "sched_yield"),
        *("openpty", "ttyname", "fdatasync", "lockf", "sync", "sendfile", "getpriority"),
        *("O_NOFOLLOW", "O_CLOEXEC", "O_DIRECTORY", "O_NONBLOCK", "O_SYNC", "O_DSYNC", "O_NOCTTY"),
        *("WNOHANG", "SCHED_OTHER", "fchdir", "posix_fallocate", "posix_fadvise"),
    ),
    signal: (
        *("SIGKILL", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGPIPE", "SIGCHLD"),
        *("alarm", "setitimer", "pthread_kill", "pthread_sigmask", "sigwait", "siginterrupt"),
    ),
}


def take_away() -> None:
    """From this process, for good."""
    for name in (*OF_OTHERS, *filter(find_spec, OF_OTHERS_IF_THERE)):
        import_module(name)
    assert [one for one in sys.modules if one.startswith(("kp_middleware", "kp_langchain"))] == []
    free = shutil.disk_usage(".")
    for name in NO_MODULES:
        sys.modules[name] = None
    for module, name in chain.from_iterable([(m, n) for n in names] for m, names in NOT_IN.items()):
        vars(module).pop(name, None)
    vars(os).update(process_cpu_count=os.cpu_count)  # from Python 3.13
    vars(shutil).update(disk_usage=lambda _: free)  # Python has another one there
