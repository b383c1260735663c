"""Evidence of the kernel's out-of-memory killer: the counters of cgroups and of the machine."""

from __future__ import annotations

import os

from ...wire.system import text_of

_CGROUPS = "/sys/fs/cgroup"
_NO_LIMIT = 1 << 60


class OutOfMemory:
    """Watch over the kernel's out-of-memory killer, from the creation of this object.

    A counter that cannot be read (no permission) proves nothing.
    """

    def __init__(self) -> None:
        self._folder, self._counter = _own_cgroup()
        self._in_cgroup = self._count_in_cgroup()
        self._on_machine = _count("/proc/vmstat")

    def evidence(self) -> str | None:
        """Return evidence that the out-of-memory killer may have ended a process that has died.

        Returns:
            a sentence; "" if the killer has ended no process since; None if that is unknown.

        """
        in_cgroup, on_machine = self._count_in_cgroup(), _count("/proc/vmstat")
        if in_cgroup is not None and self._in_cgroup is not None and in_cgroup > self._in_cgroup:
            limit = self._limit()
            return f"the kernel's out-of-memory killer ended a process of its cgroup{limit}"
        if on_machine is None or self._on_machine is None:
            return None
        if on_machine > self._on_machine:
            return "the kernel's out-of-memory killer ended a process of this machine"
        return ""

    def _count_in_cgroup(self) -> int | None:
        return _count(os.path.join(self._folder, self._counter)) if self._counter else None

    def _limit(self) -> str:
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = text_of(os.path.join(self._folder, name))
            if limit.isdecimal() and int(limit) < _NO_LIMIT:  # else none, or "max"
                return f" ({int(limit) >> 20} MiB)"
        return ""


def _own_cgroup() -> tuple[str, str]:
    """Return this process's memory cgroup folder and the name of its counter file; "" if none."""
    lines = text_of("/proc/self/cgroup").splitlines()
    for _, controllers, path in (line.split(":", 2) for line in lines):
        if controllers == "memory":
            tried = [f"{_CGROUPS}/memory{path}", f"{_CGROUPS}/memory"]
            counter = "memory.oom_control"
        elif controllers == "":
            tried = [f"{_CGROUPS}{path}", f"{_CGROUPS}/unified{path}", _CGROUPS]
            counter = "memory.events"
        else:
            continue
        for folder in tried:  # a container sees its own as the root
            if os.path.exists(os.path.join(folder, counter)):
                return folder, counter
    return "", ""


def _count(path: str) -> int | None:
    counts = (line.split() for line in text_of(path).splitlines())
    return next((int(fields[1]) for fields in counts if fields[0] == "oom_kill"), None)
