"""What Linux alone has is asked for in a few places, beside which there is another way."""

import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "mcjax_launch"
# Where it may be: the two seams, --preload and --watch, which are for Linux, and what does without.
PLACES = {
    "features/detached/jobs.py",
    "features/check/probe.py",
    "agent/startup.py",
    "agent/gpu_users.py",
    "machine/gpus.py",
    "machine/nvml.py",
    "machine/own_paths.py",
    "wire/rank_process.py",
    "machine/system.py",
    "agent/system/linux.py",
    "agent/system/out_of_memory.py",
    "features/preload/agent.py",
    "features/preview/hook/exchange.py",
    "features/recorder/hook/values.py",
    "hook/stack_answers.py",
    "features/preload/hook/__init__.py",
    "features/preload/hook/forked_rank.py",
    "features/watch/watcher.py",
    "request/program.py",
    "features/watch/saves.py",
}
NAMES = re.compile(
    r"""["'](?:/(?:proc|sys|dev/shm|dev/kmsg)\b|(?:proc|sys|dev)/)|\bprctl\b|\bpidfd_|\bP_PIDFD\b|SIGRTM|\bmemfd_|\bsignalfd
    |\bepoll\b|EPOLL|\bsched_(?:get|set)|SO_PEERCRED|SOCK_SEQPACKET|SOCK_CLOEXEC|SOCK_NONBLOCK
    |MSG_CMSG_CLOEXEC|\beventfd|\bpipe2\b|\bO_PATH\b|\bsplice\b|\bprlimit\b|SETPIPE|RUSAGE_THREAD
    |accept4|sys\.platform|os\.name\b|getrandom|\binotify|AF_NETLINK""",
    re.VERBOSE,
)
# Which system this is, is asked by whoever chooses a way, and on Windows by the first lines.
ASK = {"__main__.py", "agent/system/unix.py"}
# Waiting without reaping: Python has it on macOS only since 3.13.
WAITID = re.compile(r"\bwaitid\(|WNOWAIT")


def found(pattern: re.Pattern[str], text: str) -> list[str]:
    """What a module uses, comments aside."""
    code = "\n".join(line.partition("  #")[0] for line in text.splitlines())
    return pattern.findall(re.sub(r"^\s*#.*$|(?s:\"\"\".*?\"\"\")", "", code, flags=re.MULTILINE))


@pytest.mark.parametrize("path", [str(p.relative_to(PACKAGE)) for p in PACKAGE.rglob("*.py")])
def test_linux_only_calls_are_in_listed_places(path: str) -> None:
    text = (PACKAGE / path).read_text()
    if path not in PLACES | ASK:
        assert found(NAMES, text) == found(WAITID, text) == []
