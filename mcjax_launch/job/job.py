"""The Job: the user's request with all defaults filled in; a value."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Literal

from mcjax_launch.errors import LaunchError
from mcjax_launch.options.options import GRACE_S, Options
from mcjax_launch.options.wrappers import Wrapper
from mcjax_launch.ranks import format_ranks

#: The end of an error about a Python chosen by the user that has no jax.
WITHOUT_JAX = "has no jax: install it there, or choose another with --python"


class Job(Options, kw_only=True):
    """A job to run: all options, with the defaults of this machine and its hosts filled in.

    Durations are in seconds. A timeout of None is no limit; a grace of None is `GRACE_S`.
    """

    # Returns PROGRAM with coordinates that could not be filled in, for hints.
    suggest_program: Callable[[], tuple[str, ...]] = tuple
    program_hint: str = ""  # advice for hosts without PROGRAM's file
    num_processes: int = 1  # of the whole job
    num_hosts: int = 1  # more than 1: each has its own launcher, started by a scheduler
    host_rank: int = 0  # the number of this launcher among them
    python: str
    python_given: bool = False
    python_origin: str = ""  # why this Python, in words; "" if the user has named it
    python_without_jax: str = ""  # the end of an error if it has no jax; "" if it has
    chdir: str
    chdir_given: bool = False
    env: tuple[tuple[str, str], ...] = ()  # type: ignore[assignment]  # (name, value) pairs
    via: str = "ssh"  # how to reach hosts other than this one: ssh, srun or a template
    coordinator: str | None = None  # numeric host, or host:port
    coordinator_name: str = ""  # of that host, if ranks are to look it up; else ""
    hook: bool = True
    wrappers: tuple[Wrapper, ...] = ()  # of ranks that run under other commands
    alone: tuple[int, ...] = ()  # the ranks that run, without the others
    host_sizes: tuple[int, ...] = ()  # if they do: the number of ranks on each host
    survives: bool = False  # ranks may go on when another one fails
    reads_input: bool = False  # rank 0 reads the launcher's standard input
    asks_jax: bool = False  # hosts are asked for the version of their jax
    record: bool = False  # keep the ranks' usage over time, and their last output
    awaits_failures: bool = False  # a host that fails does not end the start of the others
    has_calls: bool = False  # its ranks make calls of the program that has started the launcher
    on_github: bool = False  # the output goes to a log of GitHub Actions
    job_id: str = ""  # of all attempts; "": each gets its own

    def get_grace_s(self, reason: str) -> float:
        """Return the seconds that ranks get to exit; `reason` for the end is a key of GRACE_S."""
        return GRACE_S[reason] if self.grace is None else self.grace

    @property
    def processes_here(self) -> int:
        """The number of ranks that this launcher starts."""
        return len(self.alone) or self.num_processes // self.num_hosts

    @property
    def ranks_here(self) -> Sequence[int]:
        """The ranks that this launcher starts."""
        if self.alone:
            return self.alone
        first = self.host_rank * self.processes_here
        return range(first, first + self.processes_here)

    def expand_ranks(
        self, option: str, ranks: frozenset[int] | Literal["all"] | None
    ) -> frozenset[int]:
        """Return the ranks in an option's value; "all" gives all ranks, None gives none.

        Raises:
            LaunchError: the job has no such rank.

        """
        if ranks == "all":
            return frozenset(range(self.num_processes))
        check_ranks(option, ranks or frozenset(), self.num_processes)
        return ranks or frozenset()

    @property
    def uses_cpu(self) -> bool:
        """True if the ranks are known to use JAX's CPU devices."""
        return self.cpu_devices is not None or dict(self.env).get("JAX_PLATFORMS") == "cpu"

    @property
    def is_python(self) -> bool:
        """True if PROGRAM is a *.py file or a module, so that the ranks' Python runs it."""
        return is_python(self.program, self.module)

    @property
    def expects_hooks(self) -> bool:
        """True if each rank's own process is a Python that loads the hook."""
        name, *words = self.program
        if not self.hook or self.is_python:
            return self.hook
        options = takewhile(lambda word: word[:1] == "-" and word[:2] not in ("-c", "-m"), words)
        without = any(word[:2] == "--" or set(word) & set("IESVh?") for word in options)
        return os.path.basename(name).startswith("python") and not without


def is_python(program: Sequence[str], module: bool) -> bool:
    """Return whether a program is a *.py file or a module, which the ranks' Python runs."""
    return module or program[0].endswith(".py")


def check_ranks(option: str, ranks: frozenset[int], num_processes: int) -> None:
    """Refuse an option's value with ranks that the job does not have."""
    if max(ranks, default=0) >= num_processes:
        there_are = format_ranks(range(num_processes))
        raise LaunchError(f"{option} {max(ranks)}: no such rank; the job has {there_are}")
