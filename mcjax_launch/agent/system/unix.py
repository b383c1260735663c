"""Base class of the two implementations: code for every Unix, and defaults for the rest."""

from __future__ import annotations

import errno
import os
import sys

from ...machine import system
from ...wire.exit_status import RESET_IN_RANKS
from ...wire.rank_process import PLAIN
from ...wire.value import Value

TYPE_CHECKING = False

if TYPE_CHECKING:
    import resource
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Union

    from ...machine.system import Limit
    from ...wire.rank_process import RankSettings
    from .out_of_memory import OutOfMemory

    #: The descriptors that become 0, 1 and 2, and the limit of open files.
    Files = tuple[Sequence[int], Limit | None]
    #: The pid of a started program, or the reason why it cannot be started.
    Spawned = Union[int, OSError, "SpawnError"]

# Errors for too many processes or files, or too little memory.
_NO_ROOM = (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
# Units of a process's peak memory per KiB: macOS counts bytes, other systems KiB.
_PEAK_UNIT = 1024 if sys.platform == "darwin" else 1


#: Descriptor of a process's standard input, unless it has another: /dev/null, see `agent.main`.
NO_INPUT = 0


class SpawnError(Exception):
    """Error: a program cannot be started; `what` is the program or directory at fault."""

    def __init__(self, error: OSError, what: str) -> None:
        super().__init__(error.errno, what)
        self.errno = error.errno or 0
        self.what = what


class Invocation(Value):
    """Program to start, and what its process gets.

    Attributes:
        argv: the program, as a shell would find it, and its arguments.
        env: all environment variables.
        cwd: working directory.
        standard: descriptors that become 0, 1 and 2.
        settings: settings of a rank's process, such as its cores.
        files_limit: limit on open files (see `machine.system.allow_many_files`); None for that of
            the process that starts it.

    """

    argv: Sequence[str]
    env: dict[str, str]
    cwd: str
    standard: Sequence[int]
    settings: RankSettings = PLAIN
    files_limit: Limit | None = None

    @property
    def files(self) -> Files:
        return self.standard, self.files_limit


class Childless(Exception):
    """Exception: no child is left, so no process of the job is left on this host."""


class EndedChild(Value):
    """Ended child that is still a zombie, so that its pid and group are not reused.

    Attributes:
        status: exit status; below 0: minus the number of the signal that killed the child.

    """

    pid: int
    status: int


class HostProcess(Value):
    """Process of this host, with its processor time in seconds and its resident memory in KiB."""

    pid: int
    parent: int
    session: int
    cpu_s: float
    rss_kib: int


class Unix:
    """Services of the operating system for an agent: start, signal, examine and reap processes.

    Attributes:
        forks_ranks: True if --preload can fork ranks.
        binds_cores: True if a process can be bound to cores.
        holds_ports: True if the agent can keep a port bound while a rank listens on it. On BSD it
            cannot: a connection may go to the agent's socket, which does not listen.

    """

    forks_ranks = binds_cores = holds_ports = False

    def __init__(self) -> None:
        # If the end of a child can be noticed only by reaping: what each child has used, and the
        # ended children that `ended_child` has not returned yet.
        self._usage_of_reaped: dict[int, resource.struct_rusage] = {}
        self._unasked: list[EndedChild] = []

    # --- this process ---

    def explain_unfitness(self) -> str:
        """Return the reason why this Python cannot run an agent; "" if it can."""
        return ""

    def set_process_name(self, name: str) -> None:
        """Set the name that `ps` shows for this process, if possible."""

    def adopt_orphans(self, folder: str) -> None:
        """Have `list_descendants` include every orphan below this process from now on.

        Args:
            folder: path of the job's private folder.

        """
        raise NotImplementedError

    def get_machine_id(self) -> str:
        """Return an id that is equal for two agents if and only if they share loopback."""
        raise NotImplementedError

    def list_cores(self) -> Sequence[Sequence[int]]:
        """Return each physical core's hardware threads, by number; [] if ranks cannot be bound."""
        return []

    def make_out_of_memory_watch(self) -> OutOfMemory | None:
        """Return a watch over the out-of-memory killer; None if this system offers none."""
        return None

    def read_limits(self, pid: int) -> tuple[Limit, Limit]:  # noqa: ARG002
        """Return a process's limits of processor time and of file size; -1 if none or unknown."""
        return (-1, -1), (-1, -1)

    # --- spawn ---

    def spawn(self, program: Invocation) -> int:
        """Start one program as `spawn_all` does; return its pid.

        Raises:
            SpawnError: the program cannot be executed, or the directory cannot be entered.
            OSError: there is no room for another process.

        """
        (spawned,) = self.spawn_all([program])
        if isinstance(spawned, int):
            return spawned
        raise spawned

    def spawn_tool(self, argv: Sequence[str]) -> tuple[int, int]:
        """Start a program without input; return its pid, and a descriptor to read its output from.

        Raises:
            OSError: there is no such program, or no room.

        """
        out, end = os.pipe()
        os.set_blocking(out, False)
        try:
            return self.spawn(Invocation(argv, dict(os.environ), "/", (NO_INPUT, end, end))), out
        except (OSError, SpawnError) as error:
            os.close(out)
            raise OSError(error.errno, os.strerror(error.errno or 0)) from None
        finally:
            os.close(end)

    def spawn_all(self, programs: Iterable[Invocation]) -> list[Spawned]:
        """Start programs in sessions of their own, with default signal actions.

        This process enters their directories and stays in the last one.

        Returns:
            the pid of each, a SpawnError if it cannot be executed or its directory cannot be
            entered, or as the last an OSError if there is no room for another process or if
            `programs` raises it.

        """
        return start_each(programs, self._find_and_start)

    def _find_and_start(self, program: Invocation) -> int:
        """Start a program, found as a shell would find it; return its pid."""
        return try_each(find_paths(program), lambda path: self._start(path, program))

    def _start(self, path: str, program: Invocation) -> int:
        """Start the program at a path; return its pid."""
        how = {"setsid": True, "setsigmask": (), "setsigdef": RESET_IN_RANKS}
        # Not by file actions: these fail for descriptors above the limit.
        own = [os.dup(n) for n in range(3)]
        own_limit = become_standard(program.files)
        try:
            pid = os.posix_spawn(path, list(program.argv), program.env, **how)  # type: ignore[arg-type]
        finally:
            become_standard((own, own_limit))
            for fd in own:
                os.close(fd)
        try:
            program.settings.apply(pid)
        except ProcessLookupError:  # it has ended already
            pass
        return pid

    # --- ends of children ---

    def find_ended_child(self) -> EndedChild | None:
        """Return a child that has ended, without reaping it; None if all children still run.

        Raises:
            Childless: nothing of the job is left on this host.

        """
        try:
            if not hasattr(os, "waitid"):  # macOS before Python 3.13
                return self._pop_reaped_child()
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            raise Childless from None
        return None if found is None else EndedChild(found.si_pid, _decode_status(found))

    def _pop_reaped_child(self) -> EndedChild | None:
        if not self._unasked:
            self._keep_reaped(*os.wait4(-1, os.WNOHANG))
        return self._unasked.pop(0) if self._unasked else None

    def _keep_reaped(self, pid: int, status: int, used: resource.struct_rusage) -> None:
        if pid:
            self._usage_of_reaped[pid] = used
            self._unasked.append(EndedChild(pid, os.waitstatus_to_exitcode(status)))

    def get_check_time(self) -> float | None:
        """Return the time (time.monotonic) of the next check for ends; None if SIGCHLD suffices."""
        return None

    def wait_for_child(self) -> None:
        """Wait until a child ends, without reaping it, or until it is time to check again."""
        if hasattr(os, "waitid"):
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        else:
            self._keep_reaped(*os.wait4(-1, 0))

    def read_exit_status(self, pid: int) -> int | None:
        """Return a child's exit status (below 0: minus a signal) without reaping; None if it runs.

        Only the import server of --preload uses it, so only systems that fork ranks need it.
        """
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return None if found is None else _decode_status(found)

    def reap(self, pid: int) -> tuple[float, int]:
        """Reap an ended child; return its seconds of processor time, and its peak memory in KiB."""
        used = self._usage_of_reaped.pop(pid, None) or os.wait4(pid, 0)[2]
        return used.ru_utime + used.ru_stime, used.ru_maxrss // _PEAK_UNIT

    def select_ending(self, processes: Mapping[int, int]) -> frozenset[int]:
        """Return which processes have ended or are ending, so that signals have no effect.

        A process closes its sockets a moment before its parent can wait for it.

        Args:
            processes: mapping from each pid to the number for it in the result.

        """
        return frozenset(name for pid, name in processes.items() if self._is_ending(pid))

    def _is_ending(self, pid: int) -> bool:
        raise NotImplementedError

    # --- kill ---

    def signal_group(self, pgid: int, signum: int) -> None:
        """Send a signal to a process group; its leader must not have been reaped yet."""
        try:
            os.killpg(pgid, signum)
        except (ProcessLookupError, PermissionError):  # macOS: EPERM for a zombie-only group
            pass

    def signal_process(self, pid: int, signum: int) -> None:
        """Send a signal to a process, if it still exists and this user may signal it."""
        try:
            os.kill(pid, signum)
        except (ProcessLookupError, PermissionError):
            pass

    def signal_main_thread(self, pid: int, signum: int) -> bool:
        """Send a signal to the main thread, if possible; return whether it was sent."""
        self.signal_process(pid, signum)
        return True

    def is_pending(self, pid: int, signum: int) -> bool:  # noqa: ARG002
        """Return whether the main thread has not run since it was signaled; False if unknown."""
        return False

    def is_read(self, fd: int) -> bool:  # noqa: ARG002
        """Return whether the peer of a unix socket has read all that was sent; False if unknown."""
        return False

    def handles(self, pid: int, signum: int) -> bool:  # noqa: ARG002
        """Return whether a process has a handler for a signal or ignores it.

        On other systems than Linux, signals that hooks handle are ignored by default.
        """
        return bool(signum)

    # --- descendants, and what they use ---

    def list_descendants(self) -> list[int]:
        """Return the pids of all processes of the job below this process, parents first."""
        raise NotImplementedError

    def get_process_group(self, pid: int) -> int:
        """Return the id of a process's process group; 0 if the process is gone."""
        try:
            return os.getpgid(pid)
        except OSError:
            return 0

    def list_processes(self) -> Iterable[HostProcess]:
        """Return the processes of this host that may belong to the job."""
        raise NotImplementedError

    def read_environ(self, pid: int) -> Mapping[str, str]:  # noqa: ARG002
        """Return the environment that a process was started with; {} if it cannot be read."""
        return {}

    def read_command(self, pid: int) -> list[str]:
        """Return the command line of a process; [] if it cannot be read."""
        raise NotImplementedError

    def describe(self, pid: int) -> str:
        """Describe a process for the user: `"sleep" is sleeping in the kernel (wchan)`."""
        raise NotImplementedError


def become_standard(files: Files) -> Limit | None:
    """Make these descriptors 0, 1 and 2, and set the limit on open files; return the old limit."""
    descriptors, limit = files
    for target, fd in enumerate(descriptors):
        os.dup2(fd, target)
    return system.limit_files(limit)


def start_each(programs: Iterable[Invocation], start: Callable[[Invocation], int]) -> list[Spawned]:
    """Call `start` with each program, in its directory; see `Unix.spawn_all`."""
    results: list[Spawned] = []
    try:
        for program in programs:
            results.append(_start_in_directory(program, start))  # noqa: PERF401, errors keep them
    except OSError as error:
        results.append(error)
    return results


def _start_in_directory(program: Invocation, start: Callable[[Invocation], int]) -> Spawned:
    try:
        os.chdir(program.cwd)
    except OSError as error:
        return SpawnError(error, program.cwd)
    try:
        return start(program)
    except OSError as error:
        if (refused := explain_refusal(error, program)) is error:
            raise
        return refused


def explain_refusal(error: OSError, program: Invocation) -> OSError | SpawnError:
    """Return the error itself if there is no room for a process, else one that names PROGRAM."""
    return error if error.errno in _NO_ROOM else SpawnError(error, program.argv[0])


def find_paths(program: Invocation) -> list[str]:
    """Return the paths at which a program exists, in the order of PATH."""
    name = program.argv[0]
    if os.sep in name:
        return [name]
    folders = program.env.get("PATH", os.defpath).split(os.pathsep)
    paths = (os.path.join(folder, name) for folder in folders)
    return [path for path in paths if os.path.exists(path)]


def try_each(paths: Iterable[str], start: Callable[[str], int]) -> int:
    """Return what `start` returns for the first path that can be executed.

    Raises:
        OSError: there is none; a lacking permission counts more than a missing file.

    """
    error: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    for path in paths:
        try:
            return start(path)
        except (FileNotFoundError, NotADirectoryError):  # noqa: PERF203
            pass
        except PermissionError as found:  # PATH may have another later
            error = found
    raise error


def _decode_status(found: os.waitid_result) -> int:
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
