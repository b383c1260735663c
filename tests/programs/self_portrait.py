"""Print all that a process can see of itself, as JSON: before it imports jax, and after."""

import atexit
import faulthandler
import gc
import json
import locale
import os
import resource
import signal
import sys
import threading
from pathlib import Path


def status() -> dict[str, str]:
    """What the kernel says, as far as it is the same for processes of one kind."""
    fields = ("Umask", "Groups", "Threads", "Cpus_allowed", "NoNewPrivs", "CapEff", "Name", "THP")
    masks = ("SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt")
    lines = Path("/proc/self/status").read_text().splitlines()
    pairs = (line.split(":\t", 1) for line in lines)
    return {name: text for name, text in pairs if name.startswith((*fields, *masks))}


def stream(file: object) -> list[str]:
    names = "name mode encoding errors newlines line_buffering write_through closed"
    calls = [getattr(file, name)() for name in ("fileno", "isatty", "readable", "seekable")]
    return [str(getattr(file, name, None)) for name in names.split()] + [str(calls)]


def process() -> dict[str, object]:
    fds = {
        fd: os.readlink(f"/proc/self/fd/{fd}").split(":")[0]
        for fd in os.listdir("/proc/self/fd")[:-1]
    }
    leader = (
        os.getsid(0),
        os.getpgid(0),
        threading.main_thread().native_id,
        threading.get_native_id(),
    )
    return {
        "cwd": os.getcwd(),
        "command": Path("/proc/self/cmdline").read_text().split("\0"),
        "fds": fds,
        "inheritable": {fd: os.get_inheritable(int(fd)) for fd in fds},
        "leads": [number == os.getpid() for number in leader],
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "limits": Path("/proc/self/limits").read_text(),
        "status": status(),
        "handlers": {s.name: repr(signal.getsignal(s)).split(" at ")[0] for s in signal.valid_signals() if isinstance(s, signal.Signals)},
        "cores": sorted(os.sched_getaffinity(0)),
        "children": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss,
    }  # fmt: skip


def python() -> dict[str, object]:
    main = sys.modules["__main__"]
    return {
        "argv": sys.argv,
        "orig_argv": sys.orig_argv,
        "path": sys.path,
        "flags": repr(sys.flags),
        "xoptions": sys._xoptions,
        "warnings": [sys.warnoptions, [repr(entry) for entry in sys.modules["warnings"].filters] if "warnings" in sys.modules else []],
        "executable": [sys.executable, sys.prefix, sys.base_prefix, sys.pycache_prefix],
        "main": sorted(name for name in vars(main) if name.startswith("__")),
        "main is": [vars(main) is globals(), str(main.__loader__).split(" at ")[0], str(main.__spec__), main.__package__],
        "hooks": [repr(sys.excepthook), repr(sys.unraisablehook), repr(sys.displayhook), sys.gettrace(), sys.getprofile()],
        "finders": [repr(finder).split(" at ")[0] for finder in sys.meta_path],
        "streams": [stream(file) for file in (sys.stdin, sys.stdout, sys.stderr)],
        "encodings": [sys.getfilesystemencoding(), locale.getlocale(), sys.getdefaultencoding()],
        "limits": [sys.getrecursionlimit(), sys.getswitchinterval(), gc.isenabled(), gc.get_threshold()],
        "hash": hash("a word"),
        "faulthandler": faulthandler.is_enabled(),
        "atexit": atexit._ncallbacks(),
        "threads": [(t.name, t.daemon, t.ident == threading.get_ident()) for t in threading.enumerate()],
        "stack": [frame.f_code.co_name for frame in frames()],
    }  # fmt: skip


def frames():  # type: ignore[no-untyped-def]
    frame = sys._getframe()
    while frame is not None:
        yield frame
        frame = frame.f_back


def portrait() -> dict[str, object]:
    return {"process": process(), "python": python(), "environment": dict(os.environ)}


modules = sorted(sys.modules)
before = portrait()

import multiprocessing  # noqa: E402
import random  # noqa: E402
import tempfile  # noqa: E402
import uuid  # noqa: E402

import jax  # noqa: E402
import numpy as np  # noqa: E402

after = portrait()
shown = {
    "modules": modules,
    "before": before,
    "after": after,
    "jax": {name: repr(value) for name, value in jax.config.values.items()},
    "jax module": [jax.__name__, jax.__file__, vars(jax.__spec__), vars(jax.__loader__)],
    "start method": [multiprocessing.get_start_method(), multiprocessing.current_process().name],
    "random": {
        "random": random.random(),
        "numpy": float(np.random.random()),
        "generator": float(np.random.default_rng().random()),
        "uuid": [str(uuid.uuid1()), str(uuid.uuid4())],
        "authkey": multiprocessing.current_process().authkey.hex(),
        "file": tempfile.mktemp(),
    },
    "devices": [str(device) for device in jax.devices()],
}
print(json.dumps(shown, default=lambda value: str(type(value))))
