"""Evidence of the kernel's out-of-memory killer: its log, and the counters of cgroups."""

from __future__ import annotations

import os

from ...machine.system import read_system_text

_CGROUPS = "/sys/fs/cgroup"
_KILLED = r"(?P<memcg>Memory cgroup )?[Oo]ut of memory: Killed process (?P<pid>\d+) "
_RESIDENT = r"(?:anon|shmem)-rss:(\d+)kB"
_NO_LIMIT = 1 << 60
# Lines of the kernel's log to keep: on memory, and on GPUs.
_TELLING = r"(?i)out of memory|\boom\b|oom[-_]|killed process|\bxid\b|nvrm"
_MOST_LINES = 200


class OutOfMemory:
    """Watch over the kernel's out-of-memory killer, from the creation of this object.

    A counter or log that cannot be read (no permission) proves nothing.
    """

    def __init__(self) -> None:
        self._log = _open_log()
        self._killed: dict[int, str] = {}  # the log's report, by pid
        self._lines: list[str] = []
        self._folder, self._counter = find_own_cgroup()
        self._in_cgroup = self._count_in_cgroup()
        self._on_machine = _count("/proc/vmstat")

    def close(self) -> None:
        """Close the log."""
        if self._log >= 0:
            os.close(self._log)
            self._log = -1

    def find_evidence(self, pid: int) -> str | None:
        """Return evidence that the out-of-memory killer may have ended this dead process.

        Returns:
            a sentence; "" if the killer has ended no process since; None if that is unknown.

        """
        self.read_log()
        if said := self._killed.pop(pid, ""):  # in a container none: pids differ from the log's
            return said
        in_cgroup, on_machine = self._count_in_cgroup(), _count("/proc/vmstat")
        if in_cgroup is not None and self._in_cgroup is not None and in_cgroup > self._in_cgroup:
            limit = self._format_limit()
            return f"the kernel's out-of-memory killer ended a process of its cgroup{limit}"
        if on_machine is None or self._on_machine is None:
            return None
        if on_machine > self._on_machine:
            return "the kernel's out-of-memory killer ended a process of this machine"
        return ""

    def read_log(self) -> list[str]:
        """Return the lines of the kernel's log on memory and GPUs since this object's creation."""
        while self._log >= 0:
            try:
                record = os.read(self._log, 8192).decode("utf-8", "replace")
            except BrokenPipeError:  # records were overwritten meanwhile
                continue
            except OSError:
                break
            import re  # not at the agent's start

            if re.search(_TELLING, record):  # after the record's number and time, before its tags
                self._lines.append(record.partition(";")[2].partition("\n")[0])
            found = re.search(_KILLED, record)
            if found is not None:
                used = sum(map(int, re.findall(_RESIDENT, record))) // 1024
                where = f" at its cgroup's limit{self._format_limit()}" if found["memcg"] else ""
                message = f"the kernel's out-of-memory killer ended it{where}; it used {used} MiB"
                self._killed[int(found["pid"])] = message
        return self._lines[-_MOST_LINES:]

    def _count_in_cgroup(self) -> int | None:
        return _count(os.path.join(self._folder, self._counter)) if self._counter else None

    def _format_limit(self) -> str:
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = read_system_text(os.path.join(self._folder, name))
            if limit.isdecimal() and int(limit) < _NO_LIMIT:  # else none, or "max"
                return f" ({int(limit) >> 20} MiB)"
        return ""


def _open_log() -> int:
    """Open the kernel's log at its end; return -1 if it cannot be read."""
    try:
        log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return -1
    os.lseek(log, 0, os.SEEK_END)
    return log


def find_own_cgroup() -> tuple[str, str]:
    """Return this process's memory cgroup folder and the name of its counter file; "" if none."""
    lines = read_system_text("/proc/self/cgroup").splitlines()
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
    counts = (line.split() for line in read_system_text(path).splitlines())
    return next((int(fields[1]) for fields in counts if fields[0] == "oom_kill"), None)
