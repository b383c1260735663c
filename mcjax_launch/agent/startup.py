"""Lookups (also of TPU chips) and reservations on a host before any rank is started."""

from __future__ import annotations

import contextlib
import os
import socket

from ..machine import interpreter, rank_environ
from ..machine.interpreter import Unusable, check_python_file, find_command
from ..machine.loop import Loop
from ..machine.system import LINUX, explain_file_limit, read_regular_file, read_system_text
from ..wire.address import TPU_PORTS
from ..wire.exit_status import HOST_LOST, NOT_EXECUTABLE, NOT_FOUND, USAGE
from ..wire.messages import Bind, HostFacts, Prepare, Tpu, VisibleGpus
from . import network
from .system import system

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# --- TPU chips, and what a host knows of its slice ---
# Chips are counted as JAX counts them: by vendor and device on the PCI bus, because Google's
# network cards have the same vendor. The host's number in the slice is in variables (GKE), or known
# to the metadata server (a TPU VM). A host without chips asks no server.

_VENDOR = "0x1ae0"
# Models by the PCI device's number, as in JAX.
_MODELS = {
    "0x0027": "v3",
    "0x0056": "plc",
    "0x005e": "v4",
    "0x0062": "v5p",
    "0x0063": "v5e",
    "0x006f": "v6e",
    "0x0076": "7x",
    "0x0083": "8i",
    "0x007c": "8t",
}
_DEVICES = "sys/bus/pci/devices"
_NUMBER, _WORKERS, _ENVIRONMENT = "agent-worker-number", "worker-network-endpoints", "tpu-env"
# Seconds; the server is on the host itself.
_ANSWERS_S = 2.0
_MOST_ANSWER = 1 << 20


def survey_tpu(environ: Mapping[str, str], root: str = "/") -> Tpu | None:
    """Return this host's TPU chips and its place in the TPU slice; None if it has no chips.

    Args:
        environ: environment variables of the ranks.
        root: path of the root of the file system, for tests.

    """
    found = list_tpu_models(root)
    if not found:
        return None
    number, workers, slice_number = environ.get("TPU_WORKER_ID"), _count_workers(environ), "0"
    if number is not None:
        slice_number = environ.get("MEGASCALE_SLICE_ID", "0")
    elif "TPU_SKIP_MDS_QUERY" not in environ:
        ask = _make_metadata_reader(environ)
        number = ask(_NUMBER)
        if number is not None:  # else there is no such server, or it knows nothing of TPUs
            workers = workers or _count(ask(_WORKERS) or "")
            slice_number = _parse_slice_number(ask(_ENVIRONMENT) or "")
    return Tpu(
        len(found), found[0], _parse_number(number), workers, _parse_number(slice_number) or 0
    )


def list_tpu_models(root: str = "/") -> list[str]:
    """Return the model of each TPU chip of this host, from its PCI devices; [] if none."""
    if not LINUX:
        return []
    folder = os.path.join(root, _DEVICES)
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    devices = (os.path.join(folder, name) for name in names if name.endswith(".0"))
    found = (_read_model(device) for device in devices)
    return [model for model in found if model is not None]


def _read_model(device: str) -> str | None:
    if read_system_text(os.path.join(device, "vendor")) != _VENDOR:
        return None
    return _MODELS.get(read_system_text(os.path.join(device, "device")))


def _count_workers(environ: Mapping[str, str]) -> int:
    """Return the number of TPU workers that the variables list; 0 if they list none."""
    if path := environ.get("TPU_PROCESS_ADDRESSES_PATH"):  # since jax 0.12; it takes precedence
        return _count(read_system_text(path))
    for name in ("TPU_PROCESS_ADDRESSES", "TPU_WORKER_HOSTNAMES"):
        if environ.get(name):
            return _count(environ[name])
    return 0


def _count(listed: str) -> int:
    return len([entry for entry in listed.split(",") if entry.strip()])


def _parse_number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) < 9 else None


def _parse_slice_number(tpu_env: str) -> str:
    """Return the slice number in metadata lines (`MEGASCALE_SLICE_ID: '1'`); "0" if missing."""
    for line in tpu_env.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "MEGASCALE_SLICE_ID":
            return value.strip().strip("'")
    return "0"


