"""Import server: imports modules once, and forks the ranks of its host.

It runs a rank's command; the hook stops it at the last moment before Python runs the program.
A forked rank only returns from the hook: Python itself then runs its program, as in any other rank.

The agent requests ranks one by one, then kills the server and adopts the ranks.
"""

from __future__ import annotations

import os
import sys

from ....hook.stack_answers import Descriptor, answer_by_signal
from ....wire import hook_environ
from ....wire.codec import to_json
from ....wire.line import receive
from ..messages import Fork, Forked, ForkMessage, ImportBegins, Imported
from .forked_rank import ForkedRank, System

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Mapping
    from importlib.machinery import ModuleSpec
    from typing import Any

    from ....hook.agent_link import AgentLink


_MOST_PACKET = 1 << 20
_LONGEST_REASON = 300


class ImportServer:
    """Server that forks ranks; its own process never becomes a rank.

    Args:
        order: text that `ImportServerLink` has written.
        link: the hook's link to the agent; each rank connects it.
        environ: the hook's environment; each rank changes it to its own.

    """

    def __init__(self, order: str, link: AgentLink, environ: dict[str, str]) -> None:
        descriptor, auto, since, modules = order.split(":")
        self._modules = modules.split(",")
        self._since = int(since)  # 0: the ranks are started at once
        self._connection = _open_connection(int(descriptor))
        self._first = _find_first_path_entry(environ)
        self._own = OwnModules(self._first) if auto else None
        self._files: LoadedFiles | None = None
        self._rank = ForkedRank(link, environ, os.getppid(), System())

    def run(self, step_aside: Callable[[], object]) -> None:
        """Import the modules, and fork ranks; return only in each forked rank.

        Args:
            step_aside: last step of a rank's hook: runs the user's own sitecustomize.

        """
        import time

        began, why_not = time.monotonic(), ""
        try:
            answer_by_signal(Descriptor(self._connection.fileno()))
            try:
                check_tools()
                _require(step_aside, "sitecustomize failed")
                self._import()
                check_devices()
                check_threads()
            except Unfit as unfit:
                why_not = str(unfit)[:_LONGEST_REASON]
            self._send(Imported(time.monotonic() - began, why_not))
            order, descriptors = self._serve()
        except BaseException as error:  # nothing may lead from here into the program
            sys.stderr.write(f"mcjax-launch: the import server failed: {error!r}; please report\n")
            os._exit(1)
        try:
            self._connection.close()
            self._rank.become(order, descriptors)
        except BaseException as error:
            sys.stderr.write(f"mcjax-launch: a forked rank failed: {error!r}; please report\n")
            os._exit(1)

    # --- importing ---

    def _import(self) -> None:
        """Import the ordered modules as the program would.

        Raises:
            Unfit: an import fails, or its effects cannot be handed on to the ranks.

        """
        import _signal  # without signal's own imports
        import gc

        interrupt = _signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # ends us without a traceback
        gc_was_enabled = gc.isenabled()
        gc.disable()  # nothing of what is imported is garbage
        if self._first is not None:
            sys.path.insert(0, self._first)
        before = {*sys.modules}
        if self._own is not None:
            sys.meta_path.insert(0, self._own)
        for name in self._modules:
            self._send(ImportBegins(name))
            _require(lambda name=name: __import__(name), f"cannot import {name}")  # type: ignore[misc]
        if self._own is not None:
            sys.meta_path.remove(self._own)
            self._own.check()
        if self._first is not None and sys.path[:1] != [self._first]:
            raise Unfit("an import has put another folder in front of sys.path")
        if self._modules == ["jax"]:
            # Else garbage collection would write to all their pages. Only for JAX: frozen objects
            # are not finalized at the end of a program.
            gc.collect()
            gc.freeze()
        packages = {name.partition(".")[0] for name in self._modules}
        self._rank.set_loaded({"jax", *packages}, before)
        if self._first is not None:
            del sys.path[0]
        if self._since:
            self._files = LoadedFiles(self._since)
        if _signal.getsignal(_signal.SIGINT) == _signal.SIG_DFL:
            _signal.signal(_signal.SIGINT, interrupt)
        if gc_was_enabled:
            gc.enable()

    # --- forking ---

    def _serve(self) -> tuple[Fork, list[int]]:
        """Fork ranks until the agent hangs up; return only in a forked rank."""
        import _socket

        why_not: str | None = None
        while True:
            # With it come a rank's 0, 1 and 2, and what it waits on.
            data, descriptors = receive(self._connection, _MOST_PACKET, _socket.MSG_CMSG_CLOEXEC)
            if not data:
                os._exit(0)
            order = Fork.of(data.decode())
            if why_not is None:
                why_not = self._find_change()
            try:
                if why_not:
                    raise Unfit(why_not)
                if order.same < len(order.argv) - len(sys.argv) + 1:
                    raise Unfit("its command differs")
                os.chdir(order.cwd)  # which an import may have left
                pid = _fork()
            except OSError as error:
                self._send(Forked(0, f"it cannot be forked: {error.strerror}"))
            except Unfit as unfit:
                self._send(Forked(0, str(unfit)))
            else:
                if pid == 0:
                    return order, descriptors
                self._send(Forked(pid))
            for fd in descriptors:
                os.close(fd)

    def _find_change(self) -> str:
        """Return what would be imported otherwise now, long after the import; "" if nothing."""
        if self._files is None:
            return ""
        if changed := self._files.find_change():
            return f"{changed} has changed since it was imported"
        return self._own.find_module() if self._own is not None else ""

    def _send(self, message: ForkMessage) -> None:
        self._connection.send(to_json(message).encode())


