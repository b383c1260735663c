"""What the user asked for; a value."""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from itertools import takewhile
from typing import Literal

from mcjax_launch.job.wrappers import Wrapper
from mcjax_launch.protocol.value import Value

#: Seconds between asking the ranks to exit and killing them, by what ends the job.
GRACE_S = {"failure": 2.0, "INT": 5.0, "TERM": 30.0, "HUP": 30.0}


#: How many seconds a profile of --profile takes.
PROFILE_S = 5.0

#: What to say of a Python of the user's choice that has no jax.
WITHOUT_JAX = "has no jax: install it there, or choose another with --python"


class Job(Value, kw_only=True):
    """What the user asked for. Durations are in seconds; None where there is no limit."""

    program: tuple[str, ...]
    program_hint: str = ""  # what helps where its file is not on a host
    num_processes: int = 1  # of the whole job
    num_hosts: int = 1  # more than 1: each has its own launcher, started by a scheduler
    host_rank: int = 0  # which of these launchers this one is
    module: bool = False
    python: str
    python_given: bool = False
    python_origin: str = ""  # why this one, in words; "" where the user has named it
    python_without_jax: str = ""  # what to say of it if it has no jax; "" where it has
    chdir: str
    chdir_given: bool = False
    env: tuple[tuple[str, str], ...] = ()
    env_style: Literal["torch"] | None = None  # whose names of the coordinates ranks get too
    cpu_devices: int | None = None
    gpus_per_process: int | Literal["all"] | None = None  # None: they are shared equally
    tpu_chips_per_process: int | None = None
    slices: Literal["auto", "one", "host"] | int = "auto"
    cpu_transfers: bool = False
    bind_cores: str = "auto"
    coordinator: str | None = None  # numeric host, or host:port
    coordinator_name: str = ""  # of that host, where ranks are to look it up; else ""
    relay: bool = False  # ranks reach the coordinator through agents and launcher
    hook: bool = True
    stdin: frozenset[int] = frozenset()  # the ranks that take the launcher's standard input
    wrappers: tuple[Wrapper, ...] = ()  # of ranks that run under other commands
    sync: tuple[str, ...] = ()
    call: tuple[bytes | memoryview, ...] = ()  # of a function, pickled: see protocol/function_call
    max_restarts: int = 0
    min_hosts: int | None = None  # restart with so many at least, without lost ones; None: all
    timeout: float | None = None
    start_timeout: float | None = None
    stall_timeout: float | None = None
    verify_spmd: bool = False
    pdb: frozenset[int] = frozenset()  # the ranks in which an exception opens a debugger
    debugpy: int | None = None  # the first port on which ranks wait for an IDE
    record: bool = False  # for --report: keep what the ranks use over time, and print last
    profile: str | None = None  # the folder for JAX's profiles, absolute
    profile_after: float = 0.0  # seconds from initialize() to its begin
    grace: float | None = None
    preload: tuple[str, ...] = ()  # modules to import once a host

    def grace_s(self, reason: str) -> float:
        """The grace after `reason`, a key of GRACE_S."""
        return GRACE_S[reason] if self.grace is None else self.grace

    @property
    def processes_here(self) -> int:
        """How many of the ranks this launcher starts."""
        return self.num_processes // self.num_hosts

    @property
    def ranks_here(self) -> range:
        """The ranks that this launcher starts."""
        first = self.host_rank * self.processes_here
        return range(first, first + self.processes_here)

    @property
    def uses_cpu(self) -> bool:
        """Whether the ranks are known to use JAX's CPU devices."""
        return self.cpu_devices is not None or dict(self.env).get("JAX_PLATFORMS") == "cpu"

    @property
    def is_python(self) -> bool:
        """Whether the program is run with the ranks' Python."""
        return is_python(self.program, self.module)

    @property
    def expects_hooks(self) -> bool:
        """Whether each rank's own process is a Python that lets the hook in."""
        name, *words = self.program
        if not self.hook or self.is_python:
            return self.hook
        options = takewhile(lambda word: word[:1] == "-" and word[:2] not in ("-c", "-m"), words)
        without = any(word[:2] == "--" or set(word) & set("IESVh?") for word in options)
        return os.path.basename(name).startswith("python") and not without


def is_python(program: Sequence[str], module: bool) -> bool:
    """Whether a program is run with the ranks' Python."""
    return module or program[0].endswith(".py")
