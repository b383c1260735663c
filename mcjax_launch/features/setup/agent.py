"""The command of --setup on a host: its run at each start, and the variables that it sets.

Its processes are below the agent, so all of them end with the job, as ranks do.
"""

from __future__ import annotations

import os
import time

from ...agent.part import AgentPart
from ...agent.startup import choose_working_folder
from ...agent.system import system
from ...agent.system.unix import NO_INPUT, Invocation, SpawnError
from ...machine.interpreter import Unusable, find_executable
from ...machine.loop import READ
from ...machine.rank_environ import without_outer_job
from ...machine.system import format_limit_error
from ...wire.exit_status import HOST_LOST
from ...wire.frames import encode_message, encode_raw
from ...wire.messages import Refused
from .messages import NAME, SetUp, SetupEnded

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ...wire.codec import Message
    from ...wire.frames import Raw

    Changes = dict[str, "str | None"]

# As much as a pipe holds, so that one read returns all of it, and as a frame.
_PIECE = 1 << 16
# Variables of the shell itself; PS1 is what a venv's `activate` shows there.
_SHELLS_OWN = {"_", "SHLVL", "PWD", "OLDPWD", "PS1"}
# Beginning of the names of the launcher's variables, of which a process may get some at its start.
_OURS = "MCJAX_"
# Where the installers of uv, pipx and poetry put commands; only a login adds it to PATH.
_USERS_COMMANDS = "~/.local/bin"
# Runs the command $1, and saves its variables in the file $2 at its end, wherever that is. A shell
# without a login and a terminal has no `module` and no `conda activate`: it reads these first.
_SCRIPT = r"""
_mcjax_command=$1 _mcjax_saved=$2
set --
case $_mcjax_command in
*"module "* | "ml "*) set -- "${MODULESHOME-}/init/sh" /etc/profile.d/*mod*.sh ;;
esac
case $_mcjax_command in
*"conda activate"* | *"mamba activate"*)
    _mcjax_conda=${CONDA_EXE:-$(command -v conda ||
        sed -n "s|.*'\(/.*/conda\)' .shell[.].*|\1|p" ~/.bashrc 2> /dev/null)}
    _mcjax_conda=${_mcjax_conda%/*/conda}/etc/profile.d
    set -- "$@" "$_mcjax_conda/conda.sh" "$_mcjax_conda/mamba.sh"
    ;;
esac
for _mcjax_file do [ ! -r "$_mcjax_file" ] || . "$_mcjax_file"; done
set --
trap '/usr/bin/env -0 > "$_mcjax_saved"' EXIT
eval "$_mcjax_command"
"""


