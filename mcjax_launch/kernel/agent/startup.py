"""What has to be looked up and reserved on a host before any rank is started."""

from __future__ import annotations

import os
import socket

from ..wire import interpreter, rank_environ, ulimits
from ..wire.address import TPU_PORTS
from ..wire.exit_status import HOST_LOST, NOT_EXECUTABLE, NOT_FOUND, USAGE
from ..wire.loop import Loop
from ..wire.messages import Bind, HostFacts, Prepare, VisibleGpus
from ..wire.program_check import Unusable, check_python_file, find_command
from . import network, ports, tpu
from .system import system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class Prepared:
    """A host that is ready: what it has, and the ports that it holds.

    Args:
        wanted: what the launcher asks for.
        stage: the folder of the files that were sent, or "".
        loop: calls when somebody tries the coordinator's port.

    Raises:
        Unusable: the job cannot run here.

    """

    def __init__(self, wanted: Prepare, stage: str, loop: Loop) -> None:
        self.reserved: list[socket.socket] = []
        self._for_libtpu: list[socket.socket] = []
        self._loop = loop
        self._listening: ports.PortProbe | None = None
        self._cwd = folder(wanted, stage)
        self._check_limit(wanted)
        python = self._python(wanted)
        if wanted.command:
            self._check_command(wanted.command, wanted)
        for name in wanted.wrappers:
            self._check_command(name, wanted, "--wrap ")
        if wanted.bind_cores == "on" and not system.binds_cores:
            raise Unusable(
                "--bind-cores on: this system binds no process to cores; leave it out", USAGE
            )
        environ = {**os.environ, **wanted.env}
        self._tpu = tpu.look(environ) if wanted.tpus else None
        own_name = tuple(network.own_name()) if wanted.describe or wanted.towards else None
        gpus = _gpus(wanted) if wanted.gpus else VisibleGpus()
        binds = wanted.bind_cores == "on" or (wanted.bind_cores == "auto" and bool(gpus.near))
        self.facts = HostFacts(
            python=python,
            cwd=self._cwd,
            gpus=gpus,
            platforms=os.environ.get("JAX_PLATFORMS", ""),
            cores=tuple(map(tuple, system.cores())) if binds else (),
            port=self._coordinator(wanted),
            transfer_ports=tuple(self._reserve("", 0) for _ in range(wanted.transfer_ports)),
            address=network.source_towards(wanted.towards) if wanted.towards else "",
            own_name=own_name,
            addresses=tuple(network.own_addresses(own_name or ())) if wanted.describe else (),
            machine=system.machine() if wanted.describe else "",
            launcher=network.ssh_addresses()[0] if wanted.describe else "",
            tpu=self._tpu,
            tpu_ports=tuple(self._reserve_for_libtpu() for _ in range(wanted.tpu_ports)),
        )

    def stop_listening(self) -> None:
        """Leave the port to the coordinator, and others to libtpu."""
        if self._listening is not None:
            self._listening.close()
        for held in self._for_libtpu:  # which may not share them, as JAX's own service does
            held.close()
        if not system.holds_ports:
            for held in self.reserved:
                held.close()

    def _check_limit(self, wanted: Prepare) -> None:
        """Two pipes of each rank, and the hook's connection, are better known to fit before."""
        each = 3 if wanted.pythons else 2
        if why := ulimits.too_many_files(each * wanted.ranks):
            raise Unusable(why, HOST_LOST if wanted.remote else USAGE)

    def _python(self, wanted: Prepare) -> str:
        if not wanted.pythons:
            return ""
        pythons = interpreter.find(wanted.pythons, os.environ.get("PATH", os.defpath))
        if not pythons:
            raise Unusable(no_python(wanted.pythons), NOT_FOUND)
        if wanted.program:
            check_python_file(wanted.program, self._cwd, wanted.missing)
        program = wanted.program and os.path.join(self._cwd, wanted.program)
        needed = wanted.without_jax and program and interpreter.speaks_of_jax(program)
        if not needed and len(pythons) == 1:
            return pythons[0]
        found = self._first_with_jax(pythons, wanted)
        if needed and found is None:
            others = f" (nor {', '.join(pythons[1:])})" if len(pythons) > 1 else ""
            raise Unusable(f"{pythons[0]}{others} {wanted.without_jax}", USAGE)
        return found or pythons[0]

    def _first_with_jax(self, pythons: Sequence[str], wanted: Prepare) -> str | None:
        environ = {**os.environ, **wanted.env}
        try:
            return next((p for p in pythons if interpreter.has_jax(p, self._cwd, environ)), None)
        except OSError as error:
            raise Unusable(f"{error.filename}: {error.strerror}", NOT_EXECUTABLE) from None

    def _check_command(self, name: str, wanted: Prepare, option: str = "") -> None:
        """A command that is not there is better known before anything has run elsewhere."""
        path = {**os.environ, **wanted.env}.get("PATH", os.defpath)
        find_command(name, self._cwd, path, option, hint="" if option else wanted.missing)

    def _coordinator(self, wanted: Prepare) -> int:
        """Reserve the coordinator's port, and listen on it for the other hosts' attempts."""
        bind, listen = wanted.coordinator, wanted.listen
        if bind is None and self._may_be_first(wanted):
            bind, listen = Bind("", 0), True
        if bind is None:
            return 0
        port = self._reserve_open(bind) if listen else 0
        port = port or self._reserve(bind.host, bind.port)
        if listen:
            self._listening = ports.PortProbe(self.reserved[0], self._loop)
        return port

    def _may_be_first(self, wanted: Prepare) -> bool:
        """Whether rank 0 may come here after all: ranks follow the numbers of TPU workers."""
        mine = self._tpu
        is_first = mine is not None and (mine.worker, mine.slice_number) == (0, 0)
        return wanted.any_order and is_first

    def _reserve_open(self, bind: Bind) -> int:
        """A port that the network of a TPU slice passes, where there may be such a network."""
        if self._tpu is None or bind.port or bind.host:
            return 0
        for port in TPU_PORTS:
            try:
                self.reserved.append(ports.reserve("", port))
            except ports.PortTaken:
                continue
            return port
        return 0

    def _reserve_for_libtpu(self) -> int:
        held = ports.reserve("", 0)
        self._for_libtpu.append(held)
        return int(held.getsockname()[1])

    def _reserve(self, host: str, port: int) -> int:
        try:
            held = ports.reserve(host, port)
        except ports.PortTaken as error:
            raise Unusable(
                f"{error}; choose another with --coordinator, or leave it out", USAGE
            ) from None
        self.reserved.append(held)
        return int(held.getsockname()[1])


def _gpus(wanted: Prepare) -> VisibleGpus:
    """Those that the ranks would see, with the environment that they will have."""
    from ..wire import gpus  # as few jobs need

    return gpus.visible({**rank_environ.without_outer_job(os.environ), **wanted.env})


def no_python(tried: Sequence[str]) -> str:
    """What to say where none of these is there."""
    names = ", ".join(tried)
    return f"no Python found (tried {names}): set python= in the hosts file, or --python"


def folder(wanted: Prepare, stage: str) -> str:
    """The working directory of the ranks.

    Raises:
        Unusable: the user has named one that is not there.

    """
    place: str = os.path.expanduser(wanted.chdir)
    if stage:
        place = os.path.join(stage, wanted.chdir if wanted.chdir_given else "")
    if os.path.isdir(place):
        return place
    if wanted.chdir_given:
        message = f"{place}: no such directory; make it, or choose another with -C or chdir="
        raise Unusable(message, USAGE)
    return os.path.expanduser("~")
