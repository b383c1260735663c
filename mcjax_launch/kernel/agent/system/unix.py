"""What an agent asks of a system: what every Unix does alike, and the least where they differ."""

from __future__ import annotations

import errno
import os
import sys

from ...wire import system
from ...wire.rank_process import PLAIN
from ...wire.signals import RESET_IN_RANKS
from ...wire.value import Value

TYPE_CHECKING = False

if TYPE_CHECKING:
    import resource
    from collections.abc import Iterable, Mapping, Sequence

    from ...wire.rank_process import RankSettings
    from ...wire.system import Limit
    from .out_of_memory import OutOfMemory

    #: The descriptors that become 0, 1 and 2, and the limit of open files.
    Files = tuple[Sequence[int], Limit | None]
    #: Those, and what else a new process gets.
    Given = tuple[Files, RankSettings]

# There are too many processes or files, or there is too little memory.
_NO_ROOM = (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
# What a process has used at its peak: macOS counts bytes, the others KiB.
_PEAK_UNIT = 1024 if sys.platform == "darwin" else 1


class SpawnError(Exception):
    """A program could not be started; `errno` and `what` say why."""

    def __init__(self, error: OSError, what: str) -> None:
        super().__init__(error.errno, what)
        self.errno = error.errno or 0
        self.what = what


class Childless(Exception):
    """There is no child left: the proof that nothing of the job is left on this host."""


class EndedChild(Value):
    """A child that has ended and is still a zombie, so its pid and group are not reused.

    Attributes:
        status: its exit status; below 0: minus the number of the signal that killed it.

    """

    pid: int
    status: int


class HostProcess(Value):
    """One process: its parent and session, what it has used (seconds), and its memory."""

    pid: int
    parent: int
    session: int
    cpu_s: float
    rss_kib: int


class Unix:
    """A way to supervise.

    Attributes:
        forks_ranks: --preload can fork ranks.
        binds_cores: a process can be bound to cores.
        adopts_orphans: SIGCHLD tells of the end of an orphan too.
        holds_ports: a bound port stays ours, and a rank can listen there beside us. BSD gives a
            connection to any of the sockets that share a port, also to one that does not listen.

    """

    forks_ranks = binds_cores = adopts_orphans = holds_ports = False

    def __init__(self) -> None:
        # Where an end cannot be seen without being reaped: what each of those has used, and how
        # those have ended that nobody has asked about yet.
        self._usage_of_reaped: dict[int, resource.struct_rusage] = {}
        self._unasked: list[EndedChild] = []

    # --- this process ---

    def unfit(self) -> str:
        """Why this Python cannot be an agent; "" if it can."""
        return ""

    def rename(self, name: str) -> None:
        """Have `ps` show this process as `name`, where it can be had."""

    def adopt_orphans(self, folder: str) -> None:
        """Have every orphan below this process among its `descendants` from now on.

        Args:
            folder: the job's private one.

        """
        raise NotImplementedError

    def machine(self) -> str:
        """The same for two agents if and only if loopback is the same for both."""
        raise NotImplementedError

    def cores(self) -> Sequence[Sequence[int]]:
        """The physical cores, each as its hardware threads; none where ranks get no own."""
        return []

    def usable_cores(self) -> int:
        """On how many hardware threads this process may run; 0 where nobody knows."""
        return 0

    def memory_kib(self) -> tuple[int, int]:
        """All memory of this machine, and what is free of it, in KiB; 0 where nobody knows."""
        return 0, 0

    def out_of_memory(self) -> OutOfMemory | None:
        """What the out-of-memory killer does from now on; None where nobody tells."""
        return None

    def limits(self, pid: int) -> str:  # noqa: ARG002, for those that know
        """Return the limits of a process as the kernel lists them; "" where it does not."""
        return ""

    # --- spawn ---

    def spawn(
        self,
        argv: Sequence[str],
        env: dict[str, str],
        cwd: str,
        standard: Sequence[int],
        settings: RankSettings = PLAIN,
        files_limit: Limit | None = None,
    ) -> int:
        """Start a process in a session of its own, with the default signals; its pid.

        As little Python as possible runs between this process and the program. So this process
        enters the directory, and takes on what the new one inherits.

        Args:
            argv: the program, as a shell would find it, and its arguments.
            env: its whole environment.
            cwd: its working directory; this process's too from now on.
            standard: the descriptors that become its 0, 1 and 2.
            settings: that it applies.
            files_limit: of its open files (see `wire.system.allow_many_files`); None for this
                process's.

        Raises:
            SpawnError: the program cannot be executed, or the directory cannot be entered.
            OSError: there is no room for another process.

        """
        try:
            os.chdir(cwd)
        except OSError as error:
            raise SpawnError(error, cwd) from None
        try:
            return self._spawned(argv, env, ((standard, files_limit), settings))
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise
            raise SpawnError(error, argv[0]) from None

    def _spawned(self, argv: Sequence[str], env: dict[str, str], given: Given) -> int:
        """The pid of a new process, whose program is found as a shell would find it."""
        error: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        for path in _places(argv[0], env):
            try:
                return self._start(path, argv, env, given)
            except (FileNotFoundError, NotADirectoryError):  # noqa: PERF203
                pass
            except PermissionError as found:  # another of that name may be behind it in PATH
                error = found
        raise error

    def _start(self, path: str, argv: Sequence[str], env: dict[str, str], given: Given) -> int:
        """Start the program at a path; return its pid."""
        how = {"setsid": True, "setsigmask": (), "setsigdef": RESET_IN_RANKS}
        # Not by file actions: within the limit they take no descriptor that is beyond it.
        own = [os.dup(n) for n in range(3)]
        files, settings = given
        own_limit = become_standard(files)
        try:
            pid = os.posix_spawn(path, list(argv), env, **how)  # type: ignore[arg-type]
        finally:
            become_standard((own, own_limit))
            for fd in own:
                os.close(fd)
        try:
            settings.apply(pid)
        except ProcessLookupError:  # it has ended
            pass
        return pid

    # --- deaths ---

    def ended_child(self) -> EndedChild | None:
        """A child that has ended, not reaped yet; None if none has, but something still runs.

        Raises:
            Childless: nothing of the job is left on this host.

        """
        try:
            if not hasattr(os, "waitid"):  # macOS before Python 3.13
                return self._reaped_child()
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            raise Childless from None
        return None if found is None else EndedChild(found.si_pid, _status(found))

    def _reaped_child(self) -> EndedChild | None:
        if not self._unasked:
            self._keep_reaped(*os.wait4(-1, os.WNOHANG))
        return self._unasked.pop(0) if self._unasked else None

    def _keep_reaped(self, pid: int, status: int, used: resource.struct_rusage) -> None:
        if pid:
            self._usage_of_reaped[pid] = used
            self._unasked.append(EndedChild(pid, os.waitstatus_to_exitcode(status)))

    def look_at(self) -> float | None:
        """When to ask again, in time.monotonic's seconds; None: SIGCHLD tells of every end."""
        return None

    def wait(self) -> None:
        """Wait until a child ends, which is not reaped, or it is time to ask again."""
        if hasattr(os, "waitid"):
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        else:
            self._keep_reaped(*os.wait4(-1, 0))

    def status_of(self, pid: int) -> int | None:
        """The status of one child that has ended, not reaped yet; None if it still runs.

        For the server of --preload: where ranks are not forked nobody asks.
        """
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return None if found is None else _status(found)

    def reap(self, pid: int) -> tuple[float, int]:
        """Let go of an ended child; its seconds of processor time, and its peak in KiB."""
        used = self._usage_of_reaped.pop(pid, None) or os.wait4(pid, 0)[2]
        return used.ru_utime + used.ru_stime, used.ru_maxrss // _PEAK_UNIT

    def ending(self, processes: Mapping[int, int]) -> frozenset[int]:
        """Those that have ended, or are about to: nothing they are sent matters any more.

        Their peers see their sockets closed a moment before their parent can wait for them.

        Args:
            processes: pid -> what to call it in the answer.

        """
        return frozenset(name for pid, name in processes.items() if self._is_ending(pid))

    def _is_ending(self, pid: int) -> bool:
        raise NotImplementedError

    # --- kill ---

    def signal_group(self, pgid: int, signum: int) -> None:
        """Signal a process group whose leader has not been reaped."""
        try:
            os.killpg(pgid, signum)
        except (ProcessLookupError, PermissionError):  # macOS: EPERM for a zombie-only group
            pass

    def signal_process(self, pid: int, signum: int) -> None:
        """Signal one process, if it is still there and this user may signal it."""
        try:
            os.kill(pid, signum)
        except (ProcessLookupError, PermissionError):
            pass

    def signal_main(self, pid: int, signum: int) -> bool:
        """Signal the main thread, as far as threads can be signalled; whether it takes it."""
        self.signal_process(pid, signum)
        return True

    def signal_undisturbed(self, pid: int, signum: int) -> bool:  # noqa: ARG002
        """Signal another thread, if the main one is in a call that would end; whether so."""
        return False

    def waits_for_lock(self, pid: int) -> bool:  # noqa: ARG002
        """Whether the main thread is in a wait that no signal ends."""
        return False

    def signal_aside(self, pid: int, signum: int) -> bool:  # noqa: ARG002
        """Signal a thread of which no call would end; whether there is one."""
        return False

    def handles(self, pid: int, signum: int) -> bool:  # noqa: ARG002
        """Whether a process does not die of a signal for which its hook has a handler.

        None does of what hooks without Linux handle.
        """
        return bool(signum)

    # --- descendants, and what they use ---

    def descendants(self) -> list[int]:
        """All processes of the job below this one, parents first."""
        raise NotImplementedError

    def group_of(self, pid: int) -> int:
        """The process group of a process; 0 if it is gone."""
        try:
            return os.getpgid(pid)
        except OSError:
            return 0

    def processes(self) -> Iterable[HostProcess]:
        """The processes of this host, as far as they may be the job's."""
        raise NotImplementedError

    def main_thread(self, pid: int) -> tuple[float, int]:
        """The processor time of a process's main thread, and how often it has had to wait."""
        raise NotImplementedError

    def environ(self, pid: int) -> Mapping[str, str]:  # noqa: ARG002
        """The environment that a process was started with; empty where it cannot be read."""
        return {}

    def command(self, pid: int) -> list[str]:
        """The command line of a process; empty where it cannot be read."""
        raise NotImplementedError

    def describe(self, pid: int) -> str:
        """A process for a person: `"sleep" is sleeping in the kernel (hrtimer_nanosleep)`."""
        raise NotImplementedError

    def blocked_in(self, pid: int) -> str:  # noqa: ARG002
        """Where in the kernel its main thread waits; "" if it runs, or nobody knows."""
        return ""


def become_standard(files: Files) -> Limit | None:
    """Have these descriptors as 0, 1 and 2, and this limit; return the limit before."""
    descriptors, limit = files
    for target, fd in enumerate(descriptors):
        os.dup2(fd, target)
    return system.limit_files(limit)


def _places(name: str, env: Mapping[str, str]) -> list[str]:
    """Where a program may be."""
    if os.sep in name:
        return [name]
    folders = env.get("PATH", os.defpath).split(os.pathsep)
    paths = (os.path.join(folder, name) for folder in folders)
    return [path for path in paths if os.path.exists(path)]


def _status(found: os.waitid_result) -> int:
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
