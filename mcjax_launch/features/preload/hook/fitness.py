"""Checks that a process is fit to be forked; each raises Unfit."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from typing import Any

# Devices of NVIDIA's driver, of AMD's, of GPU drivers in general, of TPUs. Once such a driver has
# begun in a process, it works in no child of that process.
_DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/", "/dev/accel", "/dev/vfio/")
# Options of Python's, and variables: PYTHONPROFILEIMPORTTIME has another name.
_ABOUT_IMPORTS = ("importtime", "tracemalloc", "perf", "perf_jit")
_MONITORS = 6


class Unfit(Exception):
    """Error: no rank can be forked; the text says why."""


def check_tools() -> None:
    """Check that neither Python nor a tool observes the imports of each process."""
    for name in _ABOUT_IMPORTS:
        if name in sys._xoptions or os.environ.get(f"PYTHON{name.replace('_', '').upper()}"):
            raise Unfit(f"-X {name} observes the imports of each process")
    monitoring: Any = getattr(sys, "monitoring", None)
    tools = [monitoring.get_tool(at) for at in range(_MONITORS)] if monitoring else []
    if sys.flags.verbose or sys.gettrace() or sys.getprofile() or any(tools):
        raise Unfit("something observes each process from its start (coverage, -v, ...)")


def check_devices() -> None:
    """Check that imports have started no accelerator's driver, by its device files.

    Counting the GPUs starts the driver too (`torch.cuda.is_available()`).
    """
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:  # the descriptor that was used to list the folder
            continue
        if path.startswith(_DEVICES):
            raise Unfit(f"an import has started an accelerator's driver ({path} is open)")


def check_threads() -> None:
    """Check that no threads exist except threads that end before a fork, like OpenBLAS's.

    A backend of JAX has threads that do not.
    """
    if len(os.listdir("/proc/self/task")) > 1:
        flush()
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    others = [int(tid) for tid in os.listdir("/proc/self/task") if int(tid) != os.getpid()]
    if others:
        names = ", ".join(sorted({_get_thread_name(tid) for tid in others}))
        threads = "a thread" if len(others) == 1 else f"{len(others)} threads"
        raise Unfit(f"an import has started {threads} ({names})")


def _get_thread_name(tid: int) -> str:
    """Return a thread's name, from Python or else from the system."""
    threading: Any = sys.modules.get("threading")
    for thread in threading.enumerate() if threading is not None else ():
        if thread.native_id == tid:
            return str(thread.name)
    try:
        with open(f"/proc/self/task/{tid}/comm") as comm:
            return comm.read().strip()
    except OSError:
        return "?"


class OwnModules:
    """Import finder that refuses modules of the program's own folder.

    A file `random.py` or `jax.py` there may have any effect, and each rank has to run it itself.

    Args:
        folder: folder that Python puts in front of sys.path; None for no folder.

    """

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._names: dict[str, None] = {}  # of all modules that were looked for
        self._found = ""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Raise Unfit for a top-level module in that folder; return None for other modules."""
        if path is None:
            self._names[name] = None
            self._found = self._found or self._find(name)
            self.check()
        return None

    def check(self) -> None:
        """Raise Unfit if a module of that folder was looked for: the import may have caught it."""
        if self._found:
            raise Unfit(self._found)

    def find_module(self) -> str:
        """Return in words the module that the imports would find in that folder now; "" if none."""
        sys.path_importer_cache.pop(self._folder or os.getcwd(), None)
        return next(filter(None, map(self._find, self._names)), "")

    def _find(self, name: str) -> str:
        import _frozen_importlib_external as importing

        finder: Any = importing.PathFinder
        spec = None if self._folder is None else finder.find_spec(name, [self._folder])
        if spec is None or spec.loader is None:
            return ""
        return f"{spec.origin or name} would be imported in place of a library's module"


def flush() -> None:
    """Empty the buffers of streams, which a fork would write too."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
