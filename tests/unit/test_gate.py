"""What an agent makes of the programs at which its ranks are held."""

from collections.abc import Collection

import pytest

from mcjax_launch.agent.gate import Gate
from mcjax_launch.protocol.hook_messages import Program
from mcjax_launch.protocol.messages import Reached

RANKS = range(4)
SOON, LATE = 0.001, 1.0


def program(
    name: str, processes: tuple[int, ...] | None = None, where: str = "train.py:9"
) -> Program:
    return Program(f"jit_{name}", name, processes, (), where, processes, True)


STEP, LOSS = program("step"), program("loss")


class Host:
    """Four ranks, each the JAX process of the same number; what they are told, and what is said."""

    def __init__(self, *, alone: bool = True) -> None:
        self.ranks = RANKS
        self.told_by: Collection[int] = RANKS  # the rank of each process
        self.released: list[tuple[str, set[int]]] = []
        self.told: list[Reached] = []
        self.now = 100.0
        self.gate = Gate(alone, self, self.told.append)  # type: ignore[arg-type]

    def ranks_of_processes(self, platform: str) -> dict[int, int]:
        return dict(enumerate(self.told_by))

    def release(self, ranks: Collection[int], fingerprint: str) -> None:
        self.released.append((fingerprint, set(ranks)))

    def come(self, ranks: Collection[int], to: Program) -> None:
        for rank in ranks:
            self.gate.came(rank, to, self.now)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.gate.expire(self.now)


@pytest.fixture
def host() -> Host:
    return Host()


def test_a_program_of_all_ranks_costs_one_message(host: Host) -> None:
    for number in range(300):
        host.come(RANKS, program(str(number)))
    assert host.told == [Reached((0, 1, 2, 3), program(str(number)), True) for number in range(300)]
    assert host.released == [(str(number), set(RANKS)) for number in range(300)]
    assert host.gate.deadline is None


def test_ranks_on_other_hosts_are_the_launchers_affair() -> None:
    host = Host(alone=False)
    host.come(RANKS, STEP)
    host.come((1, 2), program("some", (1, 2, 7)))
    host.come((0, 3), program("here", (0, 3)))
    some, here = program("some", (1, 2, 7)), program("here", (0, 3))
    assert host.told == [
        Reached((0, 1, 2, 3), STEP, False),
        Reached((1, 2), some, False),
        Reached((0, 3), here, True),
    ]
    assert host.released == [("here", {0, 3})]


def test_ranks_that_take_their_time(host: Host) -> None:
    """The launcher knows of the others soon, and it is the one who lets them go."""
    host.come((0, 2), STEP)
    assert host.gate.deadline == pytest.approx(host.now, abs=0.1)
    host.wait(SOON)
    assert host.told == []
    host.wait(LATE)
    assert host.told == [Reached((0, 2), STEP, False)]
    assert host.gate.deadline is None
    host.come((1,), STEP)
    host.come((3,), STEP)
    assert host.told[1:] == [Reached((1,), STEP, False), Reached((3,), STEP, False)]
    assert host.released == []


def test_after_a_program_that_some_have_not_reached(host: Host) -> None:
    """They may come to it later: whether the order is right is the launcher's to judge."""
    host.come((0,), STEP)
    host.wait(LATE)
    host.come(RANKS, LOSS)
    assert [(said.ranks, said.released) for said in host.told[1:]] == [
        ((rank,), False) for rank in RANKS
    ]
    assert host.released == []
    host.come((1, 2, 3), STEP)
    host.come(RANKS, program("next"))
    assert host.released == [("next", set(RANKS))]


def test_in_meshes_of_their_own_ranks_do_not_wait_for_others(host: Host) -> None:
    host.come((2,), program("stage 1", (2, 3)))
    host.wait(LATE)
    host.come((0, 1), program("stage 0", (0, 1)))
    assert host.released == [("stage 0", {0, 1})]


def test_another_order_is_handed_on_as_it_was(host: Host) -> None:
    """In threads, say: each rank is held at both."""
    host.come((0, 1, 3), STEP)
    host.come((2,), LOSS)
    host.come((2,), STEP)
    host.come((0, 1, 3), LOSS)
    order = [(rank, said.program.fingerprint) for said in host.told for rank in said.ranks]
    assert [name for rank, name in order if rank == 2] == ["loss", "step"]
    for own in (0, 1, 3):
        assert [name for rank, name in order if rank == own] == ["step", "loss"]
    assert host.released == []


def test_what_else_a_rank_says_comes_after_where_it_is_held(host: Host) -> None:
    host.come((0, 1), STEP)
    host.gate.hand_on(2)
    assert host.told == []
    host.gate.hand_on(1)
    assert host.told == [Reached((0, 1), STEP, False)]


def test_lines_of_their_own(host: Host) -> None:
    """The launcher learns the line of each rank."""
    other = program("step", where="train.py:12")
    host.come((0, 1), STEP)
    host.come((2,), other)
    host.come((3,), STEP)
    assert host.told == [Reached((0, 1, 3), STEP, True), Reached((2,), other, True)]


def test_the_next_job_begins_with_nothing_left_of_the_first(host: Host) -> None:
    host.come((0,), STEP)
    host.wait(LATE)
    host.gate.joined()
    host.come(RANKS, LOSS)
    assert host.released == [("loss", set(RANKS))]


def test_what_cannot_be_known_yet_is_the_launchers_affair(host: Host) -> None:
    """Of two processes it is not known yet that they are the ranks 3 and 0."""
    pair = program("pair", (0, 1))
    host.told_by = ()
    host.come((3,), pair)
    host.told_by = (3, 0, 1, 2)
    host.come((0,), pair)
    assert host.told == [Reached((3,), pair, False), Reached((0,), pair, False)]
    next_one = program("next", (0, 1))
    host.come((0, 3), next_one)
    assert host.told[2:] == [Reached((0, 3), next_one, True)]
    assert host.gate.deadline is None
