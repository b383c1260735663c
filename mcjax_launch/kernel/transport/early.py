"""The agent of this machine, forked in the launcher's first moments.

While the launcher imports what reads its command line, the agent imports what it needs itself. It
then waits for a word: not before that does it own anything.
"""

import _signal
import itertools
import os
import sys
from collections.abc import Callable, Mapping, MutableMapping, Sequence

from mcjax_launch.kernel.transport.pipes import NewPipes, Pipes
from mcjax_launch.kernel.wire import schedulers
from mcjax_launch.kernel.wire.system import LINUX

# What starts no agent on this machine, or leaves that to a hosts file, as does a scheduler's
# allocation. A guess: an agent that turns out not to be wanted, or to be missing, costs a moment.
_NO_AGENT = ("--help", "--version", "--dry-run", "--emit", "--hosts")
_NO_AGENT_IN = ("MCJAX_DRY_RUN", "MCJAX_EMIT", "MCJAX_HOSTS", "_MCJAX_LAUNCH_COMPLETE")
_CLIENT = "_MCJAX_LAUNCH_CLIENT"  # see `events.client`
_ENDING = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP)

#: The folder of the hook's modules.
HOOK = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "hook", "site")

Main = Callable[[str], object]

_forked: list[Pipes] = []


def fork(words: Sequence[str], environ: Mapping[str, str], load: Callable[[], Main]) -> None:
    """Fork the agent, if the job is likely to need one; nothing happens if that fails.

    Args:
        words: of the command line.
        environ: of this process.
        load: called in the new process: imports the agent, and returns what runs it.

    """
    if not LINUX or not _is_likely(words, environ) or _is_watched():
        return  # to go on without exec after a fork is not safe everywhere
    from mcjax_launch.kernel.wire import frames, system  # noqa: F401  once for both processes

    try:
        pipes = NewPipes()
    except OSError:
        return  # who needs them says what is wrong
    # What is sent to the new process from its first moment on waits until it can act on that:
    # Python forgets signals that come during a fork.
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
    _forked.append(pipes.given_to(pid))


def _is_likely(words: Sequence[str], environ: Mapping[str, str]) -> bool:
    otherwise = any(word == "-h" or word.startswith(_NO_AGENT) for word in words)
    elsewhere = any(name in environ for name in _NO_AGENT_IN) or schedulers.around(environ)
    return bool(words) and not otherwise and not elsewhere


def _is_watched() -> bool:
    """Whether somebody's debugger, profiler or thread is here: not to be forked."""
    return bool(sys.gettrace() or sys.getprofile()) or len(sys._current_frames()) > 1


def _close_for_readers(words: Sequence[str], environ: MutableMapping[str, str]) -> None:
    """Close descriptors for readers of events: no rank is to hold them open, or to know of them."""
    texts = [value for word, value in itertools.pairwise(words) if word == "--events"]
    texts += [word.removeprefix("--events=") for word in words]
    texts += [environ.get("MCJAX_EVENTS", ""), *environ.pop(_CLIENT, "").split()]
    for text in texts:
        number = text.removeprefix("fd:").strip(",}")
        if number.isdecimal() and (text.startswith("fd:") or text.endswith((",", "}"))):
            os.closerange(int(number), int(number) + 1)  # it may not be open


def _become(pipes: NewPipes, load: Callable[[], Main], words: Sequence[str]) -> None:
    """The new process's side: never returns."""
    try:
        os.setsid()
        for target, fd in enumerate(pipes.theirs):
            os.dup2(fd, target)
        pipes.close()
        _close_for_readers(words, os.environ)
        for signum in (*_ENDING, _signal.SIGCHLD):
            _signal.signal(signum, _signal.SIG_DFL)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
        # A folder of the user's, of PYTHONPATH or of a `python -m`, comes after Python's own.
        sys.path.sort(key=lambda folder: not folder.startswith(os.path.dirname(os.__file__)))
        main = load()
        if os.read(0, 1):
            main(HOOK)
        os._exit(0)  # the launcher has another use, or is gone
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(1)


def take() -> Pipes | None:
    """The agent that has been forked, which is told to begin; None if there is none, or no more."""
    if not _forked:
        return None
    pipes = _forked.pop()
    try:
        os.write(pipes.to_agent, b"!")
    except BrokenPipeError:  # it has ended: as with any agent, that is seen later
        pass
    return pipes


def dismiss() -> None:
    """Nobody has taken it."""
    for pipes in _forked:
        os.kill(pipes.pid, _signal.SIGKILL)  # it has nothing to tidy up
        os.waitpid(pipes.pid, 0)
