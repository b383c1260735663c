"""Which command lines have an agent forked before they are read."""

import signal

import pytest

from mcjax_launch.transport import early
from mcjax_launch.transport.pipes import Pipes
from mcjax_launch.wire.exit_status import ENDING

FORKED = {
    "-n 4 train.py": True,
    "-n 2 -d 4 --log-dir logs -m package.train --steps 3": True,
    "": False,
    "--help": False,
    "-h": False,
    "--version": False,
    "--hosts hosts.txt train.py": False,
    "--hosts=a,b train.py": False,
    "--emit slurm train.py": False,
    "-n 2 --dry-run train.py": False,
    "-n 2 train.py --help": False,  # a guess: the agent is started a little later
}


def test_command_line_decides_on_an_early_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {
        line: _is_forked(line.split(), {"PATH": "/bin"}, monkeypatch) for line in FORKED
    } == FORKED


@pytest.mark.parametrize(
    "names",
    [["MCJAX_HOSTS"], ["MCJAX_DRY_RUN"], ["MCJAX_EMIT"], ["SLURM_JOB_ID", "SLURM_JOB_NODELIST"]],
)
def test_environment_can_prevent_an_early_fork(
    names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not _is_forked(["-n", "4", "train.py"], dict.fromkeys(names, "1"), monkeypatch)


def test_failing_fork_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object) -> int:
        raise OSError

    monkeypatch.setattr(early, "NewPipes", no_room)
    early.fork(["true"], {}, lambda: print)
    assert early.claim() is None


def test_signals_wait_for_the_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python forgets those that come during a fork: an agent would not end that somebody ends."""
    masks: list[set[int]] = []

    def forked() -> int:
        masks.append(set(signal.pthread_sigmask(signal.SIG_BLOCK, [])))
        raise OSError

    monkeypatch.setattr(early, "_is_watched", lambda: False)
    monkeypatch.setattr("os.fork", forked)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    early.fork(["true"], {}, lambda: print)
    assert early.claim() is None
    assert masks == [{*before, *ENDING}]
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def _is_forked(words: list[str], environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> bool:
    class NoPipes:
        def keep_own_ends(self, pid: int) -> Pipes:
            return Pipes(pid, -1, -1, -1)

    monkeypatch.setattr(early, "NewPipes", NoPipes)
    monkeypatch.setattr(early, "_is_watched", lambda: False)  # by who runs the tests
    monkeypatch.setattr(early, "_forked", [])
    monkeypatch.setattr("os.fork", lambda: 1)
    early.fork(words, environ, lambda: print)
    return bool(early._forked)
