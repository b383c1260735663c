"""Completion in real shells, set up by the line that the documentation has for each."""

import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import documented
import pytest
from jobs import Jobs
from terminal import Keyboard

PROMPT = "ready> "


def setup(shell: str) -> str:
    """The line that sets completion up."""
    [session] = documented.at(documented.SHELLS)
    lines = session.steps[0].command.splitlines()
    [line] = (line for line in lines if f"_MCJAX_LAUNCH_COMPLETE={shell}_source" in line)
    return line


@pytest.fixture
def environment(jobs: Jobs, tmp_path: Path) -> dict[str, str]:
    """One with the launcher in PATH, in a folder with some files."""
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    launcher = bin_ / "mcjax-launch"
    launcher.write_text(f"#!{sys.executable}\nfrom mcjax_launch.__main__ import run\nrun()\n")
    launcher.chmod(0o755)
    work = tmp_path / "work"
    (work / "data").mkdir(parents=True)
    for name in ("train.py", "trial.py", "--odd.py", "my hosts.txt", "data/one.txt"):
        (work / name).touch()
    return jobs.environment(
        HOME=str(tmp_path), PATH=f"{bin_}:{os.environ['PATH']}", TERM="xterm", PS1=PROMPT
    )


class Shell(Keyboard):
    """An interactive shell at a terminal.

    Args:
        words: that start it.
        environment: of it.

    """

    def __init__(self, words: list[str], environment: dict[str, str]) -> None:
        self.pid, fd = pty.fork()
        if self.pid == 0:
            os.chdir(Path(environment["HOME"]) / "work")
            os.execvpe(words[0], words, environment)
        super().__init__(fd)

    def run(self, line: str) -> None:
        """Run a command; the next prompt ends with what no echo holds."""
        self.type(f"{line}; echo 'd'one\r")
        self.until("done\r\n")
        self.until(PROMPT)

    def completed(self, line: str, expected: str) -> None:
        """Type this and Tab; the line becomes as expected, and is then given up."""
        self.type(f"{line}\t")
        self.until(expected)
        self.type("\x15\r")
        self.until(PROMPT)

    def close(self) -> None:
        os.close(self.fd)
        os.waitpid(self.pid, 0)


Start = Callable[[str], Shell]


@pytest.fixture
def start(environment: dict[str, str]) -> Iterator[Start]:
    """Starts a shell in which completion is set up."""
    shells: list[Shell] = []

    def begin(name: str) -> Shell:
        if shutil.which(name) is None:
            pytest.skip(f"needs {name}")
        words = {"bash": ["bash", "--norc"], "zsh": ["zsh", "-f", "-i"]}[name]
        shell = Shell(words, environment)
        shells.append(shell)
        shell.until(PROMPT)
        if name == "zsh":
            shell.run("autoload -Uz compinit && compinit -D; unsetopt PROMPT_SP")
        shell.run(setup(name))
        return shell

    yield begin
    for shell in shells:
        shell.close()


def test_completion_works_in_bash(start: Start) -> None:
    shell = start("bash")
    shell.completed("mcjax-launch --colo", "r ")
    shell.completed("mcjax-launch --color al", "ways ")
    shell.completed("mcjax-launch --color=ne", "ver ")
    shell.completed("mcjax-launch --hosts my", "\\ hosts.txt ")
    shell.completed("mcjax-launch --log-dir da", "ta/")
    shell.completed("mcjax-launch -x A=b -n 2 tra", "in.py ")
    shell.completed("mcjax-launch train.py --od", "d.py ")
    shell.completed("mcjax-launch train.py --emit tri", "al.py ")


def test_completion_works_in_zsh(start: Start) -> None:
    shell = start("zsh")
    shell.completed("mcjax-launch --colo", "r")
    shell.completed("mcjax-launch --color al", "ways")
    shell.completed("mcjax-launch --hosts my", "\\ hosts.txt")
    shell.completed("mcjax-launch -n 2 tra", "in.py")
    shell.completed("mcjax-launch train.py --emit tri", "al.py")


def test_completion_works_in_fish(environment: dict[str, str]) -> None:
    """It can be asked for what it would offer."""
    if shutil.which("fish") is None:
        pytest.skip("needs fish")

    def answers(line: str) -> list[str]:
        script = f"{setup('fish')}; complete -C '{line}'"
        folder = Path(environment["HOME"]) / "work"
        done = subprocess.run(
            ["fish", "--private", "-c", script],
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    def offered(line: str) -> list[str]:
        return sorted(answer.partition("\t")[0] for answer in answers(line))

    assert offered("mcjax-launch --colo") == ["--color"]
    assert offered("mcjax-launch train.py --emit tra") == ["train.py"]
    (status,) = answers("mcjax-launch --stat")
    assert status.startswith("--status\tShow progress")


def test_completion_starts_no_process(jobs: Jobs) -> None:
    """Neither an agent nor a job, and the answer is quick."""
    code = (
        "import os\n"
        "def forked(): raise AssertionError('it was forked')\n"
        "os.fork = forked\n"
        "from mcjax_launch.__main__ import run; run()"
    )
    asked = {"COMP_WORDS": "mcjax-launch -n 2 --emit sl", "COMP_CWORD": "4"}
    env = {"_MCJAX_LAUNCH_COMPLETE": "bash_complete", **asked}
    ended = jobs.run("-n", 2, "true", launcher=[sys.executable, "-c", code], env=env)
    assert (ended.status, ended.stdout, ended.stderr) == (0, "plain,slurm\n", "")


def test_completion_for_an_unknown_shell_fails(jobs: Jobs) -> None:
    for asked in ("tcsh_source", "bash_nothing"):
        ended = jobs.run(env={"_MCJAX_LAUNCH_COMPLETE": asked})
        assert (ended.status, ended.out, ended.err) == (1, b"", b"")
