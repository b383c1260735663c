"""Types of the keywords that `launch` and `run` accept."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set
from typing import Literal, TypedDict

from mcjax_launch.python.events import OnEvent, OnLine

Path = str | os.PathLike[str]
Duration = float | str
Words = str | Sequence[str]


class Keywords(TypedDict, total=False):
    """Keywords of `launch`; None means not given.

    Most are options of the command, see docs/reference.md. Durations are in seconds, or written as
    on the command line: "5m".
    """

    # Written by scripts/options.
    processes: int | None
    module: bool
    python: Path | None
    chdir: Path | None
    env: Mapping[str, object] | None
    env_file: Path | Sequence[Path] | None
    env_style: Literal["torch"] | None
    wrap: Words | None
    no_hook: bool
    preload: Words
    compile_once: Literal["auto", "on", "off"]
    compile_cache: Path | None
    cpu_devices: int | None
    gpus_per_process: int | Literal["all"] | None
    tpu_chips_per_process: int | None
    slices: Literal["auto", "one", "host"] | int
    cpu_transfers: bool
    bind_cores: Literal["auto", "on", "off"]
    nice: int
    hosts: Path | Sequence[str] | None
    procs_per_host: int | None
    via: str | None
    sync: Path | Sequence[Path] | None
    no_host_cache: bool
    setup: str | None
    coordinator: str | None
    mtls: Literal["auto", "on", "off"]
    num_hosts: int | None
    host_rank: int | None
    log_dir: Path | None
    show: str | int | Set[int] | Sequence[int] | None
    collapse: Literal["always", "auto", "never"]
    timestamps: bool
    no_prefix: bool
    color: Literal["auto", "always", "never"]
    quiet: bool
    verbose: bool
    timeout: Duration | None
    start_timeout: Duration | None
    stall_timeout: Duration | None
    grace: Duration | None
    on_rank_failure: Literal["stop", "continue"]
    max_restarts: int
    preempted_status: int | None
    debugpy: int | None
    verify_spmd: bool
    profile: Path | None
    report: Path | None

    # Only for a program.
    echo: bool
    on_line: OnLine | None
    on_event: OnEvent | None
