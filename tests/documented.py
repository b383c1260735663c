"""Say which test runs each command of the pages, make the folder for it, and compare its output."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pages
from jobs import PROGRAMS, Ended
from pages import PAGES, ROOT, Session, Step

HERE = "tests/jax/test_docs_output.py"
TYPED = "tests/jax/test_docs_typed.py"
GPUS = "tests/lab/test_gpus.py"
HOSTS = "tests/lab/test_docs.py"
INSTALL = "tests/lab/test_install.py"
SGE = "tests/lab/test_sge.py"
SLURM = "tests/lab/test_slurm.py"
SHELLS = "tests/process/test_completion.py"

# Sessions with special needs; others run on the hosts of the lab if they name hosts, or else HERE.
_PLACES = {
    "README.md: git clone https://github.com/mcjax/mcjax-launch": INSTALL,
    "README.md: mcjax-launch -n 4 --watch train.py": TYPED,
    "README.md: mcjax-launch train.py": SLURM,
    "README.md: pip install '.[functions]'": INSTALL,
    "README.md: pip install .": INSTALL,
    "README.md: scripts/demo": INSTALL,
    "schedulers.md: qsub job.sh": SGE,
    "cookbook.md: export MCJAX_VIA='gcloud compute tpus tpu-vm ssh NAME --zone=Z"
    " --worker={host} -q --command={command}'": HERE,
    "cookbook.md: mcjax-launch --hosts box1,box2 --via 'docker exec -i {host}'"
    " --sync train.py train.py": HERE,
    "failures.md: mcjax-launch -n 2 train.py": HOSTS,
    "failures.md: mcjax-launch -n 2 -m debugpy --listen 'localhost:567{process_id}'"
    " --wait-for-client train.py": HOSTS,  # its ports are its own there
    "failures.md: mcjax-launch -n 4 --pdb train.py": TYPED,
    "failures.md: pip install debugpy": INSTALL,
    "failures.md: ssh -L 5671:localhost:5671 gpu02": HOSTS,
    "hosts.md: --via 'ssh -F cluster.cfg {host}'": HOSTS,
    "hosts.md: ssh gpu01 true": HOSTS,
    'reference.md: eval "$(_MCJAX_LAUNCH_COMPLETE=bash_source mcjax-launch)"': SHELLS,
    "index.md: git clone https://github.com/mcjax/mcjax-launch": INSTALL,
    "index.md: mcjax-launch --detach -n 4 train.py": TYPED,
    "index.md: mcjax-launch -n 4 --pdb train.py": TYPED,
    "index.md: mcjax-launch -n 8 train.py": GPUS,
    "index.md: mcjax-launch train.py": SLURM,
    "index.md: mcjax-launch -n 4 -d 2 --watch train.py": TYPED,
    "leave.md: mcjax-launch --attach 7c3e": TYPED,
    "leave.md: mcjax-launch --detach -n 4 train.py": TYPED,
    "leave.md: mcjax-launch --jobs": TYPED,
    "leave.md: mcjax-launch --stop 7c3e": TYPED,
    "leave.md: mcjax-launch --wait 7c3e --timeout 1h": TYPED,
    "python.md: pip install cloudpickle": INSTALL,
    "schedulers.md: kubectl apply -f pods.yaml && kubectl rollout status statefulset/ws": HERE,
    "schedulers.md: mcjax-launch --num-hosts 4 --host-rank 2 --coordinator host0:8476"
    " --procs-per-host 8 train.py": HOSTS,
    "schedulers.md: mcjax-launch --via 'srun -N1 -n1 -w {host} --overlap --gpus=8"
    " --container-image=IMAGE' --python python3 train.py": SLURM,
    "schedulers.md: mcjax-launch train.py": SLURM,
}
# What no test runs, and why.
NOWHERE = {
    "README.md: scripts/test": "it is what runs the tests",
    "README.md: scripts/test fast": "it is what runs the tests",
    "benchmarks.md: scripts/bench": "takes an hour, on a machine without other work",
    "benchmarks.md: scripts/bench one": "measures, on a machine without other work",
    "benchmarks.md: scripts/bench death --to-the-end": "waits 300 s for each other launcher",
    "cookbook.md: mcjax-launch -n 4 --tpu-chips-per-process 1 train.py": "needs a TPU",
    "cookbook.md: pip install git+https://github.com/mcjax/mcjax-launch jax pytest": (
        "needs the address on the network"
    ),
    "index.md: RUN apt-get update && apt-get install --yes --no-install-recommends git"
    " openssh-client && rm -rf /var/lib/apt/lists/*": "builds an image",
    'index.md: RUN pip install --no-cache-dir "jax[cuda13]"'
    " git+https://github.com/mcjax/mcjax-launch": "builds an image",
    "index.md: pip install mcjax-launch": "waits for the first release",
    "index.md: uv tool install mcjax-launch": "waits for the first release",
    "index.md: uvx mcjax-launch": "waits for the first release",
    "hosts.md: mcjax-launch --hosts hosts.txt --setup 'pip install -U \"jax[tpu]\"' train.py": (
        "installs packages"
    ),
    "leave.md: loginctl enable-linger": "changes the machine",
    "preview.md: pip install libtpu": "changes what other tests' ranks print",
    "reference.md: mcjax-launch [OPTIONS] [--] PROGRAM [ARGS]...": "a synopsis",
    "schedulers.md: kubectl patch --local -f - -o yaml --type json -p '[...]'": "dots to fill in",
    "security.md: scripts/gpu-check": "needs a GPU",
    "security.md: scripts/test portable": "it is what runs the tests",
    "verifying.md: scripts/bench spmd": "measures, on a machine without other work",
}

TRAIN = """
import jax
from jax.experimental.multihost_utils import process_allgather

