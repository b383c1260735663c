"""The comparison of the ranks' programs."""

import random

import pytest

from mcjax_launch.diagnosis.spmd import describe_device_order, describe_divergence
from mcjax_launch.runs.spmd import Comparison, RanProgram

ALL = frozenset(range(4))


def program(text: str) -> RanProgram:
    """`name`, or `name@01` for one that spans these ranks only, or `name#8` with a shape.

    `name/01` runs on these devices only, of all ranks.
    """
    name, _, devices = text.partition("/")
    name, _, ranks = name.partition("@")
    name, _, rows = name.partition("#")
    shapes = (f"f32[{rows}]",) if rows else ()
    spans = frozenset(map(int, ranks)) if ranks else ALL
    on = frozenset(map(int, devices)) if devices else None
    return RanProgram(f"jit_{name}", text, spans, shapes, f"train.py:{ord(name[0])}", on)


def compared(ranks: list[str], over: str = "", shuffle: int = 0) -> Comparison:
    """The comparison of what each rank ran, told in turn or in an order of its own."""
    found = Comparison()
    todo = {rank: text.split() for rank, text in enumerate(ranks)}
    order = random.Random(shuffle)
    while left := [rank for rank, programs in todo.items() if programs]:
        rank = order.choice(left) if shuffle else left[0]
        found.record_run(rank, program(todo[rank].pop(0)))
        if not todo[rank] and str(rank) in over:
            found.record_end(rank)
    return found


def test_other_device_order_is_recognized() -> None:
    found = Comparison()
    for rank in ALL:
        order = (1, 0) if rank == 2 else ()
        found.record_run(
            rank, RanProgram("jit_f", f"{order}", ALL, ("f32[8]",), "t.py:9", None, order)
        )
    line = (
        "rank 2 runs jit(f) at t.py:9 on a mesh whose devices are in the order 1,0, those of ranks "
        "0-1,3 are in the order of their ids: all ranks need the same order"
    )
    assert describe_device_order(found) == line
    assert describe_divergence(found)[-1] == line
    assert describe_device_order(compared(["a", "b", "a", "a"])) == ""


ALIKE = {
    "the same": ["a b c"] * 4,
    "one is behind": ["a b c", "a b c", "a", "a b"],
    "nothing yet": ["a", "", "", ""],
    "sub-meshes": ["a x@01 b", "a x@01 b", "a y@23 z@23 b", "a y@23 z@23 b"],
    "a sub-mesh without rank 0": ["a b", "a p@123 b", "a p@123 b", "a p@123 b"],
    "of others' devices": ["a y@23 b", "a y@23 b", "a y@23 b", "a y@23 b"],
    "threads with devices of their own": ["a p/01 q/01 r/23 s/23 b", "a r/23 p/01 s/23 q/01 b", "a r/23 s/23 p/01 q/01 b", "a p/01 r/23 q/01 s/23 b"],
}  # fmt: skip


@pytest.mark.parametrize("shuffle", range(8))
@pytest.mark.parametrize("name", ALIKE)
def test_equal_programs_are_no_divergence(name: str, shuffle: int) -> None:
    over = "0123" if name in ("the same", "sub-meshes") else ""
    assert compared(ALIKE[name], over, shuffle).divergence is None


# Name: (what each rank ran, whose program is over, the line)
APART = {
    "shape": (["a b#128", "a b#128", "a b#128", "a b#64"], "", "program #2: ranks 0-2 train.py:98 jit(b) f32[128] · rank 3 train.py:98 jit(b) f32[64]"),
    "order": (["a b c", "a c b", "a b c", "a b c"], "", "program #2: ranks 0,2-3 train.py:98 jit(b) · rank 1 train.py:99 jit(c)"),
    "rank 0 alone": (["x a", "a", "a", "a"], "", "program #1: rank 0 train.py:120 jit(x) · ranks 1-3 train.py:97 jit(a)"),
    "early end": (["a b", "a b", "a b", "a"], "3", "program #2: ranks 0-2 train.py:98 jit(b) · rank 3 finished without it"),
    "the first ends early": (["a", "a b", "a b", "a b"], "0", "program #2: rank 0 finished without it · ranks 1-3 train.py:98 jit(b)"),
    "extra at the end": (["a b", "a", "a", "a"], "123", "program #2: rank 0 train.py:98 jit(b) · ranks 1-3 finished without it"),
    "within a sub-mesh": (["a", "a p@123 q@123", "a p@123 q@123", "a q@123 p@123"], "", "program #2: ranks 1-2 train.py:112 jit(p) · rank 3 train.py:113 jit(q)"),
    "across meshes": (["a x@01 b", "a b x@01", "a b", "a b"], "", "program #2: rank 0 train.py:120 jit(x) · rank 1 train.py:98 jit(b)"),
    "threads with a device in common": (["a p/01 q/12", "a q/12 p/01", "a p/01 q/12", "a p/01 q/12"], "", "program #2: ranks 0,2-3 train.py:112 jit(p) · rank 1 train.py:113 jit(q)"),
    "threads, and one of all": (["a q/01 b", "a q/01 s/23 b", "a q/01 b", "a q/01 b"], "", "program #3: ranks 0,2-3 train.py:98 jit(b) · rank 1 train.py:115 jit(s)"),
    "before the first comes": (["a", "a b", "a c", "a"], "", "program #2: ranks 0,3 not there yet · rank 1 train.py:98 jit(b) · rank 2 train.py:99 jit(c)"),
    "early end before the first comes": (["a", "a b", "a", "a b"], "2", "program #2: rank 0 not there yet · ranks 1,3 train.py:98 jit(b) · rank 2 finished without it"),
    "some are not there": (["a b", "a c", "a", "a"], "", "program #2: rank 0 train.py:98 jit(b) · rank 1 train.py:99 jit(c) · ranks 2-3 not there yet"),
}  # fmt: skip


