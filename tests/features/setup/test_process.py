"""--setup: real launchers and shells, on this machine and on hosts of a stand-in for ssh."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import Ended, Jobs, Running, eventually, shell_script
from remote import FAKE_SSH


class Hosts:
    """A folder for jobs, and a cache of their own."""

    def __init__(self, jobs: Jobs, folder: Path) -> None:
        self._jobs = jobs
        self.folder = folder / "work"
        self.folder.mkdir()
        self._cache = folder / "cache"

    def start(self, *words: object, **env: str) -> Running:
        """Start a job in the folder; both of its streams come as stdout."""
        env = {"XDG_CACHE_HOME": str(self._cache), **env}
        return self._jobs.start(*words, env=env, cwd=self.folder, stderr=subprocess.STDOUT)

    def run(self, *words: object, **env: str) -> Ended:
        return self.start(*words, **env).finish()

    def count(self) -> int:
        """How often a command has run that appends a line to the file `ran`."""
        ran = self.folder.parent / "ran"
        return len(ran.read_text().splitlines()) if ran.exists() else 0


@pytest.fixture
def hosts(jobs: Jobs, tmp_path: Path) -> Hosts:
    return Hosts(jobs, tmp_path)


COUNTS = "echo x >> ../ran"


def test_variables_of_the_command_hold_for_ranks(hosts: Hosts) -> None:
    """Also where the user has given a variable, and where one is removed."""
    (hosts.folder / "env.sh").write_text(
        "export FROM_FILE='a b' LIBS=/new:$LIBS; unset GONE; cd /\n"
    )
    show = 'echo "<$FROM_FILE|$LIBS|${GONE-unset}|$MINE|$PWD>"'
    given = ("-n", 2, "-x", "LIBS=/old", "-x", "MINE=1", "--setup", ". ./env.sh; export MINE")
    ended = hosts.run(*given, "sh", "-c", show, GONE="here")
    assert ended.stdout.count(f"<a b|/new:/old|unset|1|{hosts.folder}>\n") == 2, ended.stdout
    assert "mcjax-launch:" not in ended.stdout


@pytest.mark.parametrize("where", [[], ["--hosts", "a,b", "--via", FAKE_SSH]])
def test_path_of_the_command_decides_the_python(hosts: Hosts, where: list[str]) -> None:
    (hosts.folder / "bin").mkdir()
    shell_script(hosts.folder / "bin" / "python3", f'echo chosen\nexec {sys.executable} "$@"')
    (hosts.folder / "show.py").write_text("print('shown')\n")
    command = ("--setup", 'export PATH="$PWD/bin:$PATH"', "show.py")
    ended = hosts.run(*where, "-n", 2, *command)
    assert (ended.stdout.count("chosen"), ended.stdout.count("shown")) == (2, 2), ended.stdout
    ended = hosts.run(*where, "-n", 2, "--python", sys.executable, *command)
    assert (ended.stdout.count("chosen"), ended.stdout.count("shown")) == (0, 2), ended.stdout


def test_command_makes_program_and_python(hosts: Hosts) -> None:
    """Neither exists before: the checks on this machine come after the command."""
    made = "mkdir -p new/bin; ln -sf $PY new/bin/python; echo \"print('made')\" > new.py"
    options = ("-x", f"PY={sys.executable}", "--setup", made, "--python", "new/bin/python")
    ended = hosts.run(*options, "new.py")
    assert (ended.status, ended.stdout) == (0, "[0] made\n")


def test_failure_on_a_host_begins_no_job(hosts: Hosts) -> None:
    lines = []
    for name in ("a", "b", "c"):
        (hosts.folder / name).mkdir()
        lines.append(f"{name} chdir={hosts.folder / name}\n")
    (hosts.folder / "a" / "good").touch()
    (hosts.folder / "hosts.txt").write_text("".join(lines))
    where = ("--hosts", "hosts.txt", "--via", FAKE_SSH)
    command = "[ -e good ] || { echo looking; echo nothing good; exit 3; }"
    ended = hosts.run(*where, "--setup", command, "sh", "-c", "echo rank")
    assert ended.status == 3
    assert "rank\n" not in ended.stdout
    first, *shown, last = ended.stdout.splitlines()
    name = first.split(";")[0][-1]
    assert first == f"mcjax-launch: --setup failed on {name}; its last lines, -v shows all:"
    assert shown == [f"[{name}] looking", f"[{name}] nothing good"]
    assert name in "bc"
    assert f"mcjax-launch: host {name}: --setup '[ -e good ] || " in last
    assert last.endswith(" s (nothing good): no rank was started")


@pytest.mark.parametrize(
    ("command", "status", "words"),
    [
        ("nosuch-command", 127, "name the command by its path"),
        ("kill -KILL $$", 137, "killed by SIGKILL"),
        ("set -e; false; true", 1, "exit status 1"),
        ("seq 50; false", 1, "its last lines, -v shows all"),
    ],
)
def test_status_of_the_command_is_the_jobs(
    hosts: Hosts, command: str, status: int, words: str
) -> None:
    ended = hosts.run("--setup", command, "true")
    assert ended.status == status, ended.stdout
    assert words in ended.stdout
    assert "\n[localhost] 30\n" not in ended.stdout


def test_output_of_the_command_is_shown_while_it_runs(hosts: Hosts) -> None:
    command = "echo first; until [ -e go ]; do sleep 0.05; done; seq 30000; read end < end"
    os.mkfifo(hosts.folder / "end")
    running = hosts.start("-v", "--setup", command, "true")
    running.read_until("first")
    (hosts.folder / "go").touch()
    running.read_until("30000")
    (hosts.folder / "end").write_text("now\n")
    assert running.finish().status == 0


# --- each start ---


def test_command_runs_at_each_start(hosts: Hosts) -> None:
    """Also after a restart; whatever it would find done already may have changed."""
    for number in (1, 2):
        hosts.run("--setup", f"{COUNTS}; sleep 1.1", "true")
        assert hosts.count() == number
    ended = hosts.run(
        *("--max-restarts", 1, "--setup", COUNTS, "sh", "-c", "exit $((1 - MCJAX_RESTART))")
    )
    assert ended.status == 0, ended.stdout
    assert hosts.count() == 4


# --- a command that hangs ---

HANGS = f"{COUNTS}; sleep 300 & setsid sleep 300 & trap '' TERM INT; echo hanging; wait"


def test_hanging_command_is_named(hosts: Hosts) -> None:
    options = ("-n", 1, "--timeout", 2, "--setup", HANGS)
    running = hosts.start(*options, "true", MCJAX_TEST_TIME_SCALE="0.1")
    running.read_until("--setup is not done after 1 s on localhost (localhost: hanging)")
    ended = running.finish()
    assert ended.status == 124
    assert "--timeout: --setup is not done after 2 s on localhost" in ended.stdout


@pytest.mark.parametrize("how", ["INT", "TERM", "KILL", "agent", "guardian"])
def test_nothing_is_left_of_a_killed_command(hosts: Hosts, how: str) -> None:
    """The fixture looks for what is left; and the next start runs it."""
    running = hosts.start("-v", "--setup", HANGS, "true")
    running.read_until("] hanging")
    if how == "agent":
        running.agent.kill()
    elif how == "guardian":
        running.guardian.kill()
    else:
        running.signal(signal.Signals[f"SIG{how}"])
    assert running.finish().status != 0
    ended = hosts.run("--setup", HANGS.replace("wait", "kill $(jobs -p)"), "true")
    assert ended.status == 0, ended.stdout
    assert hosts.count() == 2


def test_process_that_the_command_leaves_lasts_as_long_as_the_job(hosts: Hosts) -> None:
    command = "setsid sleep 300 & echo $! > ../pid"
    ended = hosts.run("--setup", command, "sh", "-c", "kill -0 $(cat ../pid) && echo lives")
    assert ended.stdout == "[0] lives\n"  # nothing about a process that outlives its rank
    pid = int((hosts.folder.parent / "pid").read_text())
    eventually(lambda: not os.path.exists(f"/proc/{pid}"))


# --- shell functions ---

CONDA = 'conda() { [ "$1" != activate ] || export CONDA_PREFIX="$HOME/forge/envs/$2"; }\n'
HOOK = """__conda_setup="$('{}/forge/bin/conda' 'shell.bash' 'hook' 2> /dev/null)"\n"""
MODULE = 'module() { export LOADED="$2"; }\n'


def test_functions_of_a_login_shell_are_known(hosts: Hosts, tmp_path: Path) -> None:
    """`conda` as `conda init` has written it, and `module`."""
    for folder, name, text in (
        ("forge/etc/profile.d", "conda.sh", CONDA),
        ("init", "sh", MODULE),
        (".", ".bashrc", f"case $- in *i*) ;; *) return;; esac\n{HOOK.format(tmp_path)}"),
    ):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / name).write_text(text)
    home = {"HOME": str(tmp_path), "MODULESHOME": str(tmp_path)}
    command = "module load cuda && conda activate jax"
    ended = hosts.run("--setup", command, "sh", "-c", 'echo "$LOADED $CONDA_PREFIX"', **home)
    assert ended.stdout == f"[0] cuda {tmp_path}/forge/envs/jax\n"


# --- with other options ---


@pytest.mark.only_linux("inotify")
@pytest.mark.parametrize(("slow", "counts"), [("true", (1, 2, 3)), ("sleep 1.1", (1, 1, 1))])
def test_watch_runs_a_quick_command_after_each_save(
    hosts: Hosts, slow: str, counts: tuple[int, ...]
) -> None:
    """Each run begins with the host's own variables; of a slow command they are kept."""
    program = hosts.folder / "train.py"
    text = "import os; print(os.environ['LIBS'], {n}, flush=True)\n"
    program.write_text(text.format(n=1))
    options = ("--watch", "--preload", "none", "-x", "LIBS=/old")
    command = f"{COUNTS}; {slow}; export LIBS=/new:$LIBS"
    running = hosts.start(*options, "--setup", command, "train.py")
    for number, count in enumerate(counts, 1):
        running.read_until(f"/new:/old {number}\n")
        running.read_until("waiting for the next save", number)
        assert hosts.count() == count
        program.write_text(text.format(n=number + 1))
    running.read_until("/new:/old 4\n")
    running.signal(signal.SIGINT)
    ended = running.finish()
    assert ended.status == 130
    assert ended.stdout.count("the next runs of --watch use what it has set") == (slow != "true")


def test_detached_job_begins_after_the_command(hosts: Hosts) -> None:
    started = hosts.run("--detach", "--setup", "export KEPT=kept", "sh", "-c", "echo $KEPT")
    assert started.status == 0, started.stdout
    shown = hosts.run("--attach", started.stdout.split()[-1])
    assert "[0] kept\n" in shown.stdout
    refused = hosts.run("--detach", "--setup", "echo no room; exit 5", "true")
    assert refused.status == 5
    assert "(no room): no rank was started" in refused.stdout


@pytest.mark.parametrize("kind", ["slurm", "jobset"])
def test_emitted_job_has_the_command(hosts: Hosts, kind: str) -> None:
    image = ("--image", "x") if kind == "jobset" else ()
    ended = hosts.run("--emit", kind, *image, "--setup", "uv sync && true", "train.py")
    assert ended.status == 0, ended.stdout
    assert "uv sync && true" in ended.stdout


def test_dry_run_shows_the_command_and_runs_it_not(hosts: Hosts) -> None:
    ended = hosts.run("--dry-run", "--setup", COUNTS, "true")
    assert f"# before, on each host: '{COUNTS}'" in ended.stdout
    assert hosts.count() == 0
