"""A job as `--emit` hands it to a scheduler; a value."""

import os
import sys
from collections.abc import Set
from dataclasses import dataclass

from mcjax_launch.job.command_line import CommandLine
from mcjax_launch.job.job import GRACE_S

# Options that give the size or go to the scheduler: not for the launcher that it starts.
_NOT_PASSED_ON = frozenset(
    {
        "emit",
        "num_hosts",
        "num_processes",
        "procs_per_host",
        "host_rank",
        "coordinator",
        "hosts",
        "via",
        "image",
        "name",
        "namespace",
        "tpu",
        "engine_option",
        "dry_run",
    }
)


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A job for a scheduler. Durations are in seconds.

    Args:
        kind: of `--emit`.
        command_line: of the launcher that is to run it.
        name: of the job.
        hosts: nodes, or pods.
        ranks: on each of them.
        gpus: on each of them; 0 for none.
        timeout: of each attempt; None for no limit.
        start_timeout: until all ranks have joined; None where the user says nothing.
        grace: from asking the ranks to exit to killing them.
        restarts: how often the job may be started again.
        can_shrink: it may then run on fewer hosts.
        relay: the launcher brings the ranks and their coordinator together.
        stdin: ranks read the launcher's standard input.
        pdb: ranks debug in the launcher's terminal.
        sync: files of this machine that the hosts get.
        report: where the launcher writes a record of the run.
        namespace: of Kubernetes.
        tpu: type and topology of its slices, if they are of TPUs.
        slices: how many they are.
        image: of the containers.
        engine_options: what the scheduler is to be told beside that; each reads them its own way.

    """

    kind: str
    command_line: CommandLine
    name: str
    hosts: int = 1
    ranks: int = 1
    gpus: int = 0
    timeout: float | None = None
    start_timeout: float | None = None
    grace: float = GRACE_S["TERM"]
    restarts: int = 0
    can_shrink: bool = False
    relay: bool = False
    stdin: bool = False
    pdb: bool = False
    sync: tuple[str, ...] = ()
    report: str | None = None
    namespace: str | None = None
    tpu: str | None = None
    slices: int = 1
    image: str | None = None
    engine_options: tuple[str, ...] = ()

    @property
    def attempt_s(self) -> float | None:
        """The longest that an attempt may take; None for no limit."""
        return None if self.timeout is None else self.timeout + self.grace

    def command(self) -> list[str]:
        """The launcher, by a path that the nodes of a cluster share, and its words."""
        path = os.path.abspath(sys.argv[0])
        if os.path.isfile(path) and os.access(path, os.X_OK) and not path.endswith("__main__.py"):
            return [path, *self.words()]
        return [sys.executable, "-m", "mcjax_launch", *self.words()]

    def words(self, without: Set[str] = frozenset()) -> list[str]:
        """What the launcher there is given.

        Args:
            without: options that the scheduler sees to.

        """
        left_out = _NOT_PASSED_ON | without
        return self.command_line.words(left_out - {"coordinator"} if self.relay else left_out)


def default_name(program: str) -> str:
    """A name that every scheduler accepts, after the program."""
    stem = os.path.basename(program).removesuffix(".py").lower()
    clean = "".join(char if char.isascii() and char.isalnum() else "-" for char in stem).strip("-")
    return clean if clean[:1].isalpha() else f"job-{clean}".rstrip("-")
