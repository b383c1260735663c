"""Comparison of the programs that ranks have run in order, from invented sequences."""

import math
import random

import pytest
from records import run_of, say

from mcjax_launch.features.recorder.differences import describe_compilations, describe_differences
from mcjax_launch.features.recorder.sequences import MeshSequence, ProgramName, ProgramSequences
from mcjax_launch.wire.hook_messages import Compiled, Compiling

LINES = {
    "f": "jit(forward) at train.py:12",
    "u": "jit(update) at train.py:13",
    "e": "jit(evaluate) at train.py:20",
}
KNOWN = {"f": ("forward", 12), "u": ("update", 13), "e": ("evaluate", 20), "g": ("forward", 12)}
KEY = 0, 7
LATER = 100.0


def play(*programs: str, ended: tuple[int, ...] = ()) -> list[str]:
    """What is said of ranks that have run these programs, a letter each."""
    sequences = make(*programs)
    look(sequences, ended)
    return describe_differences(sequences)


def make(*programs: str) -> ProgramSequences:
    sequences = ProgramSequences()
    for letter, (name, line) in KNOWN.items():
        sequences.names.record(ord(letter), ProgramName(f"jit({name})", f"train.py:{line}"))
    sequences.meshes[KEY] = MeshSequence(range(len(programs)))
    add(sequences, *programs)
    return sequences


def add(sequences: ProgramSequences, *programs: str, begun: str = "") -> None:
    """Ranks have run these programs after those before, and maybe begun another one."""
    mesh = sequences.meshes[KEY]
    for rank, own in enumerate(programs):
        first = mesh.by_rank[rank].count + 1
        is_at = ord(begun[rank]) if rank < len(begun) and begun[rank] != " " else 0
        mesh.add(rank, first, list(map(ord, own)), is_at, 1.0)


def look(sequences: ProgramSequences, ended: tuple[int, ...] = ()) -> None:
    """Look for as long as programs after a difference are waited for."""
    now = LATER
    while math.isfinite(now):
        now = sequences.compare(ended, now, 1.0)


@pytest.mark.parametrize(
    ("usual", "own", "said"),
    [
        (
            "fufufefufu",
            "fufuefufu",
            "rank 2 skipped {f} (program 5 of this mesh): ranks 0-1,3 ran it",
        ),
        (
            "fufuefufue",
            "fufueefufue",
            "rank 2 ran {e}, which ranks 0-1,3 did not run (program 6 of this mesh): they ran {f}",
        ),
        (
            "fufufufufu",
            "fufufeufufu",
            "rank 2 ran {e}, which ranks 0-1,3 did not run (program 6 of this mesh): they ran {u}",
        ),
        (
            "fufufufufu",
            "fuffufufuf",
            "rank 2 skipped {u}, or ran {f} once more (program 4 of this mesh): ranks 0-1,3 ran "
            "jit(update)",
        ),
        (
            "fuefuefue",
            "fueufefue",
            "rank 2 ran {u} where ranks 0-1,3 ran {f} (program 4 of this mesh): another order",
        ),
        (
            "fuf",
            "uff",
            "rank 2 ran {u} where ranks 0-1,3 ran {f} (program 1 of this mesh): another order",
        ),
        (
            "fufufufufu",
            "fufefufufu",
            "rank 2 ran {e} in place of {u} (program 4 of this mesh), which ranks 0-1,3 ran",
        ),
        (
            "ufuuufuu",
            "uguuufuu",
            "rank 2 ran another {f} than ranks 0-1,3 (program 2 of this mesh)",
        ),
        (  # at each step, from the first one on
            "fufufufu",
            "gugugugu",
            "rank 2 ran another {f} than ranks 0-1,3 (program 1 of this mesh)",
        ),
        (  # the next programs are as if it were another order
            f"{'f' * 20}e" * 3,
            "f" + f"{'f' * 20}e" * 3,
            "rank 2 ran {f}, which ranks 0-1,3 did not run (program 21 of this mesh): they ran {e}",
        ),
        (
            f"{'f' * 20}e" * 3,
            f"{'f' * 19}e" + f"{'f' * 20}e" * 2,
            "rank 2 skipped {f} (program 20 of this mesh): ranks 0-1,3 ran it",
        ),
        (  # in the order of a set, at each step
            "fueg" * 20,
            "fueg" + "gfeu" * 19,
            "rank 2 ran {f} where ranks 0-1,3 ran {f} (program 5 of this mesh): another order; "
            "is this a loop over a set, or over os.listdir()? Loop over sorted(...) instead: its "
            "order is the same in all ranks",
        ),
    ],
)
def test_first_difference_is_named(usual: str, own: str, said: str) -> None:
    assert play(usual, usual, own, usual) == [said.format(**LINES)]


