"""Readings of this host's GPUs by a process of its own, which runs `machine.nvml`."""

from __future__ import annotations

import os
import signal
import sys
import time

from ..machine.loop import READ
from ..wire.codec import Malformed, from_json
from .system import system

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from ..machine.loop import Loop
    from ..wire.messages import GpuUse
    from .system.unix import HostProcess

# Seconds between two readings, and after which a reading is too old: the driver may hang.
_EVERY_S, _STALE_S = 1.0, 5.0
# Files of NVIDIA's driver, the second in Linux on Windows (WSL).
_NVIDIA = ("/dev/nvidiactl", "/dev/dxg")
_MOST_BYTES = 1 << 20


class GpuWatch:
    """Reader of this host's GPUs, in a process of its own while ranks run.

    If that process ends by itself, because there is no NVML, it is not started again.

    Args:
        loop: event loop that watches the process's output.
        hook_folder: path of the hook's folder; the program lies in the same package.

    Attributes:
        environs: environment of each rank.
        pid: pid of the process, or of the last one; 0 before the first.
        when_read: called once, after the next reading; None for nothing.

    """

    def __init__(self, loop: Loop, hook_folder: str) -> None:
        self._loop = loop
        package = os.path.dirname(os.path.dirname(hook_folder))
        self._program = os.path.join(package, "machine", "nvml.py")
        self.environs: Mapping[int, Mapping[str, str]] = {}
        self._is_useless = False
        self._out = -1
        self._text = b""
        self._read_at = 0.0
        self._reading: list[dict[str, Any]] = []
        self.pid = 0
        self.when_read: Callable[[], None] | None = None

    def begin(self) -> None:
        """Start the process, unless it runs, or no rank uses a GPU of NVIDIA's."""
        on_cpu = all(each.get("JAX_PLATFORMS") == "cpu" for each in self.environs.values())
        if self._out >= 0 or self._is_useless or on_cpu or not any(map(os.path.exists, _NVIDIA)):
            return
        words = [sys.executable, "-I", "-S", self._program, str(_EVERY_S)]
        try:
            self.pid, self._out = system.spawn_tool(words)
        except OSError:
            self._is_useless = True
            return
        self._loop.watch(self._out, READ, lambda ready: self._read())

    def end(self) -> None:
        """End the process, because no rank runs."""
        if self._out >= 0:
            system.signal_process(self.pid, signal.SIGKILL)
            self._forget()

    def _forget(self) -> None:
        self._loop.forget(self._out)
        os.close(self._out)
        self._out, self._text = -1, b""

    def _read(self) -> None:
        data = os.read(self._out, 1 << 16)
        if not data:
            self._is_useless = True
            self._forget()
            return
        *lines, self._text = (self._text + data)[-_MOST_BYTES:].split(b"\n")
        for line in lines:
            try:
                reading: Any = from_json(line.decode("utf-8", "replace"))
            except Malformed:
                continue
            self._reading = reading
            self._read_at = time.monotonic()
            call, self.when_read = self.when_read, None
            if call is not None:
                call()

    def collect(
        self, found: Mapping[int, HostProcess], ranks: Mapping[int, int]
    ) -> tuple[GpuUse, ...]:
        """Return what each GPU does, and for which ranks; () if unknown.

        Args:
            found: all processes of this host, by pid.
            ranks: rank of each rank's own process, by pid.

        """
        if self._out < 0 or time.monotonic() > self._read_at + _STALE_S:
            return ()
        from . import gpu_users  # few hosts need it

        sees_all = gpu_users.sees_all_pids()
        return gpu_users.attribute_gpus(
            self._reading, found, ranks, self.environs, sees_all=sees_all
        )
