"""The other launchers: which are here, and how each runs N processes of one command."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Where `--install` puts those that come from the package index.
VENV = ROOT / "build" / "peers"
_FROM_INDEX = ("honcho", "mpich", "netket")
#: Those that print no version, or import gigabytes before, and what they come with.
_PACKAGES = {"torchrun": "torch", "djaxrun": "netket"}
_NOT_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

LOOP = "shell loop"
PARALLEL = "GNU parallel"


@dataclass(frozen=True)
class Peer:
    """Another launcher.

    Args:
        name: with its version, if it has one.
        command: the command line for so many processes of a command; makes files in the folder.
        prefixed: the same with the process's name before each line, where it can do that.
        slow: with its processes' output: it gets less of it than the others.

    """

    name: str
    command: Callable[[int, Sequence[str], Path], list[str]]
    prefixed: Callable[[int, Sequence[str], Path], list[str]] | None = None
    slow: bool = False


def _loop(count: int, argv: Sequence[str], folder: Path) -> list[str]:
    return ["bash", "-c", f'for i in $(seq {count}); do "$@" & done; wait', "-", *argv]


def _parallel(count: int, argv: Sequence[str], folder: Path, *options: str) -> list[str]:
    numbers = map(str, range(count))
    return [_found("parallel"), f"-j{count}", *options, f"{shlex.join(argv)} #", ":::", *numbers]


def _mpirun(count: int, argv: Sequence[str], folder: Path, *options: str) -> list[str]:
    allowed = [f"{name}={value}" for name, value in _NOT_ROOT.items()]
    mpirun = [_open_mpi(), "--oversubscribe", *options, "-n", str(count)]
    return ["env", *allowed, *mpirun, *argv]


def _hydra(count: int, argv: Sequence[str], folder: Path, *options: str) -> list[str]:
    return [_mpich(), *options, "-n", str(count), *argv]


def _torchrun(count: int, argv: Sequence[str], folder: Path) -> list[str]:
    return [_found("torchrun"), "--no-python", f"--nproc-per-node={count}", *argv]


def _djaxrun(count: int, argv: Sequence[str], folder: Path) -> list[str]:
    """NetKet's launcher, which writes a log of each process; -s: lines instead of panels."""
    return [_found("djaxrun"), "-s", "-np", str(count), "-o", str(folder / "djaxrunlog"), *argv]


def _honcho(count: int, argv: Sequence[str], folder: Path) -> list[str]:
    file = folder / f"Procfile-{count}"
    file.write_text("".join(f"p{n}: exec {shlex.join(argv)}\n" for n in range(count)))
    return [_found("honcho"), "-d", str(folder), "-f", file.name, "start"]


def _srun(count: int, argv: Sequence[str], folder: Path, *options: str) -> list[str]:
    """In an allocation, as one writes it who wants the job to end with its first failure."""
    srun = [_found("srun"), "--kill-on-bad-exit", "--overlap", "--overcommit", "--mpi=none"]
    return [*srun, *options, "-N", "1", "-n", str(count), *argv]


def _with(form: Callable[..., list[str]], *options: str) -> Callable[..., list[str]]:
    return lambda count, argv, folder: form(count, argv, folder, *options)


def _found(program: str) -> str:
    """Where a program is, first among those that were installed for this."""
    places = os.pathsep.join([str(VENV / "bin"), os.path.dirname(sys.executable)])
    return shutil.which(program, path=f"{places}{os.pathsep}{os.environ.get('PATH', '')}") or ""


def _open_mpi() -> str:
    return _that_says("Open", "mpirun.openmpi", "mpirun")  # Open MPI or OpenRTE


def _mpich() -> str:
    return _that_says("HYDRA", "mpiexec.hydra", "mpirun.mpich", "mpiexec", "mpirun")


def _that_says(words: str, *programs: str) -> str:
    for program in filter(None, map(_found, programs)):
        done = subprocess.run([program, "--version"], capture_output=True, text=True)
        if words in done.stdout + done.stderr:
            return program
    return ""


def _version(program: str) -> str:
    """Return the first word of a program's `--version` that begins with a digit."""
    if not program:
        return ""
    done = subprocess.run([program, "--version"], capture_output=True, text=True)
    words = (done.stdout + done.stderr).replace(",", " ").split()
    return next((word for word in words if word[:1].isdigit()), "")


def _package_version(program: str, package: str) -> str:
    """Return a package and its version, of the venv that a program is in; nothing elsewhere."""
    found = Path(program).parents[1].glob(f"lib/python3*/site-packages/{package}-*.dist-info")
    return next((f"({package} {path.stem.partition('-')[2]})" for path in found), "")


def here() -> list[Peer]:
    """Those that are installed; the shell loop always is."""
    known = (
        ("parallel", PARALLEL, _parallel, _with(_parallel, "--tag", "--line-buffer")),
        (_open_mpi(), "Open MPI", _mpirun, _with(_mpirun, "--tag-output")),
        (_mpich(), "MPICH's hydra", _hydra, _with(_hydra, "-prepend-rank")),
        ("torchrun", "torchrun", _torchrun, None),
        ("srun" if "SLURM_JOB_ID" in os.environ else "", "srun", _srun, _with(_srun, "-l")),
        ("djaxrun", "djaxrun", _djaxrun, _djaxrun),
        ("honcho", "honcho", _honcho, _honcho),
    )
    found = [Peer(LOOP, _loop)]
    for program, name, command, prefixed in known:
        path = _found(program) if program else ""
        if path:
            package = _PACKAGES.get(name)
            version = _package_version(path, package) if package else _version(path)
            slow = command in (_honcho, _djaxrun)
            found.append(Peer(f"{name} {version}".strip(), command, prefixed, slow))
    return found


def missing() -> list[str]:
    """Those that are not here, and how they come here."""
    lines = []
    for program, name, how in (
        (_found("parallel"), PARALLEL, "the system's package parallel"),
        (_open_mpi(), "Open MPI", "the system's package openmpi-bin"),
        (_mpich(), "MPICH's hydra", "scripts/bench --install"),
        (_found("honcho"), "honcho", "scripts/bench --install"),
        (_found("djaxrun"), "djaxrun", "scripts/bench --install"),
        (_found("torchrun"), "torchrun", "not installed for this: torch takes gigabytes"),
        (os.environ.get("SLURM_JOB_ID"), "srun", "run this in an allocation of Slurm"),
    ):
        if not program:
            lines.append(f"{name}: not here ({how})")
    return lines


def install() -> None:
    """Install those that the package index has in a reasonable size."""
    subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "install", "--quiet", *_FROM_INDEX]
    subprocess.run([*pip, "--disable-pip-version-check"], check=True)