def _make_metadata_reader(environ: Mapping[str, str]) -> Callable[[str], str | None]:
    """Return a function that gets an attribute of the metadata server; None if unavailable."""
    server = environ.get("GCE_METADATA_IP", "metadata.google.internal")

    def ask(attribute: str) -> str | None:
        import http.client  # only hosts with chips need it

        connection = http.client.HTTPConnection(server, timeout=_ANSWERS_S)
        try:
            path = f"/computeMetadata/v1/instance/attributes/{attribute}"
            connection.request("GET", path, headers={"Metadata-Flavor": "Google"})
            answer = connection.getresponse()
            text = answer.read(_MOST_ANSWER).decode("utf-8", "replace").strip()
            return text if answer.status == 200 else None
        except (OSError, http.client.HTTPException, ValueError):
            return None
        finally:
            connection.close()

    return ask


# --- before any rank is started ---


class HostPreparation:
    """Facts about this host for the launcher, and the ports reserved for the ranks.

    Args:
        wanted: request of the launcher.
        stage: path of the folder of staged files; "" if there is none.
        loop: event loop that reports test connections to the coordinator's port.

    Raises:
        Unusable: the job cannot run on this host.

    """

    def __init__(self, wanted: Prepare, stage: str, loop: Loop) -> None:
        self.reserved: list[socket.socket] = []
        self._for_libtpu: list[socket.socket] = []
        self._loop = loop
        self._listening: network.PortProbe | None = None
        self._cwd = choose_working_folder(wanted.chdir, wanted.chdir_given, stage)
        self._check_limit(wanted)
        python = self._choose_python(wanted)
        runs = python
        if wanted.command:
            runs = self._check_command(wanted.command, wanted)
        for name in wanted.wrappers:
            self._check_command(name, wanted, "--wrap ")
        if wanted.bind_cores == "on" and not system.binds_cores:
            raise Unusable(
                "--bind-cores on: this system cannot bind processes to cores; leave it out", USAGE
            )
        environ = {**os.environ, **wanted.env}
        self._tpu = survey_tpu(environ) if wanted.tpus else None
        own_name = tuple(network.resolve_own_name()) if wanted.describe or wanted.towards else None
        gpus = VisibleGpus()
        if wanted.gpus:
            from ..machine.gpus import find_visible_gpus  # few jobs need it

            outer = rank_environ.without_outer_job(os.environ)
            gpus = find_visible_gpus({**outer, **wanted.env})
        binds = wanted.bind_cores == "on" or (wanted.bind_cores == "auto" and bool(gpus.near))
        self.facts = HostFacts(
            python=python,
            cwd=self._cwd,
            gpus=gpus,
            platforms=os.environ.get("JAX_PLATFORMS", ""),
            cores=tuple(map(tuple, system.list_cores())) if binds else (),
            port=self._reserve_coordinator_port(wanted),
            transfer_ports=tuple(self._reserve("", 0) for _ in range(wanted.transfer_ports)),
            address=network.find_source_address(wanted.towards) if wanted.towards else "",
            own_name=own_name,
            addresses=tuple(network.list_own_addresses(own_name or ())) if wanted.describe else (),
            machine=system.get_machine_id() if wanted.describe else "",
            launcher=network.get_ssh_addresses()[0] if wanted.describe else "",
            tpu=self._tpu,
            tpu_ports=tuple(self._reserve_for_libtpu() for _ in range(wanted.tpu_ports)),
            stage=stage,
            jax=interpreter.find_jax_version(runs, self._cwd, environ)
            if wanted.jax and runs
            else "",
            source=_compute_checksum(self._list_folders(wanted, environ), wanted.sources),
        )

    def _list_folders(self, wanted: Prepare, environ: Mapping[str, str]) -> list[str]:
        """Return the folders in which PROGRAM may be: of a module also those of PYTHONPATH."""
        is_module = wanted.program is None and wanted.command is None
        more = environ.get("PYTHONPATH", "").split(os.pathsep) if is_module else []
        return [self._cwd, *(os.path.join(self._cwd, folder) for folder in more if folder)]

    def stop_listening(self) -> None:
        """Release ports right before the ranks start: rank 0 and libtpu will listen on them."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        for held in self._for_libtpu:  # libtpu may not share ports, unlike JAX's service
            held.close()
        if not system.holds_ports:
            for held in self.reserved:
                held.close()

    def close(self) -> None:
        """Release all reserved ports."""
        self.stop_listening()
        for held in self.reserved:
            held.close()

    def _check_limit(self, wanted: Prepare) -> None:
        """Check the limit on open files: two pipes per rank, and two connections per Python rank.

        Raises:
            Unusable: the limit is too low.

        """
        each = 4 if wanted.pythons else 2
        if why := explain_file_limit(each * wanted.ranks):
            raise Unusable(why, HOST_LOST if wanted.remote else USAGE)

    def _choose_python(self, wanted: Prepare) -> str:
        if not wanted.pythons:
            return ""
        pythons = interpreter.find(wanted.pythons, os.environ.get("PATH", os.defpath))
        if not pythons:
            tried = ", ".join(wanted.pythons)
            cure = "set python= in the hosts file, or --python"
            raise Unusable(f"no Python found (tried {tried}): {cure}", NOT_FOUND)
        if wanted.program:
            check_python_file(wanted.program, self._cwd, wanted.missing)
        program = wanted.program and os.path.join(self._cwd, wanted.program)
        needed = wanted.without_jax and program and interpreter.mentions_jax(program)
        if not needed and len(pythons) == 1:
            return pythons[0]
        found = self._find_python_with_jax(pythons, wanted)
        if needed and found is None:
            others = f" (nor {', '.join(pythons[1:])})" if len(pythons) > 1 else ""
            raise Unusable(f"{pythons[0]}{others} {wanted.without_jax}", USAGE)
        return found or pythons[0]

    def _find_python_with_jax(self, pythons: Sequence[str], wanted: Prepare) -> str | None:
        environ = {**os.environ, **wanted.env}
        try:
            return next((p for p in pythons if interpreter.has_jax(p, self._cwd, environ)), None)
        except OSError as error:
            raise Unusable(f"{error.filename}: {error.strerror}", NOT_EXECUTABLE) from None

    def _check_command(self, name: str, wanted: Prepare, option: str = "") -> str:
        """Return a command's path.

        Raises:
            Unusable: there is no such command; `option` names the option in the message.

        """
        path = {**os.environ, **wanted.env}.get("PATH", os.defpath)
        return find_command(name, self._cwd, path, option, hint="" if option else wanted.missing)

    def _reserve_coordinator_port(self, wanted: Prepare) -> int:
        """Reserve and return the coordinator's port, and listen if wanted; 0 if it is elsewhere."""
        bind, listen = wanted.coordinator, wanted.listen
        mine = self._tpu
        is_first = mine is not None and (mine.worker, mine.slice_number) == (0, 0)
        if bind is None and wanted.any_order and is_first:  # rank 0 may move here
            bind, listen = Bind("", 0), True
        if bind is None:
            return 0
        port = self._reserve_open(bind) if listen else 0
        port = port or self._reserve(bind.host, bind.port)
        if listen:
            self._listening = network.PortProbe(self.reserved[0], self._loop)
        return port

    def _reserve_open(self, bind: Bind) -> int:
        """Reserve and return a free port of TPU_PORTS; 0 if none, no TPU, or `bind` is set."""
        if self._tpu is None or bind.port or bind.host:
            return 0
        for port in TPU_PORTS:
            try:
                self.reserved.append(network.reserve_port("", port))
            except network.PortTaken:
                continue
            return port
        return 0

    def _reserve_for_libtpu(self) -> int:
        held = network.reserve_port("", 0)
        self._for_libtpu.append(held)
        return int(held.getsockname()[1])

    def _reserve(self, host: str, port: int) -> int:
        try:
            held = network.reserve_port(host, port)
        except network.PortTaken as error:
            raise Unusable(
                f"{error}; choose another with --coordinator, or leave it out", USAGE
            ) from None
        self.reserved.append(held)
        return int(held.getsockname()[1])


def _compute_checksum(folders: Sequence[str], paths: Sequence[str]) -> str:
    """Return the SHA-256 of the first of the paths in the folders that is a file; "" for none."""
    places = (os.path.join(folder, path) for folder in folders for path in paths)
    for path in filter(os.path.isfile, places):
        from hashlib import sha256  # jobs on one host need none

        with contextlib.suppress(OSError):
            return sha256(read_regular_file(path)).hexdigest()
    return ""


def choose_working_folder(chdir: str, given: bool, stage: str) -> str:
    """Return the working directory of the ranks, below `stage` if files were staged.

    Args:
        chdir, given: the directory, and True if the user has named it.
        stage: path of the folder of staged files; "" if there is none.

    Raises:
        Unusable: the user has named a directory that does not exist.

    """
    place: str = os.path.expanduser(chdir)
    if stage:
        place = os.path.join(stage, chdir if given else "")
    if os.path.isdir(place):
        return place
    if given:
        message = f"{place}: no such directory; make it, or choose another with -C or chdir="
        raise Unusable(message, USAGE)
    return os.path.expanduser("~")
