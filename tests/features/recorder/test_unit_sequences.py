"""Comparison of the programs that ranks have run in order, from invented sequences."""

import math

import pytest

from mcjax_launch.diagnosis.sequences import describe_differences
from mcjax_launch.runs.sequences import MeshSequence, ProgramSequences

LINES = {"f": "jit(forward) at train.py:12", "u": "jit(update) at train.py:13"}
KNOWN = {"f": ("forward", 12), "u": ("update", 13), "e": ("evaluate", 20), "g": ("forward", 12)}
KEY = 0, 7
LATER = 100.0


def play(*programs: str, ended: tuple[int, ...] = ()) -> list[str]:
    """What is said of ranks that have run these programs, a letter each."""
    sequences = make(programs)
    sequences.compare(ended, LATER, 1)
    sequences.compare(ended, LATER + 10, 1)
    return describe_differences(sequences)


def make(programs: tuple[str, ...]) -> ProgramSequences:
    sequences = ProgramSequences()
    for letter, (name, line) in KNOWN.items():
        sequences.names.record(ord(letter), f"jit_{name}", f"train.py:{line}", letter)
    mesh = sequences.meshes[KEY] = MeshSequence("", range(len(programs)))
    for rank, own in enumerate(programs):
        mesh.add(rank, 1, list(map(ord, own)), at=1.0)
    return sequences


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
            "rank 2 repeated jit(evaluate) at train.py:20 (program 6 of this mesh): "
            "ranks 0-1,3 ran {f}",
        ),
        (
            "fufufufufu",
            "fufufeufufu",
            "rank 2 ran jit(evaluate) at train.py:20, which ranks 0-1,3 did not run "
            "(program 6 of this mesh): they ran {u}",
        ),
        (
            "fufufufufu",
            "fuffufufuf",
            "rank 2 skipped {u}, or repeated {f} (program 4 of this mesh): ranks 0-1,3 ran "
            "jit(update)",
        ),
        (
            "fuefuefue",
            "fueufefue",
            "rank 2 ran {u} before {f} (program 4 of this mesh): "
            "ranks 0-1,3 ran them in the other order",
        ),
        (
            "fufufufufu",
            "fufefufufu",
            "rank 2 ran jit(evaluate) at train.py:20 in place of {u} (program 4 of this mesh), "
            "which ranks 0-1,3 ran",
        ),
        (
            "ufuuufuu",
            "uguuufuu",
            "rank 2 ran {f} with an argument of another shape than ranks 0-1,3 "
            "(program 2 of this mesh)",
        ),
        (  # the next programs are as if it were another order
            f"{'f' * 20}e" * 3,
            "f" + f"{'f' * 20}e" * 3,
            "rank 2 repeated {f} (program 21 of this mesh): "
            "ranks 0-1,3 ran jit(evaluate) at train.py:20",
        ),
        (
            f"{'f' * 20}e" * 3,
            f"{'f' * 19}e" + f"{'f' * 20}e" * 2,
            "rank 2 skipped {f} (program 20 of this mesh): ranks 0-1,3 ran it",
        ),
        (
            "fuf",
            "fuu",
            "rank 2 ran {u} in place of {f} (program 3 of this mesh), which ranks 0-1,3 ran",
        ),
    ],
)
def test_first_difference_is_named(usual: str, own: str, said: str) -> None:
    assert play(usual, usual, own, usual) == [said.format(**LINES)]


def test_one_rank_that_the_other_differs_from_is_no_they() -> None:
    [line] = play("fufufufu", "fuefufufu")
    assert line.endswith(f"which rank 0 did not run (program 3 of this mesh): it ran {LINES['f']}")


def test_rank_that_is_behind_does_not_differ() -> None:
    assert play("fufufu", "fuf", "", "fufu") == []


def test_rank_that_has_ended_differs_from_those_that_go_on() -> None:
    said = "rank 1 ended without jit(forward) at train.py:12 (program 3 of this mesh): "
    assert play("fufu", "fu", "fufu", ended=(1,)) == [f"{said}ranks 0,2 ran it"]


def test_ranks_that_end_together_do_not_differ() -> None:
    assert play("fufu", "fufu", ended=(0, 1)) == []


def test_equal_code_of_two_functions_is_no_difference() -> None:
    sequences = make(("fuf", "fue"))
    sequences.names.record(ord("e"), "jit_forward", "train.py:12", "f")
    for letter in "fe":
        sequences.names._fingerprints[ord(letter)] = {"same"}
    sequences.compare((), LATER, 1)
    assert sequences.differences == []


