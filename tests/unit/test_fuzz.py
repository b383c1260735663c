"""Whatever a command line, a hosts file or the environment holds: one line and a status, quickly.

Nothing is started: every command line has --dry-run or --emit. The seed is fixed; to look further,
set FUZZ_SEED and FUZZ_CASES, as .ci/night does.
"""

import os
import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from mcjax_launch.cli.command import main
from mcjax_launch.cli.options import GROUPS

_SEED = int(os.environ.get("FUZZ_SEED", "7"))
_CASES = int(os.environ.get("FUZZ_CASES", "200"))
_STATUSES = (0, 2, 126, 127)

NUMBERS = (
    *("", "0", "1", "2", "4", "-1", "65537", "99999999999", "1" * 5000),
    *("1e9", "1.5", "0x10", "1_0", " 2 ", "+3", "²", "٣", "007", "nan", "inf"),
)
DURATIONS = ("5m", "1.5h", "90", "9" * 400 + "h", "0", "2d", "1h30m", "٣s", "-5s", "1e400")
RANKS = ("0", "0-2", "3-1", "0-99999999999", "0-" + "9" * 5000, ",", "0,", "-", "0,4-7,7")
HOSTS = (
    *"localhost a,b:2 n[1-3] h[1-9999][1-9999] h[1- h[2-1] h[1-65537] a:99999999999".split(),
    *"u@h @ @h a@b@c ::1 fe80::1%eth0 a..b -oProxy=x $(id) a;b a|b `id`".split(),
    *("h" + "[1]" * 3000, "h[1-" + "9" * 5000 + "]", "h[" + "1," * 70_000 + "1]"),
    *("h[1-65536]" + "a" * 50_000, "a b", "x\0y"),
)
SETTINGS = (
    *("slots=2", "slots=99999999999", "slots=", "slots=²", "port=22", "port=65536", "chdir=/tmp"),
    *("python=py", "python", "max_slots=1", "=", "a=b=c", "#", "slots = 3", "\r"),
)
TEXTS = (
    *("", "\udce4", "\x1b[31mred", "\u202e", "a\nb", "\t", "x" * 9999, "9" * 5000 + "(x2)"),
    *("a" * 64 + ":5", "h:" + "5" * 5000, "--x\n#SBATCH --y"),
    *"""- -- / . a é { {process_id} {proces_id} {rank} {} {host}.json $(id) ' " A=1""".split(),
    *"A={process_id} = 1=2 /nowhere/x.py /nowhere/x.json x.html /dev/zero a..b a..b:5".split(),
    *"1.2.3.4:5 1.2.3.4:99999 [::1]:5 Bad_NS 2(x3) 2(x99999999999) --partition=x".split(),
    *("ssh {host}", "{host} 'x"),
    *"auto slurm job jobset ssh srun".split(),
)
ALL = (*NUMBERS, *DURATIONS, *RANKS, *HOSTS, *TEXTS)
PROGRAMS: tuple[list[str], ...] = (
    ["true"],
    ["/bin/true", "{rank}"],
    ["no.py"],
    ["-m", "m"],
    ["--", "echo", "\udce4"],
    [],
)
OPTIONS = [option for options in GROUPS.values() for option in options]
VARIABLES = (
    *(f"MCJAX_{option.name.upper()}" for option in OPTIONS if option.name),
    *("SLURM_JOB_NODELIST", "SLURM_TASKS_PER_NODE", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS"),
    *("JOB_COMPLETION_INDEX", "SLURM_RESTART_COUNT", "MCJAX_ENGINE_RESTART"),
    "CUDA_VISIBLE_DEVICES",
)


def given(rng: random.Random) -> str:
    """A value, as strange as it is likely to be wrong; never one that an argument cannot hold."""
    value = rng.choice(rng.choice((NUMBERS, DURATIONS, RANKS, HOSTS, TEXTS)))
    if not rng.randrange(5):
        value += rng.choice(ALL)
    return value.replace("\0", "")


def command_line(rng: random.Random) -> list[str]:
    words = rng.choice((["--dry-run"], ["--dry-run"], ["--emit", rng.choice(TEXTS[-8:])]))
    for option in rng.choices(OPTIONS, k=rng.randrange(4)):
        words = [*words, rng.choice(option.opts)]
        if not option.is_flag:
            words.append(given(rng))
    return [*words, *rng.choice(PROGRAMS)]


def hosts_file(rng: random.Random) -> bytes:
    lines = []
    for _ in range(rng.randrange(5)):
        words = [rng.choice((*HOSTS, "a", "a", "b")), *rng.choices(SETTINGS, k=rng.randrange(3))]
        lines.append(rng.choice((" ", "\t", " # ")).join(words))
    text = rng.choice(("\n", "\r\n", "\r")).join(lines)
    return text.encode(rng.choice(("utf-8", "utf-8", "utf-8-sig", "utf-16", "latin-1")), "replace")


def environment(rng: random.Random) -> dict[str, str]:
    variables = {name: given(rng) for name in rng.choices(VARIABLES, k=rng.randrange(3))}
    if any(name.startswith("SLURM") for name in variables):
        of_slurm = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "a", "SLURM_NTASKS": "2"}
        variables = of_slurm | variables
    return variables


def a_command_line(rng: random.Random, _: Path) -> tuple[list[str], dict[str, str]]:
    return command_line(rng), {}


def a_hosts_file(rng: random.Random, folder: Path) -> tuple[list[str], dict[str, str]]:
    (folder / "hosts.txt").write_bytes(hosts_file(rng))
    return ["--dry-run", "--hosts", "hosts.txt", "true"], {}


def an_environment(rng: random.Random, _: Path) -> tuple[list[str], dict[str, str]]:
    return ["--dry-run", *rng.choice(PROGRAMS)], environment(rng)


def numeric_only(host: object, *_: object, **__: object) -> Any:
    """Stands for a name server that knows no names."""
    return _getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)  # type: ignore[arg-type]


_getaddrinfo = socket.getaddrinfo


@pytest.mark.parametrize("make", [a_command_line, a_hosts_file, an_environment])
def test_fuzzed_command_line_gives_one_line_and_a_status(
    make: Callable[[random.Random, Path], tuple[list[str], dict[str, str]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(socket, "getaddrinfo", numeric_only)
    rng = random.Random(f"{make.__name__} {_SEED}")
    for _ in range(_CASES):
        words, variables = make(rng, tmp_path)
        with mock.patch.dict(os.environ, {"PATH": "/bin", **variables}, clear=True):
            status = main(words)
        out, err = capfd.readouterr()
        case = f"{[word[:200] for word in words]} {str(variables)[:500]}"
        if (tmp_path / "hosts.txt").exists():
            case += repr((tmp_path / "hosts.txt").read_bytes()[:500])
        assert status in _STATUSES, f"{case}: {status}, {err}"
        assert not (status and out), f"{case}: {out[:200]}"
        lines = err.splitlines()
        assert bool(lines) or status == 0, case
        for line in lines:
            assert line.startswith("mcjax-launch: ") and len(line) < 2200, f"{case}: {line[:500]}"
            assert line.replace("\t", "").isprintable(), f"{case}: {line!r}"
