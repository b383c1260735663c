"""What both ways to supervise do, as types: `linux.py` and `portable.py` are such a `System`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Protocol

    from ...wire.ulimits import Limit
    from .unix import Ended

    class Process(Protocol):
        """One process: its parent and session, what it has used, and how much memory it holds.

        `cpu_s` is in seconds.
        """

        @property
        def pid(self) -> int: ...
        @property
        def parent(self) -> int: ...
        @property
        def session(self) -> int: ...
        @property
        def cpu_s(self) -> float: ...
        @property
        def rss_kib(self) -> int: ...

    class OutOfMemory(Protocol):
        """What the system's out-of-memory killer has done, from when this was made."""

        def evidence(self, pid: int) -> str | None:
            """What is known of a process that has just died.

            Returns:
                what it says; empty where the killer has done nothing; None where that cannot be
                known.

            """

    class System(Protocol):
        """A way to supervise."""

        @property
        def forks_ranks(self) -> bool:
            """Whether --preload can fork ranks."""

        @property
        def binds_cores(self) -> bool:
            """Whether a process can be bound to cores."""

        @property
        def holds_ports(self) -> bool:
            """Whether a bound port stays ours, and a rank can listen there beside us."""

        # --- this process ---

        def unfit(self) -> str:
            """Why this Python cannot be an agent; "" if it can."""

        def rename(self, name: str) -> None:
            """Have `ps` show this process as `name`, where it can be had."""

        def adopt_orphans(self, folder: str) -> None:
            """Have every orphan below this process among its `descendants` from now on.

            Args:
                folder: the job's private one.

            """

        def machine(self) -> str:
            """The same for two agents if and only if loopback is the same for both."""

        def cores(self) -> Sequence[Sequence[int]]:
            """The physical cores, each as its hardware threads; none where ranks get no own."""

        def usable_cores(self) -> int:
            """On how many hardware threads this process may run; 0 where nobody knows."""

        def memory_kib(self) -> tuple[int, int]:
            """All memory of this machine, and what is free of it, in KiB; 0 where nobody knows."""

        def out_of_memory(self) -> OutOfMemory:
            """What the out-of-memory killer does from now on."""

        # --- spawn ---

        def spawn(
            self,
            argv: Sequence[str],
            env: dict[str, str],
            cwd: str,
            standard: Sequence[int],
            cores: Sequence[int] | None = None,
            files_limit: Limit | None = None,
        ) -> int:
            """Start a process in a session of its own, with the default signals; its pid.

            Args:
                argv: the program, as a shell would find it, and its arguments.
                env: its whole environment.
                cwd: its working directory; this process's too from now on.
                standard: the descriptors that become its 0, 1 and 2.
                cores: what it may run on; None for all.
                files_limit: of its open files (see `ulimits.allow_many_files`); None for this
                    process's.

            Raises:
                SpawnError: the program cannot be executed, or the directory cannot be entered.
                OSError: there is no room for another process.

            """

        # --- deaths ---

        def ended_child(self) -> Ended | None:
            """A child that has ended, not reaped yet; None if none has, but something still runs.

            Raises:
                Childless: nothing of the job is left on this host.

            """

        def look_at(self) -> float | None:
            """When to ask again, in time.monotonic's seconds; None: SIGCHLD tells of every end."""

        def wait(self) -> None:
            """Wait until it is time to ask again."""

        def status_of(self, pid: int) -> int | None:
            """The status of one child that has ended, not reaped yet; None if it still runs.

            For the server of --preload: where ranks are not forked nobody asks.
            """

        def reap(self, pid: int) -> tuple[float, int]:
            """Let go of an ended child; its seconds of processor time, and its peak in KiB."""

        def ending(self, processes: dict[int, int]) -> frozenset[int]:
            """Those that have ended, or are about to: nothing they are sent matters any more.

            Args:
                processes: pid -> what to call it in the answer.

            """

        # --- kill ---

        def signal_group(self, pgid: int, signum: int) -> None:
            """Signal a process group whose leader has not been reaped."""

        def signal_process(self, pid: int, signum: int) -> None:
            """Signal one process, if it is still there and this user may signal it."""

        def signal_undisturbed(self, pid: int, signum: int) -> bool:
            """Signal another thread, if the main one is in a call that would end; whether so."""

        def handles(self, pid: int, signum: int) -> bool:
            """Whether a process does not die of a signal for which its hook has a handler."""

        # --- descendants, and what they use ---

        def descendants(self) -> list[int]:
            """All processes of the job below this one, parents first."""

        def group_of(self, pid: int) -> int:
            """The process group of a process; 0 if it is gone."""

        def processes(self) -> Iterable[Process]:
            """The processes of this host, as far as they may be the job's."""

        def main_thread(self, pid: int) -> tuple[float, int]:
            """The processor time of a process's main thread, and how often it has had to wait."""

        def command(self, pid: int) -> list[str]:
            """The command line of a process; empty where it cannot be read."""

        def describe(self, pid: int) -> str:
            """A process for a person: `"sleep" is sleeping in the kernel (hrtimer_nanosleep)`."""

        def blocked_in(self, pid: int) -> str:
            """Where in the kernel its main thread waits; "" if it runs, or nobody knows."""
