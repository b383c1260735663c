"""Import server: imports modules once, and forks the ranks of its host.

It runs a rank's command; the hook stops it at the last moment before Python runs the program.
A forked rank only returns from the hook: Python itself then runs its program, as in any other rank.

The agent requests ranks one by one. When it closes the connection, the server ends, and the agent
adopts the ranks.
"""

from __future__ import annotations

import os
import sys

from ....hook import devices
from ....hook.stack_answers import Descriptor, answer_by_signal
from ....wire import hook_environ
from ....wire.codec import to_json
from ....wire.line import receive
from .. import messages as fork_messages
from . import forked_rank
from .first_import import FirstImport, apply_variables
from .forked_rank import System
from .forking import (
    OwnModules,
    Unfit,
    check_devices,
    check_jax,
    check_options,
    check_threads,
    fork,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

    from ....hook.agent_link import AgentLink

_MOST_PACKET = 1 << 20
_LONGEST_REASON = 300


class ImportServer:
    """Server that forks ranks; its own process never becomes a rank.

    Args:
        order: text that `ImportServerLink.start` has written.
        link: the hook's link to the agent; each rank connects it.
        environ: the hook's environment; each rank changes it to its own.

    """

    def __init__(self, order: str, link: AgentLink, environ: dict[str, str]) -> None:
        self._descriptor, modules, auto = order.split(":")
        self._modules = modules.split(",")
        self._is_auto = bool(auto)
        self._link = link
        self._environ = environ
        self._agent = os.getppid()
        self._system = System()
        self._cores = len(os.sched_getaffinity(0))
        self._variables: dict[str, str] = {}  # at the import
        self._seconds = 0.0

    def run(self, step_aside: Callable[[], object]) -> None:
        """Import the modules, and fork ranks; return only in each forked rank.

        Args:
            step_aside: last step of a rank's hook: runs the user's own sitecustomize.

        """
        try:
            connection = _open_connection(int(self._descriptor))
            answer_by_signal(Descriptor(connection.fileno()))
            try:
                check_options()
                _require(step_aside, "sitecustomize failed")
                self._import(connection)
                check_devices()
                check_threads()
            except Unfit as unfit:
                _send(connection, fork_messages.NotForked(str(unfit)[:_LONGEST_REASON]))
                os._exit(0)
            _send(connection, fork_messages.Imported(self._seconds))
            order = self._serve(connection)
        except BaseException as error:  # nothing may lead from here into the program
            sys.stderr.write(f"mcjax-launch: the import server failed: {error!r}; please report\n")
            os._exit(1)
        try:
            self._become(order)
        except BaseException as error:
            sys.stderr.write(f"mcjax-launch: a forked rank failed: {error!r}; please report\n")
            os._exit(1)

    # --- importing ---

    def _import(self, connection: socket.socket) -> None:
        """Import the ordered modules as the program would, and send the agent notices of that."""
        import _signal  # without signal's own imports
        import gc
        import time

        began = time.monotonic()
        interrupt = _signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # ends us without a traceback
        gc_was_enabled = gc.isenabled()
        gc.disable()  # nothing of what is imported is garbage
        first = _find_first_path_entry(self._environ)
        if first is not None:
            sys.path.insert(0, first)
        with OwnModules(first if self._is_auto else None):
            self._variables = dict(os.environ)
            for name in self._modules:
                self._load(connection, name)
        if first is not None and (not sys.path or sys.path.pop(0) != first):
            raise Unfit("an import has put another folder in front of sys.path")
        if os.environ.get("PYTHONHASHSEED", "random") == "random":
            raise Unfit("PYTHONHASHSEED=random asks for a different seed in each rank")
        if _signal.getsignal(_signal.SIGINT) == _signal.SIG_DFL:
            _signal.signal(_signal.SIGINT, interrupt)
        check_jax()
        if gc_was_enabled:
            gc.enable()
        self._seconds = time.monotonic() - began

    def _load(self, connection: socket.socket, name: str) -> None:
        _send(connection, fork_messages.ImportBegins(name))
        _require(lambda: __import__(name), f"cannot import {name}")
        loaded = self._modules[: self._modules.index(name) + 1]
        if all(_get_package(module) == "jax" for module in loaded):
            _freeze()

    # --- forking ---

    def _serve(self, connection: socket.socket) -> fork_messages.Fork:
        """Fork ranks until the agent hangs up; return only in a forked rank."""
        import _socket

        while True:
            # With it come a rank's 0, 1 and 2, and what it waits on.
            data, descriptors = receive(connection, _MOST_PACKET, _socket.MSG_CMSG_CLOEXEC)
            if not data:
                os._exit(0)
            order = fork_messages.Fork.of(data.decode())
            answer = self._fork_for_order(order)
            if answer is not None:
                _send(connection, answer)
            else:
                connection.close()
                forked_rank.set_up_process(
                    descriptors, order.settings, self._agent, self._system.prctl
                )
                return order
            for fd in descriptors:
                os.close(fd)

    def _fork_for_order(
        self, order: fork_messages.Fork
    ) -> fork_messages.Forked | fork_messages.NotForked | None:
        """Fork for an order; return the answer to the agent, None in the forked process."""
        if reason := self._find_difference(order):
            return fork_messages.NotForked(reason)
        try:
            pid = fork()
        except Unfit as unfit:
            return fork_messages.NotForked(str(unfit))
        return fork_messages.Forked(pid) if pid else None

    def _find_difference(self, order: fork_messages.Fork) -> str:
        """Return why a rank differs too much to be forked; "" if it can be forked."""
        mine, count = _read_command(), len(sys.argv) - 1
        its = list(order.argv)
        if len(its) != len(mine) or its[: len(its) - count] != mine[: len(mine) - count]:
            return "its command differs"
        cores = order.settings.cores
        if cores and len(cores) != self._cores:
            return "its number of cores differs"
        read = (*fork_messages.READ_AT_START, *fork_messages.READ_BY_LIBRARIES)
        if names := sorted(name for name in order.changes if name.startswith(read)):
            return f"{names[0]} differs between ranks, and is read before the program"
        try:
            os.chdir(order.cwd)  # which an import may have left
        except OSError as error:
            return f"{order.cwd}: {error.strerror}"
        return ""

    def _become(self, order: fork_messages.Fork) -> None:
        """Turn this forked process into the ordered rank: apply all its differences."""
        for environ in (self._environ, os.environ):
            for name, value in order.changes.items():
                if value is None:
                    environ.pop(name, None)
                else:
                    environ[name] = value
        count = len(sys.argv) - 1
        if count:
            sys.argv[1:] = order.argv[-count:]
            if hasattr(sys, "orig_argv"):
                sys.orig_argv[-count:] = order.argv[-count:]
        self._system.set_shown_command(order.argv, self._environ)
        forked_rank.renew()
        try:
            self._link.connect(
                self._environ[hook_environ.SOCKET], self._environ.get("JAX_PROCESS_ID", "")
            )
        except OSError:  # there is no agent: it is about to end this rank
            pass
        self._variables |= {n: v for n, v in order.changes.items() if v is not None}
        names = {"jax", *map(_get_package, self._modules)}
        FirstImport(names, self._on_first_import)

    def _on_first_import(self) -> None:
        """Complete the import of jax, or of a module that the user has named, in a forked rank."""
        self._link.send_held()
        devices.assign_gpus(self._environ)
        if missed := apply_variables(self._variables):
            self._link.send(fork_messages.SetTooLate(tuple(missed)))


def _get_package(module: str) -> str:
    return module.partition(".")[0]


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
        raise Unfit(f"{otherwise}: {_format_error(error)}") from None


def _freeze() -> None:
    """Freeze the imported objects, because garbage collection would write to all their pages.

    Only for JAX: frozen objects are not finalized at the end of a program.
    """
    import gc

    gc.collect()
    gc.freeze()


def _format_error(error: BaseException) -> str:
    text = str(error).strip()
    lines = text.splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _read_command() -> list[str]:
    """Return the command that this process was started with."""
    with open("/proc/self/cmdline", "rb") as cmdline:
        return [os.fsdecode(word) for word in cmdline.read().split(b"\0")[:-1]]


# --- the connection ---


def _open_connection(descriptor: int) -> socket.socket:
    """Return the socket of a descriptor, which processes started from now on do not inherit."""
    import _socket

    os.set_inheritable(descriptor, False)
    return _socket.socket(fileno=descriptor)  # type: ignore[return-value]


def _send(connection: socket.socket, message: fork_messages.ForkMessage) -> None:
    connection.send(to_json(message).encode())


RUN_INSTEAD = ImportServer
