"""Make a copy of the launcher that is refused everything that only Linux has.

TEST_PORTABLE=1 has the tests run that, with MCJAX_PORTABLE=1. What Python has on Linux alone is
gone for all of a process; files like /proc, and the C library's prctl, are refused to the code of
the launcher, the agents and the hook alone. psutil may use them: it stands for the system.
"""

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "mcjax_launch"

# Put in front of whatever runs first in a process: the launcher, an agent, or the hook.
REMOVES = r"""
def _remove_what_linux_alone_has():
    import sys
    if getattr(sys, "_without_linux", False) or sys.platform != "linux":
        return  # elsewhere some of that is there, and is to be tested
    sys._without_linux = True
    import _signal, _socket, fcntl, posix, select, os
    def remove(module, *starts):
        for name in [name for name in vars(module) if name.startswith(starts)]:
            delattr(module, name)
    for module in (posix, os):
        remove(module, "waitid", "pidfd_", "P_PIDFD", "WNOWAIT", "WEXITED", "WSTOPPED", "CLD_")
        remove(module, "sched_", "memfd_", "MFD_", "eventfd", "EFD_", "pipe2", "splice", "SPLICE_")
        remove(module, "O_PATH", "O_TMPFILE", "posix_fadvise", "copy_file_range", "getrandom")
        remove(module, "setns", "unshare", "prlimit", "getxattr", "setxattr", "listxattr")
    remove(_signal, "SIGRTM", "pidfd_", "sigwaitinfo", "sigtimedwait", "SIGPWR", "SIGSTKFLT")
    remove(_signal, "SIGPOLL", "SIGCLD")
    remove(select, "epoll", "EPOLL")
    remove(_socket, "SO_PEERCRED", "SO_PASSCRED", "SOCK_SEQPACKET", "SOCK_CLOEXEC", "SOCK_NONBLOCK")
    remove(_socket, "MSG_CMSG_CLOEXEC", "AF_NETLINK", "SO_BINDTODEVICE")
    for name in ("socket", "signal"):  # as far as they are there already
        if name in sys.modules:
            remove(sys.modules[name], "SO_PEERCRED", "SOCK_SEQPACKET", "SOCK_CLOEXEC", "SIGRTM")
    def is_ours():
        frame = sys._getframe(2)
        while frame is not None and "/ctypes/" in frame.f_code.co_filename:
            frame = frame.f_back
        return frame is not None and "mcjax_launch" in frame.f_code.co_filename
    def refuse(event, arguments):
        if event in ("open", "os.listdir", "os.scandir", "os.chdir"):
            path = arguments[0]
            if isinstance(path, bytes):
                path = path.decode("utf-8", "replace")
            places = ("/proc", "/sys", "/dev/shm", "/dev/kmsg")
            creates = event == "open" and (arguments[2] or 0) & os.O_CREAT
            if isinstance(path, str) and path.startswith(places) and not creates:
                if is_ours():
                    raise SystemError(f"only Linux has {path}")
        elif event == "ctypes.dlsym" and arguments[1] in ("prctl", "syscall", "unshare"):
            if is_ours():
                raise SystemError(f"only Linux has {arguments[1]}")
        elif event == "fcntl.fcntl" and arguments[1] >= 1024:
            raise SystemError(f"only Linux has fcntl {arguments[1]}")
    sys.addaudithook(refuse)
_remove_what_linux_alone_has()
"""


@functools.cache
def launcher() -> str:
    """A script that runs the copy."""
    root = Path(tempfile.mkdtemp(prefix="not-linux-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    copy = root / "mcjax_launch"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for first in ("__init__.py", "hook/site/sitecustomize.py", "agent/assemble.py"):
        path = copy / first
        path.write_text(_with_first(path.read_text()))
    script = root / "mcjax-launch"
    script.write_text("from mcjax_launch.__main__ import run\nrun()\n")
    return str(script)


def _with_first(text: str) -> str:
    """The text of a module with `REMOVES` behind its docstring, and what has to come first."""
    future = "from __future__ import annotations\n"
    if future in text:
        return text.replace(future, future + REMOVES, 1)
    docstring, quotes, rest = text[3:].partition('"""')
    return f'"""{docstring}{quotes}\n{REMOVES}{rest}'