def _fork() -> int:
    """Fork with empty stream buffers, and without Python's warning about threads.

    Raises:
        OSError: there are too many processes, or there is too little memory.

    """
    flush()
    warnings: Any = sys.modules.get("warnings")
    if warnings is None:  # no module can show a warning
        return os.fork()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return os.fork()


def _open_connection(descriptor: int) -> socket.socket:
    """Return the socket of a descriptor, which processes started from now on do not inherit."""
    import _socket

    os.set_inheritable(descriptor, False)
    return _socket.socket(fileno=descriptor)  # type: ignore[return-value]


def _find_first_path_entry(environ: Mapping[str, str]) -> str | None:
    """Return the entry that the program will have in front of sys.path; None for no entry."""
    is_safe = environ.get(hook_environ.SAFE_PATH) == hook_environ.OUR_SAFE_PATH
    if is_safe or sys.flags.isolated or getattr(sys.flags, "safe_path", False):
        return None
    program = sys.argv[0]
    if program == "-m":
        return os.getcwd()
    if program in ("", "-", "-c"):
        return ""
    return program if os.path.isdir(program) else os.path.dirname(os.path.realpath(program))


def _require(step: Callable[[], object], otherwise: str) -> None:
    """Call a function that runs code of the user's.

    Raises:
        Unfit: it fails, or exits; each rank started afresh shows that error.

    """
    try:
        step()
    except BaseException as error:
        lines = str(error).strip().splitlines()
        said = f"{type(error).__name__}{f': {lines[0]}' if lines else ''}"
        raise Unfit(f"{otherwise}: {said}") from None


RUN_INSTEAD = ImportServer

# --- the files that this process has loaded, to see later whether it would load the same again ---

_MODULES = ("", ".py", ".pyc", ".so")


class LoadedFiles:
    """Files that this process has loaded, and the folders in which it has looked for modules.

    Args:
        since: when this process was started, in nanoseconds since the epoch. A file that is newer,
            or gone, counts as changed: which of its versions was loaded is not known.

    """

    def __init__(self, since: int) -> None:
        self._found = {path: _identify(path) for path in _list_files()}
        self._folders = {path: _identify(path) for path in _list_package_folders()}
        self._paths = {path: _list_modules(path) for path in _list_search_path()}
        newer = (path for path, each in self._found.items() if max(each) == 0 or each[4] >= since)
        self._newer = next(newer, "")

    def find_change(self) -> str:
        """Return the path of a file or folder that is not what it was; "" if all are."""
        for path, before in (*self._found.items(), *self._folders.items()):
            if _identify(path) != before:
                return path
        for path, names in self._paths.items():
            if _list_modules(path) != names:
                return path
        return self._newer


def _identify(path: str) -> tuple[int, ...]:
    """Return numbers that change when a file is saved, or replaced; zeros if it does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0, 0, 0, 0)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _list_files() -> set[str]:
    """Return the paths of all modules' files, of mapped libraries, and of what `site` has read."""
    loaded = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    # A module in an archive has the path of the archive in front.
    files = {path for path in loaded if isinstance(path, str) and os.path.isdir(_get_folder(path))}
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        mapped = {line[line.index("/") :].rstrip("\n") for line in maps if "/" in line}
    mapped.add(os.path.join(sys.prefix, "pyvenv.cfg"))
    for folder in _list_search_path():
        mapped.update(os.path.join(folder, n) for n in _list_modules(folder) if n.endswith(".pth"))
    return files | set(filter(os.path.exists, mapped))


def _get_folder(path: str) -> str:
    return os.path.dirname(path) or "."


def _list_package_folders() -> set[str]:
    paths = [getattr(module, "__path__", None) for module in list(sys.modules.values())]
    return {folder for path in paths if isinstance(path, list) for folder in path}


def _list_search_path() -> Iterator[str]:
    """Yield the folders of sys.path, and that of the user's own packages, which may be new."""
    yield from sys.path
    site: Any = sys.modules.get("site")
    if getattr(site, "ENABLE_USER_SITE", None) and site.USER_SITE not in sys.path:
        yield site.USER_SITE


def _list_modules(folder: str) -> tuple[str, ...]:
    """Return the names in a folder that can be modules, packages or .pth files; () if none."""
    try:
        names = sorted(os.listdir(folder or "."))
    except OSError:  # such as a file that is a zip archive
        return ()
    return tuple(
        name
        for name in names
        if name.endswith(".pth")
        or (name.partition(".")[0].isidentifier() and os.path.splitext(name)[1] in _MODULES)
    )


# --- checks that a process is fit to be forked ---

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
