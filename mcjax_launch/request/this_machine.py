"""Facts that this machine adds to the options: directory, Python, variables, addresses."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from mcjax_launch.errors import LaunchError
from mcjax_launch.job.hosts import Host
from mcjax_launch.machine import known_schedulers
from mcjax_launch.options.options import Options
from mcjax_launch.request import ranks_python
from mcjax_launch.request.hosts import choose_via
from mcjax_launch.request.program import advise_missing_program
from mcjax_launch.request.ranks_python import RanksPython
from mcjax_launch.request.variables import collect_variables
from mcjax_launch.wire.address import is_loopback, join_address, split_address
from mcjax_launch.wire.exit_status import TIMED_OUT, USAGE

# --- --coordinator ---

_PAUSE_S = 0.5


def resolve_coordinator(text: str, wait_s: float, say: Callable[[str], object]) -> str:
    """Return the coordinator's `host:port` with a numeric host; port 0 if none is given.

    Args:
        text: value of --coordinator.
        wait_s: seconds to wait for the name to resolve: its pod may not have started yet.
        say: called with a line, once, if there is a wait.

    Raises:
        LaunchError: the address cannot be read, or its name does not resolve.

    """
    host, port = _split(text)
    import socket

    deadline, said = time.monotonic() + wait_s, False
    while True:
        try:
            entries = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            break
        except UnicodeError:  # a part between dots that is empty or too long
            raise LaunchError(f"--coordinator {text}: {host!r} is not a valid host name") from None
        except OSError as error:
            if time.monotonic() >= deadline:
                late = f"; waited for {wait_s:g} s (--start-timeout)" if wait_s else ""
                message = f"--coordinator {text}: {host}: {error.strerror}{late}"
                raise LaunchError(message, TIMED_OUT if wait_s else USAGE) from None
            if not said:
                say(f"waiting for the name {host}")
            said = True
            time.sleep(_PAUSE_S)
    entries.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return join_address(str(entries[0][4][0]), port)


def choose_lasting_name(text: str, address: str) -> str:
    """Return the coordinator's host name, for ranks to resolve; "" to use its address.

    A name is better than an address because a restarted pod gets another address.

    Args:
        text: value of --coordinator.
        address: resolved address, as `host:port`.

    """
    host, found = _split(text)[0], split_address(address)[0]
    return "" if host == found or is_loopback(host) or is_loopback(found) else host


def _split(text: str) -> tuple[str, int]:
    try:
        host, port = split_address(text)
        if not host or not 0 <= port < 65536:
            raise ValueError
    except ValueError:
        raise LaunchError(f"--coordinator {text}: write HOST or HOST:PORT") from None
    return host, port


# --- what this machine adds ---

# A coordinator's name may take this long to appear, without --start-timeout.
_NAME_S = 1800.0


class ThisMachine(NamedTuple):
    """Facts that this machine adds to the options: values of the same fields of a Job."""

    chdir: str
    python: RanksPython
    env: tuple[tuple[str, str], ...] = ()
    program_hint: str = ""
    coordinator: str | None = None
    coordinator_name: str = ""
    via: str = "ssh"
    on_github: bool = False


def runs_here(hosts: Sequence[Host]) -> bool:
    """Return whether a host is this machine and has no chdir= of its own."""
    return any(host.is_local and not host.chdir for host in hosts)


def is_on_github(environ: Mapping[str, str]) -> bool:
    """Return whether the output goes to a log of GitHub Actions."""
    return environ.get("GITHUB_ACTIONS") == "true"


def collect_facts(
    options: Options,
    hosts: Sequence[Host],
    environ: Mapping[str, str],
    say: Callable[[str], object],
) -> ThisMachine:
    """Collect the facts that this machine adds to the options.

    Args:
        options: options of the job.
        hosts: hosts of the job.
        environ: variables of this process.
        say: called with a line if a wait takes long, and for --verbose.

    Raises:
        LaunchError: a directory, Python, variable or address in the options does not exist.

    """
    here = runs_here(hosts)
    chdir = _choose_folder(options, environ, here)
    coordinator, coordinator_name = _find_coordinator(options, say)
    return ThisMachine(
        chdir=chdir,
        python=ranks_python.find(options, hosts, environ, here),
        env=collect_variables(options, environ, say),
        program_hint=_format_program_hint(options, hosts),
        coordinator=coordinator,
        coordinator_name=coordinator_name,
        via=options.via or choose_via(options, environ),
        on_github=is_on_github(environ),
    )


def _format_program_hint(options: Options, hosts: Sequence[Host]) -> str:
    if not options.sync and all(host.is_local for host in hosts):
        return ""
    return advise_missing_program(options.program, options.module, options.sync)


def _choose_folder(options: Options, environ: Mapping[str, str], here: bool) -> str:
    try:
        chdir = os.path.abspath(options.chdir or _find_submit_folder(options, environ) or ".")
    except FileNotFoundError:
        raise LaunchError("the current directory no longer exists; name one with -C") from None
    if options.sync:  # in the staging folder
        return options.chdir or chdir
    if here and not os.path.isdir(chdir):
        raise LaunchError(f"-C {options.chdir}: no such directory")
    return chdir


def _find_submit_folder(options: Options, environ: Mapping[str, str]) -> str:
    """Return the folder a scheduler's job was submitted from, if this is the user's home instead.

    "" if that folder does not exist here, or if PROGRAM exists only in the home.
    """
    scheduler = known_schedulers.find_scheduler(environ)
    folder = environ.get(scheduler.folder, "") if scheduler else ""
    if not os.path.isdir(folder) or not _is_home(environ):
        return ""
    program = options.program[0] if options.program else ""
    only_here = os.path.exists(program) and not os.path.exists(os.path.join(folder, program))
    return "" if only_here else folder


def _is_home(environ: Mapping[str, str]) -> bool:
    try:
        return os.path.samefile(".", environ.get("HOME", ""))
    except OSError:
        return False


def _find_coordinator(options: Options, say: Callable[[str], object]) -> tuple[str | None, str]:
    if options.coordinator is None:
        return None, ""
    address = resolve_coordinator(options.coordinator, _choose_wait_s(options), say)
    several = (options.num_hosts or 1) > 1
    return address, choose_lasting_name(options.coordinator, address) if several else ""


def _choose_wait_s(options: Options) -> float:
    """Return the seconds to wait for the coordinator's name; 0 if none wait, as in --dry-run."""
    if not options.num_hosts or options.dry_run:
        return 0.0
    return _NAME_S if options.start_timeout is None else options.start_timeout
