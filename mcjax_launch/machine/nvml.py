"""Program that prints what this host's NVIDIA GPUs do, one line of JSON for each moment.

The agent runs this file as a process of its own, because a call of NVML, the driver's library,
takes microseconds, but seconds or for ever if the driver is sick. So this file imports nothing of
ours, and the process ends with its parent.

    python -I -S nvml.py SECONDS    print a line every SECONDS seconds
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from ctypes import byref, c_char, c_uint, c_ulonglong, c_void_p

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LIBRARY = "libnvidia-ml.so.1"
_MOST_PROCESSES = 256
_NAME_BYTES = 96
# A process's memory if the driver does not tell it.
_UNKNOWN = (1 << 64) - 1
_PR_SET_PDEATHSIG = 1


class _Memory(ctypes.Structure):
    _fields_ = [(name, c_ulonglong) for name in ("total", "free", "used")]


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", c_uint), ("memory", c_uint)]


class _GpuProcess(ctypes.Structure):
    _fields_ = [
        ("pid", c_uint),
        ("used", c_ulonglong),
        ("instance", c_uint),
        ("compute", c_uint),
    ]


class Nvml:
    """The GPUs of this host, as NVML lists them.

    Raises:
        OSError: the library is missing or does not start.

    """

    def __init__(self) -> None:
        self._library = ctypes.CDLL(_LIBRARY)
        count = c_uint()
        if not (self._ask("Init_v2") and self._ask("DeviceGetCount_v2", byref(count))):
            raise OSError(f"{_LIBRARY} does not start")
        self._devices: dict[int, c_void_p] = {}
        for number in range(count.value):
            device = c_void_p()
            if self._ask("DeviceGetHandleByIndex_v2", c_uint(number), byref(device)):
                self._devices[number] = device

    def _ask(self, name: str, *arguments: Any) -> bool:
        """Call a function; return False if it fails, or if the driver is too old to have it."""
        function = getattr(self._library, f"nvml{name}", None)
        return function is not None and function(*arguments) == 0

    def read(self) -> list[dict[str, Any]]:
        """Return the values of each GPU that answers; None for what the GPU does not tell."""
        return [found for number in self._devices if (found := self._read(number))]

    def _read(self, number: int) -> dict[str, Any] | None:
        device, memory, busy = self._devices[number], _Memory(), _Utilization()
        if not self._ask("DeviceGetMemoryInfo", device, byref(memory)):  # the GPU is lost
            return None
        tells = self._ask("DeviceGetUtilizationRates", device, byref(busy))
        return {
            "number": number,
            "name": self._read_text("DeviceGetName", device),
            "uuid": self._read_text("DeviceGetUUID", device),
            "used_mib": memory.used >> 20,
            "total_mib": memory.total >> 20,
            "busy": busy.gpu if tells else None,
            "processes": self._list_processes(number),
        }

    def _read_text(self, name: str, device: c_void_p) -> str:
        text = (c_char * _NAME_BYTES)()
        self._ask(name, device, text, c_uint(_NAME_BYTES))
        return text.value.decode("utf-8", "replace")

    def _list_processes(self, number: int) -> list[list[int | None]]:
        """Return pid and memory in MiB, or None if unknown, of each process."""
        device, found = self._devices[number], (_GpuProcess * _MOST_PROCESSES)()
        count = c_uint(_MOST_PROCESSES)
        if not self._ask("DeviceGetComputeRunningProcesses_v3", device, byref(count), found):
            return []
        return [
            [process.pid, None if process.used == _UNKNOWN else process.used >> 20]
            for process in found[: count.value]
        ]


def main(every_s: float) -> None:
    """Print the values of all GPUs every `every_s` seconds, until the parent has ended."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    nvml = Nvml()
    while os.getppid() == parent:
        print(json.dumps(nvml.read()), flush=True)
        time.sleep(every_s)


if __name__ == "__main__":
    try:
        main(float(sys.argv[1]))
    except OSError:  # there is no such library, or nobody reads
        os._exit(1)