def test_ranks_that_have_ended_with_the_same_programs_ran_them_in_another_order() -> None:
    programs = ("fufuf", "ufuff")
    [line] = play(*programs, ended=(0, 1))
    assert line.endswith(": another order")
    [line] = play(*programs)
    assert " skipped " in line


def test_one_rank_that_the_other_differs_from_is_no_they() -> None:
    [line] = play("fufufufu", "fuefufufu")
    assert line.endswith(f"which rank 0 did not run (program 3 of this mesh): it ran {LINES['f']}")


def test_rank_that_is_behind_does_not_differ() -> None:
    assert play("fufufu", "fuf", "", "fufu") == []


def test_rank_that_has_ended_differs_from_those_that_go_on() -> None:
    said = f"rank 1 ended after 2 programs of this mesh: ranks 0,2 began {LINES['f']}"
    assert play("fufu", "fu", "fufu", ended=(1,)) == [said]


def test_ranks_that_end_together_do_not_differ() -> None:
    assert play("fufu", "fufu", ended=(0, 1)) == []


def test_rank_that_ends_far_behind_was_not_seen() -> None:
    sequences = make("fu" * 500, "fu")
    look(sequences, (1,))
    assert sequences.differences == []
    assert "recorded nothing" in sequences.meshes[KEY].unseen


def test_programs_after_a_difference_are_waited_for_a_second() -> None:
    """They show what it is."""
    sequences = make("fuf", "fuu")
    assert sequences.compare((), LATER, 1.0) == LATER + 1
    assert sequences.differences == []
    assert sequences.compare((), LATER + 0.9, 1.0) == LATER + 1
    sequences.compare((), LATER + 1, 1.0)
    assert len(sequences.differences) == 1


def test_programs_that_ranks_are_about_to_launch_are_compared() -> None:
    """They may be stuck in them, and a launch that fails at once is forgotten."""
    sequences = make("fu", "fu")
    add(sequences, "", "", begun="fe")
    assert sequences.compare((), LATER, 1.0) == LATER + 1
    add(sequences, "", "", begun="f ")
    assert sequences.compare((), LATER + 2, 1.0) == math.inf
    add(sequences, "", "", begun="fe")
    look(sequences)
    [line] = describe_differences(sequences)
    assert line.startswith(f"rank 1 ran {LINES['e']} in place of {LINES['f']} (program 3 of ")
    add(sequences, "f", "e")
    look(sequences)
    assert len(sequences.differences) == 1


def test_rank_that_skips_a_program_at_each_step_is_named() -> None:
    [line] = play("fue" * 30, "fe" * 30)
    assert line.startswith(f"rank 1 skipped {LINES['u']} (program 2 of this mesh)")


def test_only_the_first_difference_of_a_mesh_is_told() -> None:
    """What comes behind it may follow from it."""
    sequences = make("gfufu", "ffufu")
    look(sequences)
    add(sequences, "fe" * 100, "ff" * 100)
    look(sequences)
    assert describe_differences(sequences) == [
        f"rank 1 ran another {LINES['f']} than rank 0 (program 1 of this mesh)"
    ]
    assert sequences.gaps == []
    mesh = sequences.meshes[KEY]
    assert max(len(rank.programs) for rank in mesh.by_rank.values()) < 100


