"""Commands that end in time, whatever they do.

A driver that hangs takes with it whoever asks it: nvidia-smi, or a Python that starts CUDA. Where
even SIGKILL does not end such a process, it is left alone, and not waited for.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

_LOOK_S = 0.05
_KILLED_S = 5.0


class Started:
    """A command under way, in a process group of its own. Leaving it ends that group.

    Its output goes to a file: a pipe may be held open by what it leaves behind.

    Args:
        command: to run.
        out: where its output goes, added to what is there.
        errors: where what it says on stderr goes; None: to `out` as well.
        cwd: where it runs.
        environ: of it, whole.
        grace_s: how long a SIGTERM has before what is left of the group is killed.

    """

    def __init__(
        self,
        command: Sequence[str],
        out: Path,
        *,
        errors: Path | None = None,
        cwd: Path | None = None,
        environ: Mapping[str, str] | None = None,
        grace_s: float = 0.0,
    ) -> None:
        self._grace_s = grace_s
        self._began = time.monotonic()
        with out.open("ab") as file, (errors or out).open("ab") as other:
            self._process = subprocess.Popen(
                command,
                cwd=cwd,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT if errors is None else other,
                start_new_session=True,
            )

    def __enter__(self) -> Started:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.end()

    @property
    def seconds(self) -> float:
        """Since it was started."""
        return time.monotonic() - self._began

    @property
    def status(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._process.poll()

    def wait(self, limit_s: float) -> int | None:
        """Its exit status; None if it still runs after so long."""
        try:
            return self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return None

    def signal(self, number: int) -> None:
        """Send it a signal, to it alone."""
        if self.status is None:
            self._process.send_signal(number)

    def end(self) -> None:
        """End it, and with it its group, if it still runs."""
        if self._grace_s:
            self.signal(signal.SIGTERM)
            self.wait(self._grace_s)
        if self.status is None:  # not reaped, so the number is still this group's
            os.killpg(self._process.pid, signal.SIGKILL)
            self.wait(_KILLED_S)


@dataclass(frozen=True)
class Answer:
    """What a command said.

    Attributes:
        status: its exit status; None if it took too long; 127 if it could not be started.

    """

    status: int | None
    out: str = ""
    errors: str = ""

    @property
    def said(self) -> str:
        """Its last line, of stderr if there is one."""
        lines = (self.errors.strip() or self.out.strip()).splitlines()
        return lines[-1].strip() if lines else "it says nothing"


def ask(command: Sequence[str], limit_s: float, environ: Mapping[str, str] | None = None) -> Answer:
    """Run a command that has to answer in time."""
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder:
        out, errors = Path(folder, "out"), Path(folder, "errors")
        try:
            with Started(command, out, errors=errors, environ=environ) as started:
                status = started.wait(limit_s)
        except OSError as error:
            return Answer(127, errors=f"{error.strerror or error}")
        return Answer(status, _text(out), _text(errors))


def wait_for(found: Callable[[], bool], started: Started, limit_s: float) -> bool:
    """Whether `found()` became true before the command ended, or so long had passed."""
    until = time.monotonic() + limit_s
    while not found():
        if started.status is not None or time.monotonic() > until:
            return found()
        time.sleep(_LOOK_S)
    return True


def _text(path: Path) -> str:
    return path.read_text(errors="replace")
