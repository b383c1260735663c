"""Checks that a process is fit to be forked.

Threads that matter, backends of JAX, open devices, and the program's own modules make it unfit.
"""

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


def check_options() -> None:
    """Check that neither Python nor a tool observes the imports of each process.

    Raises:
        Unfit: an option, a variable or a tracer does so.

    """
    for name in _ABOUT_IMPORTS:
        if name in sys._xoptions or os.environ.get(f"PYTHON{name.replace('_', '').upper()}"):
            raise Unfit(f"-X {name} observes the imports of each process")
    monitoring: Any = getattr(sys, "monitoring", None)
    tools = [monitoring.get_tool(at) for at in range(_MONITORS)] if monitoring else []
    if sys.flags.verbose or sys.gettrace() or sys.getprofile() or any(tools):
        raise Unfit("something observes each process from its start (coverage, -v, ...)")


def check_jax() -> None:
    """Check that imports have started no backend or plugin of JAX.

    A plugin starts the GPU's driver to find devices, long before JAX starts a backend.

    Raises:
        Unfit: JAX has a backend, or plugins are registered.

    """
    bridge: Any = sys.modules.get("jax._src.xla_bridge")
    if getattr(bridge, "_backends", None):
        raise Unfit("an import has started a backend of JAX (jax.devices(), or an array)")
    factories = getattr(bridge, "_backend_factories", {}).values()
    plugins = any(getattr(factory, "c_api", None) is not None for factory in factories)
    if plugins or getattr(bridge, "_plugins_registered", False):
        raise Unfit("an import made JAX register its plugins, which starts a GPU's driver")


def check_devices() -> None:
    """Check that imports have started no accelerator's driver.

    Counting the GPUs starts the driver too (`torch.cuda.is_available()`).

    Raises:
        Unfit: a device file is open.

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

    Raises:
        Unfit: there are other threads.

    """
    if len(_list_threads()) > 1:
        pid = fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    others = [tid for tid in _list_threads() if tid != os.getpid()]
    if others:
        names = ", ".join(sorted({_get_thread_name(tid) for tid in others}))
        threads = "a thread" if len(others) == 1 else f"{len(others)} threads"
        raise Unfit(f"an import has started {threads} ({names})")


class OwnModules:
    """Context in which no module of the program's own folder can be imported.

    A file `random.py` or `jax.py` there may have any effect, and each rank has to run it itself.

    Args:
        folder: folder that Python put in front of sys.path; None to allow all modules.

    """

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._found = ""

    def __enter__(self) -> OwnModules:
        if self._folder is not None:
            sys.meta_path.insert(0, self)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        if self._found:
            raise self._unfit

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Raise Unfit for a top-level module in that folder; return None for other modules."""
        import _frozen_importlib_external as importing

        finder: Any = importing.PathFinder
        spec = finder.find_spec(name, [self._folder]) if path is None else None
        if spec is not None and spec.loader is not None:
            self._found = spec.origin or name
            raise self._unfit
        return None

    @property
    def _unfit(self) -> Unfit:
        return Unfit(f"{self._found} would be imported in place of a library's module")


def _list_threads() -> list[int]:
    return [int(tid) for tid in os.listdir("/proc/self/task")]


def _get_thread_name(tid: int) -> str:
    """Return a thread's name, from Python or else from the system."""
    threading: Any = sys.modules.get("threading")
    if threading is not None:
        for thread in threading.enumerate():
            if thread.native_id == tid:
                return str(thread.name)
    try:
        with open(f"/proc/self/task/{tid}/comm") as comm:
            return comm.read().strip()
    except OSError:
        return "?"


def fork() -> int:
    """Fork with empty stream buffers, and without Python's warning about threads.

    Raises:
        Unfit: there are too many processes, or there is too little memory.

    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    warnings: Any = sys.modules.get("warnings")
    try:
        if warnings is None:  # no module can show a warning
            return os.fork()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return os.fork()
    except OSError as error:
        raise Unfit(f"it cannot be forked: {error.strerror}") from None
