"""What has to be known and held on a host before any rank is started."""

from __future__ import annotations

import os
import socket

from . import devices, interpreter, network, ports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_USAGE = 2
_HOST = 255
_NOT_EXECUTABLE = 126
_NOT_FOUND = 127


class Refused(Exception):
    """The job cannot run here.

    Args:
        message: what, and what to do; without the host's name.
        status: the launcher's exit status.

    """

    def __init__(self, message: str, status: int = _USAGE) -> None:
        super().__init__(message)
        self.status = status


class Prepared:
    """A host that is ready: what it has, and the ports that it holds.

    Args:
        wanted: the launcher's questions, see `mcjax_launch.plan.questions`.
        stage: the folder of the files that were sent, or "".

    Raises:
        Refused: the job cannot run here.

    """

    def __init__(self, wanted: dict[str, Any], stage: str) -> None:
        self.reserved: list[socket.socket] = []
        self._listening: socket.socket | None = None
        self.cwd = _folder(wanted, stage)
        self._staged = bool(stage)
        self._unfit = _HOST if wanted["from_afar"] else _USAGE
        self.answer: dict[str, Any] = {"cwd": self.cwd, "python": self._python(wanted)}
        if wanted["command"]:
            self._check_command(wanted["command"], {**os.environ, **wanted["env"]})
        if wanted["gpus"]:
            self.answer["gpus"] = devices.count_gpus(dict(os.environ))
        if wanted["cores"]:
            self.answer["cores"] = devices.share_cores(wanted["cores"])
        self.answer["port"] = self._coordinator(wanted)
        transfers = [self._reserve("", 0) for _ in range(wanted["transfers"])]
        self.answer["transfer_ports"] = transfers
        if wanted["towards"]:
            self.answer["address"] = network.source_towards(wanted["towards"])
            self.answer["own_name"] = network.own_name()
        if wanted["listen"] is not None:
            self.answer["own_name"] = network.own_name()
            self.answer |= {
                "addresses": network.own_addresses(self.answer["own_name"]),
                "machine": network.machine(),
                "launcher": network.ssh_addresses()[0],
            }

    def hush(self) -> None:
        """Stop listening: the port is the coordinator's now."""
        if self._listening is not None:
            self._listening.close()

    def _python(self, wanted: dict[str, Any]) -> str:
        if not wanted["pythons"]:
            return ""
        python = interpreter.find(wanted["pythons"], os.environ.get("PATH", os.defpath))
        if python is None:
            raise Refused(
                f"no Python: {' or '.join(wanted['pythons'])} is not there; name one with python= "
                "in the hosts file or with --python",
                _HOST if wanted["from_afar"] else _NOT_FOUND,
            )
        program = wanted["program"] and os.path.join(self.cwd, wanted["program"])
        if program and not os.path.exists(program):
            cure = "" if self._staged else f"; copy it there, or add --sync {wanted['program']}"
            raise Refused(f"{wanted['program']}: no such file in {self.cwd}{cure}", _NOT_FOUND)
        if program and not (os.path.isfile(program) and os.access(program, os.R_OK)):
            raise Refused(f"{program}: not a readable file", _NOT_EXECUTABLE)
        if wanted["needs_jax"] and program and interpreter.speaks_of_jax(program):
            try:
                found = interpreter.has_jax(python, self.cwd, {**os.environ, **wanted["env"]})
            except OSError as error:
                raise Refused(f"{python}: {error.strerror}", _NOT_EXECUTABLE) from None
            if not found:
                words = f"{python} has no jax: install it there, or name another Python"
                raise Refused(words, self._unfit)
        return python

    def _check_command(self, name: str, environ: dict[str, str]) -> None:
        """A command that is not there is better known before anything has run elsewhere."""
        path = os.path.join(self.cwd, name) if os.sep in name else name
        if interpreter.find([path], environ.get("PATH", os.defpath)) is None:
            if os.sep in name and os.path.exists(path):
                raise Refused(f"{name}: not executable", _NOT_EXECUTABLE)
            raise Refused(f"{name}: no such command there", _NOT_FOUND)

    def _coordinator(self, wanted: dict[str, Any]) -> int:
        """Reserve the coordinator's port, and listen on it for the other hosts' attempts."""
        if wanted["coordinator"] is None:
            return 0
        host, port = wanted["coordinator"]
        port = self._reserve(host, port)
        if wanted["listen"]:
            self._listening = ports.listener(self.reserved[0])
        return port

    def _reserve(self, host: str, port: int) -> int:
        try:
            held = ports.reserve(host, port)
        except ports.PortTaken as error:
            raise Refused(f"{error}; choose another with --coordinator, or leave it out") from None
        self.reserved.append(held)
        return int(held.getsockname()[1])


def _folder(wanted: dict[str, Any], stage: str) -> str:
    """The working directory of the ranks."""
    place: str = os.path.expanduser(wanted["chdir"])
    if stage:
        place = os.path.join(stage, wanted["chdir"] if wanted["chdir_given"] else "")
    if os.path.isdir(place):
        return place
    if wanted["chdir_given"]:
        words = f"{place}: no such directory; make it, or choose another with -C or chdir="
        raise Refused(words, _HOST if wanted["from_afar"] else _USAGE)
    return os.path.expanduser("~")
