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
from .fitness import OwnModules, Unfit, check_devices, check_threads, check_tools, flush
from .forked_rank import ForkedRank, System
from .loaded_files import LoadedFiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping
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