def test_difference_is_named_though_each_rank_has_its_own_function() -> None:
    """As one that uses a variable with the rank's number, which the program does not contain."""
    sequences = make(("fufufefufu", "gugugegugu", "fufuefufu"))
    sequences.names._fingerprints.clear()
    sequences.names._common.clear()
    for letter in KNOWN:
        own = "f" if letter == "g" else letter
        sequences.names.record(ord(letter), "jit_x", "", own + "again")
    sequences.compare((), LATER, 1)
    sequences.compare((), LATER + 10, 1)
    assert describe_differences(sequences) == [
        f"rank 2 skipped {LINES['f']} (program 5 of this mesh): ranks 0-1 ran it"
    ]


def test_functions_that_share_a_program_do_not_differ() -> None:
    """As of a tool's code: ranks give it other names, and it has several programs."""
    sequences = make(("ffu", "eeu"))
    for letter in "fe":
        sequences.names._fingerprints[ord(letter)] = {"same", f"other {letter}"}
    sequences.compare((), LATER, 1)
    assert sequences.differences == []


def test_withdrawn_entry_is_no_difference() -> None:
    sequences = make(("fuf", "fuu"))
    assert sequences.compare((), 1.1, 1) < math.inf  # the last entries may be withdrawn
    sequences.meshes[KEY].add(1, 3, [], at=1.2)
    sequences.compare((), LATER, 1)
    assert sequences.differences == []
    sequences.meshes[KEY].add(1, 3, [ord("f")], at=LATER)
    sequences.compare((), LATER + 10, 1)
    assert sequences.differences == []
    assert sequences.count(1) == 3


def test_sequence_without_order_is_not_compared() -> None:
    sequences = make(("fuf", "fuu"))
    sequences.meshes[KEY].is_compared = False
    sequences.compare((), LATER, 1)
    assert sequences.differences == []


def test_programs_that_all_have_run_are_forgotten() -> None:
    sequences = make(("fu" * 500, "fu" * 500))
    sequences.compare((), LATER, 1)
    mesh = sequences.meshes[KEY]
    assert mesh.agreed == 1000
    assert {len(rank.programs) for rank in mesh.by_rank.values()} == {64}
    last = sequences.list_last(0, 2)
    assert [(number, str(name)) for number, name in last] == [(999, LINES["f"]), (1000, LINES["u"])]
    mesh.add(0, 1001, list(map(ord, "fuff")), LATER)
    mesh.add(1, 1001, list(map(ord, "fufu")), LATER)
    sequences.compare((), LATER + 5, 1)
    sequences.compare((), LATER + 10, 1)
    [line] = describe_differences(sequences)
    assert "program 1,004 of this mesh" in line


def test_programs_that_replace_forgotten_ones_are_shown() -> None:
    """No comparison is possible then, but the last programs of the rank are known."""
    sequences = make(("fu" * 500, "fu" * 500))
    sequences.compare((), LATER, 1)
    sequences.meshes[KEY].add(0, 901, list(map(ord, "fu" * 18 + "eg")), LATER)
    last = sequences.list_last(0, 3)
    assert [(number, str(name)) for number, name in last] == [
        (937, "jit(evaluate) at train.py:20"),
        (938, LINES["f"]),
    ]
    sequences.compare((), LATER + 5, 1)
    assert sequences.differences == []


def test_lost_programs_are_left_out() -> None:
    sequences = make(("fufu", "fufu"))
    mesh = sequences.meshes[KEY]
    mesh.add(0, 5000, list(map(ord, "uf")), 2.0)  # 5 to 4999 were overwritten
    mesh.add(1, 5, list(map(ord, "fu" * 2499)), 2.0)
    sequences.compare((), LATER, 1)
    assert sequences.differences == []
    assert mesh.agreed == 5001


def test_difference_after_lost_programs_is_named() -> None:
    """Of one rank more programs may be lost than another one has run."""
    sequences = make(("fufu", "fufu"))
    mesh = sequences.meshes[KEY]
    sequences.compare((), 1.9, 1)
    mesh.add(0, 5001, list(map(ord, "fuffu")), 2.0)
    mesh.add(1, 5, list(map(ord, "fu" * 1000)), 2.0)
    sequences.compare((), 2.0, 1)
    mesh.add(1, 2005, list(map(ord, "fu" * 1500)), 3.0)
    sequences.compare((), LATER, 1)
    sequences.compare((), LATER + 2, 1)
    [line] = describe_differences(sequences)
    assert line == (
        "rank 1 ran jit(update) at train.py:13 in place of jit(forward) at train.py:12 "
        "(program 5,004 of this mesh; maybe one before: 5 to 5,000 ran too fast to be compared), "
        "which rank 0 ran"
    )


def test_agreed_program_that_is_withdrawn_ends_the_comparison() -> None:
    sequences = make(("fufu", "fufu"))
    sequences.compare((), LATER, 1)
    mesh = sequences.meshes[KEY]
    mesh.add(0, 4, [], LATER)
    assert not mesh.is_compared
