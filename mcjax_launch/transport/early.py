"""The agent of this machine, forked right after the launcher's start to save time.

While the launcher imports its own modules, the agent imports the agent's. It then waits for a byte
from the launcher, and makes no files or processes until that byte arrives.
"""

import _signal
import itertools
import os
import sys
from collections.abc import Callable, Mapping, MutableMapping, Sequence

from mcjax_launch.machine import known_schedulers
from mcjax_launch.machine.system import LINUX
from mcjax_launch.transport.pipes import NewPipes, Pipes

# Options and variables with which this machine probably needs no agent, as in a scheduler's
# allocation, or one that inherits standard input. A wrong guess costs only a moment.
_NO_AGENT = (
    *("--help", "--version", "--dry-run", "--emit", "--hosts", "--watch", "--stdin"),
    *("--detach", "--attach", "--jobs", "--stop", "--wait"),
)
_NO_AGENT_IN = (
    *("MCJAX_DRY_RUN", "MCJAX_EMIT", "MCJAX_HOSTS", "MCJAX_STDIN", "MCJAX_WATCH", "MCJAX_DETACH"),
    "_MCJAX_LAUNCH_COMPLETE",
)
#: The variable in which a client of the API names its descriptors, as JSON; see `journal.client`.
CLIENT = "_MCJAX_LAUNCH_CLIENT"
# Begins variables that one process of the command sets for another, and ranks do not get.
_PRIVATE = "_MCJAX_LAUNCH_"
_ENDING = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP)

#: The folder of the hook's modules.
HOOK = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "hook", "site")

Main = Callable[[str], object]

_forked: list[Pipes] = []


def fork(words: Sequence[str], environ: Mapping[str, str], load: Callable[[], Main]) -> None:
    """Fork the agent, if the job is likely to need an agent here; do nothing if that fails.

    Args:
        words: words of the launcher's command line.
        environ: environment variables of this process.
        load: called in the new process; imports the agent and returns the function that runs it.

    """
    if not LINUX or not _is_likely(words, environ) or _is_watched():
        return  # continuing without exec after a fork is not safe everywhere
    from mcjax_launch.machine import system  # noqa: F401  imported once for both processes
    from mcjax_launch.wire import frames  # noqa: F401  imported once for both processes

    try:
        pipes = NewPipes()
    except OSError:
        return  # a later attempt to make pipes reports the error
    # Signals to the new process stay pending until it can handle them: Python forgets signals that
    # arrive during a fork.
    _signal.pthread_sigmask(_signal.SIG_BLOCK, _ENDING)
    try:
        pid = os.fork()
    except OSError:
        pid = -1
    if pid == 0:
        _become(pipes, load, words)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, _ENDING)
    if pid < 0:
        pipes.close()
        return
    _forked.append(pipes.keep_own_ends(pid))


def _is_likely(words: Sequence[str], environ: Mapping[str, str]) -> bool:
    otherwise = any(word == "-h" or word.startswith(_NO_AGENT) for word in words)
    elsewhere = any(name in environ for name in _NO_AGENT_IN) or known_schedulers.find_scheduler(
        environ
    )
    return bool(words) and not otherwise and not elsewhere


def _is_watched() -> bool:
    """Return whether a debugger, a profiler or another thread makes forking unsafe."""
    return bool(sys.gettrace() or sys.getprofile()) or len(sys._current_frames()) > 1


def _close_for_readers(words: Sequence[str], environ: MutableMapping[str, str]) -> None:
    """Close the descriptors for readers of events and values, so that no rank inherits them."""
    places = [value for word, value in itertools.pairwise(words) if word == "--events"]
    places += [word.removeprefix("--events=") for word in words]
    places.append(environ.get("MCJAX_EVENTS", ""))
    numbers = [place.removeprefix("fd:") for place in places if place.startswith("fd:")]
    fds = [int(number) for number in numbers if number.isdecimal()]
    if client := environ.pop(CLIENT, ""):
        import json  # in the agent's process, and for few jobs

        fds += [fd for fd in json.loads(client).values() if type(fd) is int]  # not a flag
    for fd in fds:
        os.closerange(fd, fd + 1)  # it may not be open


def _become(pipes: NewPipes, load: Callable[[], Main], words: Sequence[str]) -> None:
    """Run the agent in the forked process, once the launcher claims it; never return."""
    try:
        os.setsid()
        for target, fd in enumerate(pipes.theirs):
            os.dup2(fd, target)
        pipes.close()
        _close_for_readers(words, os.environ)
        for signum in (*_ENDING, _signal.SIGCHLD):
            _signal.signal(signum, _signal.SIG_DFL)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
        # Python's own folders come before the user's, which PYTHONPATH or `python -m` has added.
        sys.path.sort(key=lambda folder: not folder.startswith(os.path.dirname(os.__file__)))
        for name in [name for name in os.environ if name.startswith(_PRIVATE)]:
            del os.environ[name]
        main = load()
        if os.read(0, 1):
            main(HOOK)
        os._exit(0)  # the launcher needs no agent, or is gone
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(1)


def claim() -> Pipes | None:
    """Let the forked agent begin; return its pipes, None if none was forked or it is claimed."""
    if not _forked:
        return None
    pipes = _forked.pop()
    try:
        os.write(pipes.to_agent, b"!")
    except BrokenPipeError:  # the agent has ended; as with any agent, that is noticed later
        pass
    return pipes


def dismiss() -> None:
    """Kill the forked agent, if it was not claimed."""
    for pipes in _forked:
        os.kill(pipes.pid, _signal.SIGKILL)  # the agent has nothing to clean up yet
        os.waitpid(pipes.pid, 0)
