"""A coordinator that is reached over the connections to the hosts: `--coordinator ssh`."""

import sys
from pathlib import Path

import pytest
from jobs import Ended, Jobs
from remote import FAKE_SSH
from stand_in_jax import BARE, EXPLICIT

OPTIONS = ("--via", FAKE_SSH, "--coordinator", "ssh", "--python", sys.executable)
# Each connects to rank 0 where the hook leads it, and `server` and `client` is what it then has.
# As with JAX's own service, rank 0 listens at its place by the time that its agent is told.
TALK = """
import os, time, jax
from jax._src import distributed as inner
rank, place = int(os.environ["JAX_PROCESS_ID"]), os.environ["MCJAX_HOOK_COORDINATOR"]
jax.distributed.initialize()
if rank == 0:
    os.unlink(place)
    server = inner._jax.get_distributed_runtime_service("unix:" + place)
    print("serves", flush=True)
    client, _ = server.accept()
    {SERVED}
else:
    while True:
        client, place = inner.opened("unix:" + os.environ["MCJAX_HOOK_COORDINATOR"])
        client.connect(place)
        client.send(b"hello")
        if client.recv(1):
            break
    {CLIENT}
"""


def run(jobs: Jobs, folder: Path, program: str, hosts: str = "a,b:2,c", *more: object) -> Ended:
    """What ranks on these hosts come to that run `program` with the stand-in for jax."""
    code = f"import os, jax\nrank = os.environ['JAX_PROCESS_ID']\n{program}"
    words = ["--hosts", hosts, *OPTIONS, "-x", f"PYTHONPATH={folder}", *more]
    return jobs.run(*words, sys.executable, "-c", code, limit=60)


def talk(jobs: Jobs, folder: Path, *, served: str, client: str) -> Ended:
    program = TALK.replace("{SERVED}", served).replace("{CLIENT}", client)
    return run(jobs, folder, program, "a,b")


def test_ranks_meet_on_sockets_of_their_own_hosts(jobs: Jobs, stand_in: Path) -> None:
    ended = run(jobs, stand_in, BARE)
    assert ended.status == 0, ended.stderr
    places = {line.split(" at ")[1] for line in ended.stdout.splitlines() if " at " in line}
    assert len(places) == 3, ended.stdout
    assert all(place.startswith("unix:/") for place in places)


def test_a_program_with_an_address_of_its_own_goes_there(jobs: Jobs, stand_in: Path) -> None:
    ended = run(jobs, stand_in, EXPLICIT.replace("2, int", "4, int"))
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count("at 127.0.0.1:") == 4
    ended = run(
        jobs, stand_in, f"{EXPLICIT} if rank == '0' else {BARE}".replace("2, int", "4, int")
    )
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count("at 127.0.0.1:") == 4


def test_a_jaxlib_that_does_not_say_when_it_listens(jobs: Jobs, stand_in: Path) -> None:
    inner = stand_in / "jax" / "_src" / "distributed.py"
    inner.write_text(inner.read_text().replace("class _jax", "class other"))
    outer = stand_in / "jax" / "distributed.py"
    outer.write_text(outer.read_text().replace("inner._jax", "inner.other"))
    ended = run(jobs, stand_in, BARE)
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count("at 127.0.0.1:") == 4


def test_the_last_words_of_rank_0_reach_the_others(jobs: Jobs, stand_in: Path) -> None:
    ended = talk(
        jobs,
        stand_in,
        served="client.sendall(bytes(3_000_000)); os._exit(0)",
        client="got = 1\n"
        "    while data := client.recv(1 << 20): got += len(data); time.sleep(0.01)\n"
        "    print('got', got)",
    )
    assert ended.status == 0, ended.stderr
    assert "got 3000000" in ended.stdout


def test_an_end_does_not_wait_for_what_is_under_way(jobs: Jobs, stand_in: Path) -> None:
    """Rank 0 takes nothing, and the other one has more to say than any buffer holds."""
    ended = talk(
        jobs,
        stand_in,
        served="client.send(b'x'); time.sleep(1); os._exit(3)",
        client="try: client.sendall(bytes(1 << 26))\n    except OSError: time.sleep(100)",
    )
    assert ended.status == 3, ended.stderr
    assert "rank 0 on a failed: exit status 3" in ended.report


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--no-hook"], "--coordinator ssh cannot be combined with --no-hook"),
        (["--num-hosts", "2", "--host-rank", "0"], "--coordinator ssh needs one launcher"),
        (["--num-hosts", "2", "--emit", "jobset"], "--emit jobset: each pod has its own launcher"),
    ],
)
def test_refused(jobs: Jobs, options: list[str], why: str) -> None:
    ended = jobs.run("--coordinator", "ssh", *options, "true")
    assert ended.status == 2
    assert ended.stderr.startswith(f"mcjax-launch: {why}")
    assert ended.stderr.count("\n") == 1


def test_one_host_needs_no_relay(jobs: Jobs, stand_in: Path) -> None:
    ended = run(jobs, stand_in, BARE, "a:2")
    assert ended.status == 0, ended.stderr
    assert ended.stdout.count("at unix:/") == 2