jax.distributed.initialize()
for step in range(3):
    loss = process_allgather(jax.process_index() + step).mean()
    print("step", step, "loss", loss)
"""
#: Says where it runs, and with which GPUs.
SHARES = """
import os
import socket

gpus = os.environ.get("JAX_LOCAL_DEVICE_IDS", "all")
print("rank", os.environ["JAX_PROCESS_ID"], "on", socket.gethostname(), "has", gpus)
"""
# What a reader has whose page shows no such file.
_FILES = {
    "train.py": TRAIN,
    "toy.py": (PROGRAMS / "guide" / "toy.py").read_text(),
    "hosts.txt": "gpu[01-02] slots=2\n",
    "chat.py": 'import os\nif os.environ["JAX_PROCESS_ID"] == "0":\n    print("you said", input())\n',
}
TEST = """
import jax
from jax.experimental.multihost_utils import process_allgather

def test_sum():
    assert jax.local_device_count() == 2
    assert process_allgather(jax.process_index()).sum() == 1
"""
# Clients that are not to be had in a test, or that would reach others.
_CLIENTS = {
    "docker": """
case $1 in
exec) shift 3 ;;
run) while [ "$1" != my/image ]; do shift; done; shift ;;
esac
exec "$@"
""",
    "pip": 'case "$*" in *"jax[tpu]") ;; *) exec python -m pip "$@" ;; esac\n',
    "nsys": 'shift 3; exec "$@"\n',
    "py-spy": 'shift 4; exec "$@"\n',
    "qsub": "grep '^#PBS' \"$1\"\n",
    "kubectl": f"""