@pytest.mark.parametrize("seed", range(20))
def test_reports_in_pieces_make_no_difference(seed: int) -> None:
    """However far ranks are apart, and wherever their reports end."""
    chance = random.Random(seed)
    programs = [chance.choice("fue") for _ in range(400)]
    sequences, now, at = make("", "", ""), LATER, [0, 0, 0]
    while min(at) < len(programs):
        rank = chance.randrange(3)
        count = chance.randrange(30)
        new = programs[at[rank] : at[rank] + count]
        add(sequences, *("".join(new) if each == rank else "" for each in range(3)))
        at[rank] += len(new)
        now += 1
        sequences.compare([each for each in range(3) if at[each] == len(programs)], now, 1.0)
    assert sequences.differences == []
    assert sequences.count(1) == 400


def test_programs_that_threads_launch_at_the_same_time_are_not_compared() -> None:
    sequences = make("fufu", "ufuf")
    sequences.meshes[KEY].has_order = False
    look(sequences, (0, 1))
    assert sequences.differences == []
    assert sequences.meshes[KEY].unseen == "several threads of a rank run them at the same time"


def test_programs_that_all_have_run_are_forgotten() -> None:
    sequences = make("fu" * 500, "fu" * 500)
    look(sequences)
    mesh = sequences.meshes[KEY]
    assert {len(rank.programs) for rank in mesh.by_rank.values()} == {0}
    last = sequences.list_last(0, 2)
    assert [(number, str(name)) for number, name in last] == [(999, LINES["f"]), (1000, LINES["u"])]
    add(sequences, "fuff", "fufu")
    look(sequences)
    [line] = describe_differences(sequences)
    assert "program 1,004 of this mesh" in line


def test_mesh_with_lost_programs_is_not_compared() -> None:
    sequences = make("fufu", "fufu")
    mesh = sequences.meshes[KEY]
    mesh.add(0, 5000, list(map(ord, "uf")), 0, 2.0)  # 5 to 4999 were overwritten
    mesh.add(1, 5, list(map(ord, "fe" * 2499)), 0, 2.0)
    look(sequences)
    assert sequences.differences == []
    assert mesh.unseen.startswith("rank 0 ran too many programs")


def test_program_that_some_ranks_have_not_begun_is_a_gap() -> None:
    sequences = make("fuf", "fu", "fu")
    add(sequences, "", "", "", begun="  f")
    [gap] = sequences.gaps
    assert (gap.number, str(gap.program), gap.begun, gap.behind) == (3, LINES["f"], (0, 2), (1,))


CODE = """\
// on the devices 0, 1
module @program {
  func.func public @main(%arg0: tensor<4xf32> loc("x")) -> (tensor<4xf32>) {
    %0 = stablehlo.multiply %arg0, %arg0 : tensor<4xf32> loc("train.py":9:4 to :20)
  } loc(#loc)
} loc(#loc)
"""


def test_code_of_programs_that_differ_is_told_if_it_is_known() -> None:
    sequences = make("fu", "gu", "fu")
    look(sequences)
    said = f"rank 1 ran another {LINES['f']} than ranks 0,2 (program 1 of this mesh)"
    assert describe_differences(sequences) == [said]
    sequences.texts = {ord("f"): CODE, ord("g"): CODE.replace("multiply", "add")}
    assert describe_differences(sequences) == [
        said,
        "they differ at: ranks 0,2: stablehlo.multiply at train.py:9 · "
        "rank 1: stablehlo.add at train.py:9",
    ]


def test_ranks_that_compile_other_programs_of_a_name_are_found() -> None:
    state = run_of(3)
    state.sequences = sequences = make("u", "u", "u")
    for rank, letter in ((1, "f"), (2, "e")):
        name, line = KNOWN[letter]
        say(state, rank, Compiling(f"jit_{name}", f"train.py:{line}", "gpu", ord(letter)), 1.0)
    assert describe_compilations(state) == ""
    say(state, 1, Compiled(), 2.0)
    add(sequences, "", "", "", begun="gf ")
    assert describe_compilations(state) == ""  # which the launches tell
    say(state, 2, Compiled(), 2.0)
    say(state, 2, Compiling("jit_forward", "train.py:12", "gpu", ord("g")), 3.0)
    said = f"rank 1 has begun another {LINES['f']} than ranks 0,2"
    assert describe_compilations(state) == said
    say(state, 1, Compiling("jit_forward", "train.py:12", "gpu", ord("f")), 3.0)
    assert describe_compilations(state) == said.replace("has begun", "compiles")
