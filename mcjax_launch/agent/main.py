"""Entry point of an agent: its process, its guardian process, and the report of its bugs."""

from __future__ import annotations

import gc
import os
import signal

from ..machine.known_schedulers import get_granted_gpus
from ..machine.loop import READ, Loop
from ..machine.system import allow_many_files, format_limit_error
from ..machine.temporary_folder import NoFolder
from ..machine.uplink import Uplink
from ..wire import exit_status, frames, messages
from ..wire.exit_status import ENDING, FORWARDED
from . import private_folder
from .agent import Agent
from .system import system
from .system.unix import Childless

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import NoReturn

# --- the guardian: waits, and cleans up after a killed agent ---

_PATIENCE_S = 5


def guard(agent: int, folder: str) -> NoReturn:
    """Wait for the agent to end; then kill its remaining processes, and exit with its status.

    Signals that end the job are passed on to the agent.

    Args:
        agent: pid of the agent.
        folder: path of the job's private folder, to be removed at the end.

    """
    system.adopt_orphans(folder)
    # The agent is the nearer subreaper: orphans come here only after its end.
    status = _wait_for(agent)
    signal.signal(signal.SIGALRM, lambda signum, frame: _leave(folder, status))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    # Repeated: a signal just before a wait is handled only after the wait.
    signal.setitimer(signal.ITIMER_REAL, _PATIENCE_S, 1)
    try:
        while True:
            if (ended := system.find_ended_child()) is not None:
                system.reap(ended.pid)
                continue
            for left in system.list_descendants():
                system.signal_process(left, signal.SIGKILL)
            system.wait_for_child()  # its orphans may appear next
    except Childless:
        _leave(folder, status)


def _wait_for(agent: int) -> int:
    """Wait for the agent to end; return its exit status, or minus the signal that ended it.

    Until then, forward signals that end the job, and continue the agent when it is stopped.

    Signals stay blocked and are received by sigwait: Python would not run a handler for a signal
    that arrives just before the wait.
    """
    awaited = (*ENDING, signal.SIGCHLD)
    signal.signal(
        signal.SIGCHLD, lambda signum, frame: None
    )  # an ignored signal would not be received
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    while True:
        pid, status = os.waitpid(agent, os.WUNTRACED | os.WNOHANG)
        if pid and not os.WIFSTOPPED(status):
            return os.waitstatus_to_exitcode(status)
        if pid:
            system.signal_process(agent, signal.SIGCONT)
        elif (signum := signal.sigwait(awaited)) in ENDING:
            system.signal_process(agent, signum)


def _leave(folder: str, status: int) -> NoReturn:
    private_folder.remove(folder)
    os._exit(exit_status.compute_exit_status(status))


# --- the agent, below its guardian ---

_LAST_MESSAGE_S = 5


def main(hook: str | dict[str, bytes], unkept: bytes = b"", given: int = -1) -> NoReturn:
    """Run the agent on descriptors 0 (from the launcher) and 1 (to the launcher).

    Args:
        hook: path of the hook's folder on this host; or, if the launcher has sent the code, the
            content of each file of the package, by its path.
        unkept: that code as it was sent, for the host to keep; b"" to keep nothing.
        given: descriptor that rank 0 gets as its standard input; -1 for none.

    """
    signal.alarm(0)  # the loader's
    os.environ.update(get_granted_gpus(os.environ))
    # Blocked until the agent and its guardian can handle them, and remove the folder.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    for signum in FORWARDED:  # a scheduler sends these to the whole step, for the ranks
        signal.signal(signum, signal.SIG_IGN)
    # The protocol's descriptors are moved away: a stray print or read must not reach them.
    control, uplink = os.dup(0), os.dup(1)
    if given >= 0:
        os.set_inheritable(given, False)  # only rank 0 gets it
    try:
        null = os.open(os.devnull, os.O_RDWR)
    except OSError as error:
        _leave_unfit(f"{os.devnull}: {error.strerror}: mknod -m 666 {os.devnull} c 1 3 makes it")
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    if why := system.explain_unfitness():
        _leave_unfit(why)
    try:
        folder = private_folder.make()
    except NoFolder as error:
        _leave_unfit(str(error))
    guarded, guarding = os.pipe()  # only the guardian holds the writing end
    try:
        agent = os.fork()
    except OSError as error:
        private_folder.remove(folder)
        _leave_unfit(f"cannot start a process: {format_limit_error(error)}")
    if agent:
        for fd in (control, uplink, guarded, *([given] if given >= 0 else [])):
            os.close(fd)
        guard(agent, folder)
    os.close(guarding)
    os.setsid()  # a signal to the client's group must not reach the agent
    if unkept:
        _keep(unkept)
    _be_agent(control, uplink, given, folder, guarded, hook)