case "$1 $2 $3" in
exec*) FAKE_PODS="ws-0 ws-1 ws-2 ws-3" exec {ROOT}/tests/fake_kubectl "$@" ;;
"apply -f -") grep apiVersion ;;
"apply -f "*) grep apiVersion "$3" ;;
"apply -k "*) exec {shutil.which("kubectl") or "echo"} kustomize "$3" ;;
esac
""",
}


def all_sessions() -> list[Session]:
    return [session for page in PAGES for session in pages.sessions(page)]


def place(session: Session) -> str:
    """The test that runs it; "" for none."""
    if str(session) in NOWHERE:
        return ""
    names_hosts = any("--hosts" in step.command for step in session.steps)
    return _PLACES.get(str(session), HOSTS if names_hosts else HERE)


def listed() -> set[str]:
    """The sessions that a table names."""
    return {*_PLACES, *NOWHERE}


def at(where: str) -> list[Session]:
    """The sessions that a test runs."""
    return [session for session in all_sessions() if place(session) == where]


def prepare(session: Session, folder: Path, more: dict[str, str] | None = None) -> dict[str, str]:
    """Make the files that the reader has by then, and stand-ins for clients; variables for these.

    Args:
        session: whose page shows files.
        folder: where they are made.
        more: files that take the place of others.

    """
    shown = pages.files(session.page)
    if "tests/multiprocess" in session.steps[0].command:
        [shown["tests/multiprocess/conftest.py"]] = pages.fences(session.page, "python")
        shown["tests/multiprocess/test_two.py"] = TEST
    for name, text in {**_FILES, **shown, **(more or {})}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    bin_ = folder / "bin"
    bin_.mkdir()
    for name, text in _CLIENTS.items():
        (bin_ / name).write_text(f"#!/bin/sh\n{text}")
        (bin_ / name).chmod(0o755)
    (bin_ / "gcloud").symlink_to(ROOT / "tests" / "fake_gcloud")
    return {"PATH": f"{bin_}:{Path(sys.executable).parent}:{os.environ['PATH']}"}


# --- what is printed ---

# What is another number in each run.
_VARIES = [
    (re.compile(r"\d+(\.\d+)? s\b"), "N s"),
    # JAX keeps whole seconds: none on a fast machine.
    (re.compile(r", which saved N s of compiling$"), ""),
    (re.compile(r"\(pid \d+\)"), "(pid N)"),
    (re.compile(r"\bhid \d+ lines?\b"), "hid N lines"),
    (re.compile(r"\d+(\.\d+){2,}"), "version"),
    (re.compile(r"^( *jax/.*):\d+ in \w+"), r"\1:N in function"),
    (re.compile(r"\(\d+ more calls? in jax\)"), "(N more calls in jax)"),
    (re.compile(r"; \d+ ranks,"), "; N ranks,"),
    (re.compile(r" \(warnings: load\)$"), ""),  # of --check, on a busy machine
    # There a rank may notice the end of another before it is killed itself.
    (re.compile(r"\d+ killed (\([^)]*\)), \d+ failed as a consequence at .*"), r"killed \1"),
]


def check(step: Step, ended: Ended, folder: Path) -> None:
    """Every line is printed, in whatever order ranks print theirs; the launcher's own in order.

    A note on what lasts may come again.
    """
    printed = [_plain(line, folder) for line in f"{ended.stdout}{ended.stderr}".splitlines()]
    shown = [_plain(line, folder) for line in step.shown.splitlines() if line.strip() != "..."]
    assert [line for line in shown if line and line not in printed] == [], "\n".join(printed)
    ours = [line for line in shown if line.startswith("mcjax-launch: ")]
    assert list(dict.fromkeys(line for line in printed if line in ours)) == ours


def _plain(line: str, folder: Path) -> str:
    """A line without what is another in each run."""
    line = line.replace(str(folder), "/work").replace(str(ROOT), "/work")
    mark, rest = re.match(r"(mcjax-launch: )?(.*)", line).groups()  # type: ignore[union-attr]
    for pattern, text in _VARIES:
        rest = pattern.sub(text, rest)
    return f"{mark or ''}{rest}"


def missing_tools(session: Session) -> list[str]:
    """Those of other projects that it needs, and this machine lacks."""
    text = " ".join(step.command for step in session.steps)
    needed = [name for name in ("gdb", "jq", "mpirun") if re.search(rf"\b{name} ", text)]
    lacks_module = "mpirun" in needed and not is_open_mpi_known_to_jax()
    return [name for name in needed if not shutil.which(name)] + ["mpi4py"] * lacks_module


def is_open_mpi_known_to_jax() -> bool:
    """Return whether JAX finds the processes of this Open MPI: from 5 on it does by mpi4py."""
    if not shutil.which("mpirun"):
        return False
    version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
    found = re.search(r"Open MPI\) (\d+)", version)
    return found is not None and (
        int(found[1]) < 5 or importlib.util.find_spec("mpi4py") is not None
    )
