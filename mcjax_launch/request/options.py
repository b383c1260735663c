"""What a user may ask for: a value, the same for the command line and for a program."""

from __future__ import annotations

from typing import Literal

from mcjax_launch.protocol.value import Value

#: What --coordinator takes beside an address.
RELAYED = "ssh"


class Options(Value, kw_only=True):
    """What was asked for; None where an option was not given.

    Durations are in seconds. One field per option, named as on the command line; the defaults are
    those that --help shows.
    """

    program: tuple[str, ...] = ()  # and its arguments

    num_processes: int | None = None
    module: bool = False
    python: str | None = None
    chdir: str | None = None
    env: tuple[str, ...] = ()
    env_style: Literal["torch"] | None = None
    stdin: frozenset[int] | Literal["all"] | None = None
    wrap: tuple[str, ...] = ()
    no_hook: bool = False
    preload: tuple[str, ...] = ()

    cpu_devices: int | None = None
    gpus_per_process: int | Literal["all"] | None = None
    tpu_chips_per_process: int | None = None
    slices: Literal["auto", "one", "host"] | int = "auto"
    cpu_transfers: bool = False
    bind_cores: str = "auto"

    hosts: str | tuple[str, ...] | None = None  # several: the lines of a hosts file
    procs_per_host: int | None = None
    via: str | None = None
    sync: tuple[str, ...] = ()
    coordinator: str | None = None
    num_hosts: int | None = None
    host_rank: int | None = None

    log_dir: str | None = None
    show: frozenset[int] | None = None
    collapse: bool = False
    timestamps: bool = False
    no_prefix: bool = False
    color: Literal["auto", "always", "never"] = "auto"
    quiet: bool = False
    verbose: bool = False
    status: bool = False
    github: Literal["auto", "always", "never"] = "auto"

    timeout: float | None = None
    start_timeout: float | None = None
    stall_timeout: float | None = None
    grace: float | None = None
    max_restarts: int = 0
    min_hosts: int | None = None

    pdb: frozenset[int] | Literal["all"] | None = None
    debugpy: int | None = None
    verify_spmd: bool = False
    profile: str | None = None
    profile_after: float = 10.0
    report: str | None = None
    check: bool = False
    dry_run: bool = False

    emit: str | None = None
    image: str | None = None
    name: str | None = None
    namespace: str | None = None
    tpu: str | None = None
    engine_option: tuple[str, ...] = ()