def _be_agent(
    control: int,
    uplink: int,
    given: int,
    folder: str,
    guarded: int,
    hook: str | dict[str, bytes],
) -> NoReturn:
    """Serve the run in the agent's process, then exit; report a bug to the launcher.

    Args:
        control: descriptor of the messages from the launcher.
        uplink: descriptor for the messages to the launcher.
        given: as in `main`.
        folder: path of the job's private folder.
        guarded: pipe whose writing end only the guardian holds.
        hook: as in `main`.

    """
    gc.freeze()  # imported modules stay
    gc.enable()  # it is off if the agent was forked from the launcher
    out = Uplink(uplink, loop := Loop())
    files_limit = allow_many_files()
    try:
        system.adopt_orphans(folder)
        remote = not isinstance(hook, str)
        hook_folder = hook if isinstance(hook, str) else _write_hook(hook, folder)
        agent = Agent(control, out, loop, folder, hook_folder, remote, files_limit)
        agent.streams.input = given
        _end_with_guardian(guarded, loop)
        agent.run()
    except NoFolder as error:
        _leave_unfit(str(error))
    except BaseException as error:
        import traceback

        text = traceback.format_exc()
        os.write(2, text.encode("utf-8", "replace"))
        signal.alarm(_LAST_MESSAGE_S)
        out.send_last(frames.encode_message(messages.InternalError(repr(error), text)))
        os._exit(exit_status.INTERNAL_ERROR)
    os._exit(0)  # nothing to finalize: it would only cost time


def _keep(payload: bytes) -> None:
    """Keep the agent's code on this host, so that the launcher need not send it again."""
    import io

    from ..wire import checksum
    from . import kept_files

    if (kept := kept_files.open_own(os.environ)) is not None:
        kept.keep(checksum.compute(payload), len(payload), io.BytesIO(payload))


def _end_with_guardian(guarded: int, loop: Loop) -> None:
    """Have the loop send this process SIGTERM when the guardian is gone."""

    def end() -> None:
        loop.forget(guarded)
        os.kill(os.getpid(), signal.SIGTERM)

    loop.watch(guarded, READ, lambda ready: end())


def _leave_unfit(why: str) -> NoReturn:
    """Exit before the greeting, because this host cannot take part; print the reason on stderr."""
    os.write(2, f"{frames.UNFIT}{why}\n".encode("utf-8", "replace"))
    os._exit(exit_status.HOST_LOST)


def _write_hook(files: dict[str, bytes], folder: str) -> str:
    """Write the hook and the modules it imports; return the folder for the ranks' PYTHONPATH.

    Args:
        files: content of each file of the package, by its path.
        folder: path of the folder in which to write.

    Raises:
        NoFolder: the files cannot be written.

    """
    root = os.path.join(folder, "mcjax_launch")  # tracebacks recognise our files by it
    try:
        _write_files(files, root)
    except OSError as error:
        raise NoFolder(os.path.dirname(folder), error) from None
    return os.path.join(root, "hook", "site")


def _write_files(files: dict[str, bytes], root: str) -> None:
    for name, content in files.items():
        if "/agent/" not in f"/{name}" and "/agent." not in name:
            path = os.path.join(root, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(content)
