"""Many hosts: what one takes the launcher, and over a real sshd."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.bench import PYTHON, ROOT, Bench, Way, timed
from benchmarks.measure import OURS, Measure

# The launcher, which tells at its end what itself has used, without what it has started.
_TELLING = """
import os, resource, sys
sys.path.insert(0, {!r})
leave = os._exit
def tell(status):
    used = resource.getrusage(resource.RUSAGE_SELF)
    os.write(2, b"\\nUSED %.6f %d\\n" % (used.ru_utime + used.ru_stime, used.ru_maxrss))
    leave(status)
os._exit = tell
from mcjax_launch.__main__ import run
run()
"""
# Another way to this machine: an agent that is streamed, in a shell of its own.
_SHELL = "env H={host} sh -c {command}"


def hosts(bench: Bench) -> list[Measure]:
    """One rank of /bin/true on each of many hosts."""
    return [*_own_work(bench), *_over_sshd(bench)]


def _own_work(bench: Bench) -> Iterator[Measure]:
    """Measure the launcher's memory, and its processor time beyond that for a single host."""
    program = bench.write("telling.py", _TELLING.format(str(ROOT)))
    sizes = (10, 30) if bench.quick else (100, 300, 1000)
    alone = min(_used(program, 1)[0] for _ in range(3))
    used = {count: _used(program, count) for count in sizes}
    names = {count: f"{count} hosts" for count in sizes}
    most = names[sizes[-1]]
    each = {names[n]: [(seconds - alone) / n * 1e3] for n, (seconds, _) in used.items()}
    yield Measure(
        "the launcher's processor time for a host, over local shells", "ms", each, base=most
    )
    kept = {names[n]: [kib / 1024] for n, (_, kib) in used.items()}
    yield Measure("the launcher's memory (most resident)", "MB", kept, base=most)


def _used(program: str, count: int) -> tuple[float, int]:
    """Seconds and KiB."""
    options = ["--via", _SHELL, "--hosts", f"node[1-{count}]"]
    command = [PYTHON, program, *options, "/bin/true"]
    done = subprocess.run(command, check=True, capture_output=True, timeout=600)
    seconds, kib = done.stderr.rpartition(b"USED")[2].split()
    return float(seconds), int(kib)


def _over_sshd(bench: Bench) -> Iterator[Measure]:
    """Many hosts that are one sshd with its defaults, against that many bare ssh."""
    sys.path.insert(0, str(ROOT / "tests"))
    from remote import SSHD, Sshd

    if SSHD is None:
        print("bench: hosts over sshd are left out: it is not here", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as folder:
        server = Sshd(Path(folder), "bench")
        bare = ["ssh", "-F", str(server.config), "h", "true"]
        for count in (1, 4) if bench.quick else (1, 4, 16, 64):
            options = ["--via", server.via, "--hosts", f"node[1-{count}]", "/bin/true"]
            ways: dict[str, Way] = {
                OURS: partial(timed, [*bench.ours, *options]),
                "one bare `ssh host true`": partial(timed, bare),
            }
            title = f"/bin/true on {count} hosts that are one sshd"
            yield Measure(title, "s", bench.in_turn(3, ways))
        server.end()