# Name: the last line, seen from either side.
ORDERS = {
    "order": ("rank 1 runs jit(c) where the others run jit(b), and jit(b)", "ranks 0,2-3 run jit(b) where rank 1 runs jit(c), and jit(c)"),
    "across meshes": ("rank 1 runs jit(b) where rank 0 runs jit(x), and jit(x)", "rank 0 runs jit(x) where rank 1 runs jit(b), and jit(b)"),
}  # fmt: skip


@pytest.mark.parametrize("shuffle", range(4))
@pytest.mark.parametrize("name", APART)
def test_differing_programs_are_a_divergence(name: str, shuffle: int) -> None:
    ranks, over, line = APART[name]
    found = compared(ranks, over, shuffle)
    assert found.divergence is not None
    first, *more = describe_divergence(found)
    assert first == line
    assert found.is_settled == ("not there" not in line)
    if name in ORDERS:
        odd, usual = ORDERS[name]
        assert more == [f"{odd} later: a different order"] or more == [
            f"{usual} later: a different order"
        ]
    else:
        assert more == [] or more[0].endswith(": a different order")


def test_equal_lines_with_different_code_diverge() -> None:
    found = Comparison()
    for rank in range(4):
        found.record_run(
            rank, RanProgram("jit_f", f"code {rank % 2}", ALL, ("f32[]",), "train.py:3")
        )
    line, why = describe_divergence(found)
    assert line == "program #1: ranks 0-3 train.py:3 jit(f) f32[]"
    assert why.startswith(
        "same name and shapes, different code on ranks 0,2 · ranks 1,3: an operation, a Python value"
    )


def test_only_differing_arguments_of_many_are_shown() -> None:
    found = Comparison()
    for rank in range(4):
        shapes = (*(f"f32[{n}]" for n in range(40)), f"f32[{64 if rank else 128}]")
        found.record_run(rank, RanProgram("jit_f", f"{rank > 0}", ALL, shapes, "train.py:3"))
    assert describe_divergence(found) == [
        "program #1: rank 0 train.py:3 jit(f) f32[128] (and 40 more) · "
        "ranks 1-3 train.py:3 jit(f) f32[64] (and 40 more)"
    ]


def test_missing_rank_is_waited_for() -> None:
    found = compared(["a b", "a b", "a b", "a"])
    [(waited_for, there, missing)] = found.list_unfinished()
    assert (waited_for.title, there, missing) == ("jit(b)", {0, 1, 2}, {3})


def test_a_rank_far_behind_is_forgotten_not_kept() -> None:
    found = Comparison()
    for number in range(5000):
        found.record_run(0, program(f"p{number}"))
    for number in range(10):
        found.record_run(1, program(f"q{number}"))
    assert found.divergence is None
    assert len(found.list_unfinished()) < 3000


# --- ranks that are held until the others come ---


def held(ranks: dict[int, str]) -> Comparison:
    """Ranks that come to programs, each of which holds them."""
    found = Comparison()
    for rank, text in ranks.items():
        for word in text.split():
            found.record_run(rank, program(word), held=True)
    return found


def test_ranks_are_released_when_all_are_there() -> None:
    found = held({0: "a", 1: "a", 3: "a"})
    assert found.released == {}
    found.record_run(2, program("a"), held=True)
    assert found.released == {"a": {0, 1, 2, 3}}
    assert found.list_unfinished() == []


def test_ranks_of_a_sub_mesh_are_released_separately() -> None:
    assert held({0: "x@01", 1: "x@01", 2: "y@23"}).released == {"x@01": {0, 1}}


def test_threads_are_held_separately() -> None:
    assert held({0: "a/01 b/23", 1: "b/23", 2: "b/23", 3: "b/23"}).released == {"b/23": set(ALL)}


def test_after_a_divergence_none_is_released() -> None:
    found = held({0: "a", 1: "a", 2: "b"})
    assert found.divergence is not None
    for rank in (2, 3):
        found.record_run(rank, program("a"), held=True)
    assert found.released == {}


def test_ranks_are_released_early_on_request() -> None:
    found = held({0: "a", 1: "a"})
    found.release(program("a"))
    assert found.released.pop("a") == {0, 1}
    # Rank 2 comes later, and is compared all the same; rank 3 is not waited for meanwhile.
    found.record_run(2, program("a"), held=True)
    assert found.released.pop("a") == {2}
    for rank in (0, 1):
        found.record_run(rank, program("b"), held=True)
    assert found.released == {}
    found.record_run(2, program("b"), held=True)
    assert found.released.pop("b") == {0, 1, 2}
    # It has caught up.
    for word in ("a", "b"):
        found.record_run(3, program(word), held=True)
        assert found.released.pop(word) == {3}
    for rank in (0, 1, 2):
        found.record_run(rank, program("c"), held=True)
    assert found.released == {}
    assert found.divergence is None


def test_late_rank_with_another_program_diverges() -> None:
    found = held({0: "a", 1: "a"})
    found.release(program("a"))
    found.released.clear()
    found.record_run(2, program("b"), held=True)
    assert found.divergence is not None
    assert found.released == {}


def test_ended_rank_releases_no_rank() -> None:
    found = held({0: "a", 1: "a", 2: "a"})
    found.record_end(3)
    assert describe_divergence(found) == [
        "program #1: ranks 0-2 train.py:97 jit(a) · rank 3 finished without it"
    ]
    assert found.released == {}
