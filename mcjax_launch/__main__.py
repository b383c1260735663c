"""`python -m mcjax_launch`, and the installed command: the launcher, and the agent beside it."""

# First of all, and without what `signal` imports: a Ctrl-C during the imports is no traceback.
import _signal
import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn


_MOST_FILES = 256
_AGENT_END_S = 2
_NOT_WINDOWS = "does not run on Windows: run it in WSL (`wsl --install`), which counts as Linux"
_USAGE = 2


def _leave_on_signals() -> None:
    """End at once of a signal that ends jobs, until the job's own events take over."""
    ending = [_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP]
    if _signal.getsignal(_signal.SIGHUP) == _signal.SIG_IGN:  # nohup
        ending.remove(_signal.SIGHUP)
    for signum in ending:
        _signal.signal(signum, lambda signum, frame: _leave(128 + signum))
    # A parent may hold them back, or ignore its children.
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, ending)


def _leave(status: int) -> None:
    """End with this status; an agent that has been started sees the launcher go, and ends too."""
    os.closerange(3, _MOST_FILES)
    _signal.signal(_signal.SIGALRM, lambda signum, frame: os._exit(status))
    _signal.alarm(_AGENT_END_S)
    try:
        while True:
            os.waitpid(-1, 0)
    except ChildProcessError:
        os._exit(status)


if sys.platform != "win32":
    _leave_on_signals()


def run() -> "NoReturn":
    """Run the command line and exit at once: Python has nothing to clean up."""
    if sys.platform == "win32":
        sys.stderr.write(f"mcjax-launch: {_NOT_WINDOWS}\n")
        sys.exit(_USAGE)
    _open_standard()
    gc.disable()  # what is imported stays; `launcher/entry.py` enables it again
    from mcjax_launch.transport import early

    early.fork(sys.argv[1:], os.environ, _load_agent)
    from mcjax_launch.cli.command import main

    status = main()
    early.dismiss()
    os._exit(status)


def _open_standard() -> None:
    """Open /dev/null for each closed descriptor of 0, 1 and 2, so that no other file gets it."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _load_agent() -> "Callable[[str], object]":
    """Import the agent, name this process after it, and return the function that runs it."""
    from mcjax_launch.agent.main import main
    from mcjax_launch.agent.system import system

    system.set_process_name("mcjax_launch agent")
    return main


if __name__ == "__main__":
    run()
