"""Command lines that start nothing: one line that says why, and a status."""

import shlex
from pathlib import Path

import pytest

from mcjax_launch.cli.command import main

# Options that take a program's name for their value, and the word for that.
TAKES_ALL = {
    **dict.fromkeys(("--events", "--report", "--hosts"), "FILE"),
    **dict.fromkeys(("--log-dir", "--profile", "--compile-cache", "-C"), "DIR"),
    "--sync": "PATH", "--via": "COMMAND", "--wrap": "COMMAND", "-x": "NAME", "--coordinator": "HOST",
    "--preload": "MODULES", "--python": "PATH",
}  # fmt: skip
PLACE = "--num-hosts 2 --host-rank 0"
# Words: what is said of them, and the status where that is not 2.
REFUSED: dict[str, str | tuple[str, int]] = {
    "": "no PROGRAM",
    "-n 2 ''": "PROGRAM is empty",
    "-n 2 ' '": "PROGRAM is blank: is a variable of your shell unset?",
    "-n 2 -m '\t' x": "PROGRAM is blank",
    # detached jobs
    "--attach 0123abcd": "0123abcd: no such detached job; there is none",
    "--attach": "there is no detached job: mcjax-launch --detach PROGRAM starts one",
    "--attach x": "--attach: 'x' is not the id of a detached job: --jobs lists them",
    "--stop ff": "ff: no such detached job",
    "--wait ff": "ff: no such detached job; there is none",
    "--wait x": "--wait: 'x' is not the id of a detached job: --jobs lists them",
    "--wait": "--wait: needs a value: --wait ID; --jobs lists the ids",
    "--wait ff --grace 2": "--wait cannot be combined with --grace",
    "--wait ff true": "--wait runs no PROGRAM: leave out true, or --wait",
    "--jobs train.py": "--jobs runs no PROGRAM: leave out train.py, or --jobs",
    "--attach -n 2": "--attach cannot be combined with -n",
    "--json true": "--json needs --jobs",
    "--detach --watch -- true": "--detach cannot be combined with --watch",
    "--detach --pdb train.py": "--detach cannot be combined with --pdb: a detached job has no terminal",
    "--detach --status=line true": "--detach cannot be combined with --status",
    "--detach --events fd:x true": "--events fd:x: name a descriptor from 3 on",
    # --events, --log-dir
    "--events fd:1 true": "--events fd:1: name a descriptor from 3 on",
    "--events fd:2 true": "--events fd:2: name a descriptor from 3 on",
    "--events fd:77 true": "--events fd:77: no such descriptor is open for writing",
    "--events /proc/nowhere/events true": "--events /proc/nowhere/events: cannot be written: ",
    "--log-dir /dev/null/logs true": "--log-dir /dev/null/logs: /dev/null is not a directory; give another name",
    "--log-dir notes.txt true": "--log-dir notes.txt: not a directory; give another name",
    "--events notes.txt true": "--events notes.txt: holds something other than events, which would be lost: name another file",
    # an option that takes PROGRAM
    **{
        f"{option} train.py {more}": f"{option} took train.py as its {value}: there is no PROGRAM left"
        for option, value in TAKES_ALL.items()
        for more in ("", "-n 2")
    },
    "--log-dir ./run.sh": "--log-dir took ./run.sh as its DIR: there is no PROGRAM left",
    "--detach --events train.py": "--events took train.py as its FILE: there is no PROGRAM left",
    "-n 2 --events train.py --lr 3": "--lr: no such option; --events took train.py as its FILE: there is no PROGRAM left",
    "-n 2 --events=train.py": "no PROGRAM: try mcjax-launch -n 4 train.py, or --help",
    **{
        f"{option} train.py 10": f"{option} train.py is the name of a Python program, not of output; write {option} {TAKES_ALL[option]}"
        for option in ("--events", "--report", "--log-dir", "--profile", "--compile-cache")
    },
    "--profile train.py@5s train.py": "--profile train.py@5s is the name of a Python program",
    "--dry-run --events train.py 10": "--events train.py is the name of a Python program",
    # --watch
    "--watch --dry-run train.py": "--watch cannot be combined with --dry-run",
    "--watch --emit slurm train.py": "--watch cannot be combined with --emit",
    "--watch --stdin train.py": "--watch cannot be combined with --stdin: it can be read",
    "--check --watch": "--check cannot be combined with --watch",
    "--watch true": "--watch: true names no file here; name one: --watch=PATH",
    "--watch=no/such train.py": "--watch no/such: no such file or directory",
    # programs
    "missing": ("missing: not found in PATH", 127),
    "./missing": ("./missing: no such file", 127),
    "/etc": ("/etc: is a directory; name a program in it", 126),
    "--python /no/python -m x": ("--python /no/python", 127),
    "trian.py": ("trian.py: no such file in {}; did you mean train.py?", 127),
    "./rnu.sh": ("./rnu.sh: no such file; did you mean ./run.sh?", 127),
    "rnu.sh": ("rnu.sh: not found in PATH; did you mean ./run.sh?", 127),
    "'python train.py'": ("python train.py: no such file in {}; pass PROGRAM and its arguments as separate words: leave out the quotes", 127),
    "pk.train": ("pk.train: not found in PATH; write -m pk.train", 127),
    "'echo hi'": ("echo hi: not found in PATH; pass PROGRAM and its arguments as separate words: leave out the quotes", 127),
    "'my trian.py'": ("my trian.py: no such file in {}; did you mean my train.py?", 127),
    "FOO=1 python": ("FOO=1: not found in PATH; set variables with -x FOO=1", 127),
    # options
    "--reload train.py": "--reload: no such option; use --watch: it runs the job again at each save",
    "--follow": "--follow: no such option; use --attach [ID]",
    "--logs": "--logs: no such option; use --attach [ID] for a detached job's lines; --log-dir DIR",
    "-dry-run train.py": "-dry-run: no such option; did you mean --dry-run?",
    "-n x train.py -output f": "-n: 'x' is not a whole number",
    "--exclusive train.py": "--exclusive: no such option; it is sbatch's: give it to sbatch or salloc; --emit slurm --engine-option --exclusive puts",
    "-C /no/where echo": "-C /no/where: no such directory",
    "-x NOT_SET_HERE echo": "-x NOT_SET_HERE: not set here; write -x NOT_SET_HERE=VALUE",
    # given twice
    "--report a.json --report b.json echo": "--report a.json --report b.json: give --report only once",
    "--report=a.json -n 2 --report b.html echo": "--report a.json --report b.html: give --report",
    "--show 0 --show 1 -n 2 echo": "--show 0 --show 1: give --show only once",
    "--emit slurm --report a.json --report b.json echo": "--report a.json --report b.json: give --report only once",
    "--check --report a.json --report b.json": "--report a.json --report b.json: give --report only once",
    "--hosts ws-0 --via 'kubectl exec {host} --' true": "--via kubectl exec {host} --: kubectl exec does not pass on standard input; add -i",
    "--max-restarts=-1 true": "--max-restarts: '-1' is ",
    "--show 4 -n 4 echo": "--show 4: no such rank; the job has ranks 0-3",
    "--wrap 0,4:env -n 4 echo": "--wrap 4: no such rank; the job has ranks 0-3",
    "--coordinator h:port echo": "--coordinator h:port: write HOST or HOST:PORT",
    "--slices 0 echo": "--slices: '0' is not auto, one, host or a number",
    "--slices 3 -n 4 echo": "--slices 3: 4 ranks cannot be split into 3 equal slices; choose a divisor of 4",
    "a.ipynb": "a.ipynb is a notebook: make a.py of it with `jupyter nbconvert --to script a.ipynb`, or run its cells with %%mcjax",
    "-n 2 a.py x : -n 2 b.py": "a.py ... : -n ...: a job runs one program in all ranks; let that program choose what to do by JAX_PROCESS_ID",
    # one launcher per host
    f"{PLACE} true": "--num-hosts needs --coordinator HOST:PORT, the same for all launchers",
    f"{PLACE} --coordinator h true": "--num-hosts needs --coordinator HOST:PORT, the same for all launchers",
    f"{PLACE} --coordinator 127.0.0.1:1 --max-restarts 1 true": "--num-hosts: one launcher cannot restart the whole job; leave --max-restarts to the scheduler",
    "--num-hosts 2 --coordinator 127.0.0.1:1 true": "--num-hosts needs --host-rank I, or JOB_COMPLETION_INDEX",
    "--num-hosts 2 --host-rank 2 --coordinator 127.0.0.1:1 true": "--host-rank 2: must be 0 to 1",
    f"{PLACE} --coordinator 127.0.0.1:1 -n 3 true": "-n 3: not a multiple of --num-hosts 2",
    f"{PLACE} --coordinator 127.0.0.1:1 --hosts a,b true": "--num-hosts: each launcher runs its own host's ranks; leave out --hosts",
    "--mtls on --no-hook true": "--mtls on cannot be combined with --no-hook: ",
    f"--mtls on {PLACE} --coordinator 127.0.0.1:1 true": "--mtls on needs one launcher for all hosts: leave out --num-hosts",
    # --emit
    "--emit job --image x --max-restarts 1 train.py": "--emit job: a Job cannot restart all its pods together; use --emit jobset",
    "--emit slurm --num-hosts 2 --procs-per-host 3 -n 8 train.py": "--emit: -n 8 does not fit 2 hosts with 3 ranks each; set --num-hosts and",
    "--emit slurm --hosts a,b train.py": "--emit: the scheduler chooses the hosts",
    "--emit job --image x --sync data train.py": "--emit job: pods do not have this machine's files; leave out --sync, and put data into the image or on",
    "--emit jobset --image x --num-hosts 2 --report run.json train.py": "--emit jobset: each pod has its own launcher, which writes its own report; use {host} in the name, on a volume: --report '/shared/{host}.json'",
    "--emit job --image x --pdb all train.py": "--emit job: pods have no terminal; leave out --pdb",
    # --check
    "--check bash x.sh": "--check compares the hosts' copies of a Python file or, with -m, of a "
    "module; leave out bash",
    "--check --max-restarts 2": "--check cannot be combined with --max-restarts",
    "--check --num-hosts 2 --host-rank 0": "--check cannot be combined with --host-rank",
    "--check --report x.html": "--report x.html: the report of --check is JSON; name it *.json",
    "--check --report '{job_id}.json'": "--report {job_id}.json: --check does not fill in placeholders",
    "--check --hosts no/hosts.txt": "--hosts no/hosts.txt: no such file",
    "--check --via sh": "--via sh: no hosts to reach",
    # --report
    "--report run.txt echo": "--report run.txt: the name must end in .json or .html",
    "--report '{process_id}.json' echo": "--report {process_id}.json: one report holds all ranks, so there is no ",
    "--report /proc/run.json echo": "--report /proc/run.json: cannot be written: ",
    "--report folder.html echo": "--report folder.html: cannot be written: Is a directory",
    "--report run.sh/run.json echo": "--report run.sh/run.json: cannot be written: Not a directory",
    "--report '/proc/no/{job_id}/run.json' echo": "--report /proc/no/{job_id}/run.json: cannot be written: ",
    f"--report {'a' * 300}.json echo": f"--report {'a' * 128}...{'a' * 58}.json: cannot be written: File name too ",
}  # fmt: skip


def snapshot(folder: Path) -> dict[Path, bytes]:
    """Return the content of all files below a folder, by path."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("words", REFUSED)
def test_bad_command_lines_are_refused(
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name in ("train.py", "my train.py", "run.sh", "notes.txt"):
        (tmp_path / name).write_text("pass\n")
    (tmp_path / "run.sh").chmod(0o755)
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "pk").mkdir()
    (tmp_path / "pk/train.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)  # where an error is an annotation too
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    before = snapshot(tmp_path)
    wanted = REFUSED[words]
    said, status = wanted if isinstance(wanted, tuple) else (wanted, 2)
    assert main(shlex.split(words)) == status
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    said = said.replace("{}", str(tmp_path))
    assert err.startswith(f"mcjax-launch: {said}"), err
    assert snapshot(tmp_path) == before
