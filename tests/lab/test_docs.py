"""Commands of the pages that need hosts: they are named as the pages name them."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import documented
import pytest
from documented import HOSTS, SHARES
from jobs import Ended, Jobs, Running
from pages import Session
from remote import HERE, Lab, needs_lab
from terminal import PROMPT, Terminal

pytestmark = [needs_lab, pytest.mark.jax]

#: Other names of gpu01, gpu02, ... on the pages.
ALSO = ("a host0", "b", "", "")
SPMD = """
import jax
from jax.experimental.multihost_utils import process_allgather

jax.distributed.initialize()


def train_step(batch):
    return process_allgather(batch).sum()


batch = jax.process_index()
{blank}
if jax.process_index() == 1:
    breakpoint()
loss = train_step(batch)
"""


class Machines(Lab):
    """Hosts gpu01 to gpu04, with eight GPUs each as it seems; a plain `ssh` reaches them."""

    def __init__(self, base: Path) -> None:
        super().__init__(base, "gpu0", 4)
        config = Path(self.folder) / "ssh_config"
        text = config.read_text().replace("Host gpu0* 10.77.0.*", "Host *")
        names = "127.0.0.1 localhost\n10.77.0.1 gpu00\n"
        for number, (host, also) in enumerate(zip(self.hosts, ALSO, strict=True)):
            address = f"10.77.0.{11 + number}"
            names += f"{address} {host} {also}\n"
            text = text.replace(f"Host {host}\n", f"Host {host} {also}\n  HostKeyAlias {host}\n")
            self.do("enter", host, str(HERE / "made_up_gpus"), "--stay", "8", "true")
        config.write_text(text)
        self.names(names)
        self.inside("mount", "--bind", str(config), "/etc/ssh/ssh_config")
        self.gpus = [str(HERE / "made_up_gpus"), "8"]

    def type(self, jobs: Jobs, folder: Path, command: str, env: dict[str, str]) -> Running:
        """Run a command as it stands in the shell of gpu00."""
        return jobs.start(*self.words(folder, command), launcher=self._enter, env=env)

    def words(self, folder: Path, command: str) -> list[str]:
        """What a process of gpu00 runs in a folder, which `nsenter` leaves."""
        return [*self.gpus, "env", "-C", str(folder), "bash", "-ec", command]


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    made = Machines(tmp_path_factory.getbasetemp())
    yield made
    made.end()


def run(
    jobs: Jobs,
    machines: Machines,
    session: Session,
    folder: Path,
    files: dict[str, str] | None = None,
) -> Ended:
    """Run the only step of a session to its end."""
    env = documented.prepare(session, folder, files)
    [step] = session.steps
    ended = machines.type(jobs, folder, step.command, env).finish(100)
    machines.check_clean()
    documented.check(step, ended, folder)
    assert ended.status == 0, ended.stdout + ended.stderr
    return ended


# --- what needs more than its program's end ---


def run_with_shares(jobs: Jobs, machines: Machines, session: Session, folder: Path) -> None:
    """Eight ranks a host with a GPU each, one with all, two here."""
    shown = run(jobs, machines, session, folder, {"train.py": SHARES}).stdout
    if "--num-hosts" in session.steps[0].command:
        places = {f"rank {16 + rank} on gpu00 has {rank}" for rank in range(8)}
    else:
        here = {f"[{rank}] rank {rank} on gpu00 has {rank}" for rank in range(2)}
        places = {f"rank {rank} on gpu0{rank + 1} has all" for rank in range(4)} | here
        places |= {f"rank {rank} on gpu0{rank // 8 + 1} has {rank % 8}" for rank in range(32)}
    assert [place for place in places if f"{place}\n" not in shown] == []


def run_by_each_client(jobs: Jobs, machines: Machines, session: Session, folder: Path) -> None:
    """The page has options alone, each a way to reach a host; kubectl and gcloud stand for others."""
    env = documented.prepare(session, folder, {"train.py": SHARES})
    (folder / "cluster.cfg").write_text((Path(machines.folder) / "ssh_config").read_text())
    hosts = {"ssh": "gpu01,gpu02", "kubectl": "ws-0,ws-1", "gcloud": "0,1"}
    for option in session.steps[0].command.splitlines():
        client = option.removeprefix("--via '").split()[0]
        command = f"mcjax-launch --hosts {hosts[client]} {option} train.py"
        ended = machines.type(jobs, folder, command, env).finish(100)
        assert ended.status == 0, ended.stdout + ended.stderr
        assert [rank for rank in range(2) if f"] rank {rank} on " not in ended.stdout] == []
    machines.check_clean()


def debug_at_a_terminal(jobs: Jobs, machines: Machines, session: Session, folder: Path) -> None:
    [step] = session.steps
    above = SPMD.partition("breakpoint")[0].count("\n")
    program = SPMD.replace("{blank}", "\n" * (29 - above))  # which is in line 30 on the page
    env = documented.prepare(session, folder, {"train.py": program})
    words = machines.words(folder, step.command)
    terminal = Terminal(jobs, env=env, command=[*machines._enter, *words])
    try:
        terminal.step_past_breakpoint()
        seen = terminal.until(PROMPT)
        assert step.shown.splitlines()[0] in terminal.shown
        assert "train.py(31)<module>()" in seen and "-> loss = train_step(batch)" in seen
        terminal.type("c\r")
        assert terminal.finish() == 0
    finally:
        terminal.close()
    machines.check_clean()


def wait_for_an_ide(jobs: Jobs, machines: Machines, session: Session, folder: Path) -> None:
    [step] = session.steps
    env = documented.prepare(session, folder)
    running = machines.type(jobs, folder, f"exec {step.command} 2>&1", env)
    for port in (5670, 5671):
        reach = f"until (: > /dev/tcp/localhost/{port}) 2> /dev/null; do sleep 0.05; done"
        machines.inside("bash", "-c", reach)
    machines.launcher(running).send_signal(signal.SIGINT)
    assert running.finish().status == 130


Way = Callable[[Jobs, Machines, Session, Path], object]
WAYS: dict[str, Way] = {
    "cookbook.md: mcjax-launch --hosts 'gpu[01-04]' --procs-per-host 8 train.py": run_with_shares,
    "schedulers.md: mcjax-launch --num-hosts 4 --host-rank 2 --coordinator host0:8476"
    " --procs-per-host 8 train.py": run_with_shares,
    "hosts.md: --via 'ssh -F cluster.cfg {host}'": run_by_each_client,
    "failures.md: mcjax-launch -n 2 train.py": debug_at_a_terminal,
    "failures.md: mcjax-launch -n 2 -m debugpy --listen 'localhost:567{process_id}'"
    " --wait-for-client train.py": wait_for_an_ide,
}


def test_each_way_is_that_of_a_session() -> None:
    assert {str(session) for session in documented.at(HOSTS)} >= WAYS.keys()


@pytest.mark.parametrize("session", documented.at(HOSTS), ids=str)
def test_documented_command_works_on_hosts(
    jobs: Jobs, machines: Machines, tmp_path: Path, session: Session
) -> None:
    WAYS.get(str(session), run)(jobs, machines, session, tmp_path)