class SetupCommand(AgentPart):
    """Part that runs the command."""

    _asked: SetUp
    _environ: dict[str, str]  # the command's
    _folder: str  # the command's
    _changed: Changes
    _pid = _out = -1
    _began_at = 0.0

    def on_message(self, message: Message | Raw) -> None:
        """Run the command; or only set the variables that an earlier run has set."""
        if not isinstance(message, SetUp) or (stage := self.agent.complete_staging()) is None:
            return
        self._asked, self._began_at = message, time.monotonic()
        self._environ = _make_environ(message.env)
        try:
            folder = choose_working_folder(message.chdir, message.chdir_given, stage)
            self._folder = os.path.realpath(folder)
            if message.done is None:
                self._spawn()
            else:
                self._end(0, message.done)
        except Unusable as error:
            self.agent.link.send(Refused(str(error), error.status))
        except (OSError, SpawnError) as error:
            why = format_limit_error(OSError(error.errno, os.strerror(error.errno or 0)))
            self.agent.link.send(Refused(f"--setup: cannot start a shell: {why}", HOST_LOST))

    @property
    def _saved(self) -> str:
        return os.path.join(self.agent.folder, "setup-environ")

    def _spawn(self) -> None:
        # bash, because users type `source`, and export the function `module`.
        shell = find_executable("bash", "", self._environ.get("PATH", os.defpath)) or "/bin/sh"
        argv = (shell, "-c", _SCRIPT, "--setup", self._asked.command, self._saved)
        self._out, end = os.pipe()
        os.set_blocking(self._out, False)
        try:
            files = (NO_INPUT, end, end)
            self._pid = system.spawn(Invocation(argv, self._environ, self._folder, files))
        finally:
            os.close(end)
        self._watch()

    # --- its output: no more is read than the launcher takes ---

    def _watch(self) -> None:
        if self._out >= 0:
            self.agent.loop.watch(self._out, READ, lambda ready: self._forward())

    def _forward(self) -> None:
        if data := self._read():
            self.agent.loop.forget(self._out)
            self.agent.link.uplink.send_later(self._make_frames(data))

    def _make_frames(self, data: bytes) -> Iterator[bytes]:
        yield encode_raw(NAME, 0, data)
        self._watch()

    def _read(self) -> bytes:
        """Return what there is to read; close the pipe at its end."""
        try:
            data = os.read(self._out, _PIECE) if self._out >= 0 else b""
        except BlockingIOError:
            return b""
        if not data and self._out >= 0:
            self.agent.loop.forget(self._out)
            os.close(self._out)
            self._out = -1
        return data

    # --- its end ---

    def on_child_end(self, pid: int, status: int) -> None:
        """Report the end of the command."""
        if pid != self._pid or self.agent.supervisor.stopping:
            return
        # Such as a server.
        left = map(system.get_process_group, system.list_descendants())
        self.agent.leftovers.older_groups = {*left} - {0}
        self._end(status, _read_changes(self._saved, self._environ) if status == 0 else {})

    def _end(self, status: int, changed: Changes) -> None:
        """Take over the variables that the command has changed, and report its end."""
        for name, value in changed.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        self._changed = changed
        python = _find_chosen_python(self._environ, {**self._environ, **changed})
        seconds = 0.0 if self._asked.done is not None else time.monotonic() - self._began_at
        ended = SetupEnded(status, seconds, changed, self._folder, python)
        rest = encode_raw(NAME, 0, self._read())
        self.agent.link.uplink.send_later([rest, encode_message(ended)])

    def drop_replaced(self, env: dict[str, str]) -> dict[str, str]:
        """Return the user's variables for a rank, without those that the command has changed."""
        before, changed = self._environ, self._changed
        return {n: value for n, value in env.items() if n not in changed or before.get(n) != value}


def _make_environ(given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for the command: this host's own, and those that the user has given."""
    environ = {**without_outer_job(os.environ), **given}
    if "PATH" not in given:
        path = environ.get("PATH", os.defpath)
        environ["PATH"] = f"{path}{os.pathsep}{os.path.expanduser(_USERS_COMMANDS)}"
    return environ


def _read_changes(file: str, before: Mapping[str, str]) -> Changes:
    """Return the changed variables, with None for each removed variable.

    They are {} if there is no such file: another program has replaced the shell.
    """
    try:
        with open(file, "rb") as saved:
            pairs = [os.fsdecode(pair).partition("=") for pair in saved.read().split(b"\0")]
        os.unlink(file)
    except FileNotFoundError:
        return {}
    after = {name: value for name, equals, value in pairs if equals}
    names = [name for name in {**before, **after} if not name.startswith(_OURS)]
    return {
        name: after.get(name)
        for name in names
        if before.get(name) != after.get(name) and name not in _SHELLS_OWN
    }


def _find_chosen_python(before: Mapping[str, str], after: Mapping[str, str | None]) -> str:
    """Return the Python that is the first in PATH only after the command; "" if there is none."""
    for name in ("python", "python3"):
        found = find_executable(name, "", after.get("PATH") or os.defpath)
        if found and found != find_executable(name, "", before.get("PATH", os.defpath)):
            return found
    return ""


PART = SetupCommand
