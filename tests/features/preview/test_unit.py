"""What is read from a compiled program, and the words of a preview's report."""

import pytest

from mcjax_launch.errors import LaunchError
from mcjax_launch.features.preview import report
from mcjax_launch.features.preview.hook.chips import explain
from mcjax_launch.features.preview.hook.compiled import find_collectives, make_argument
from mcjax_launch.features.preview.hook.exchange import make_topology_keys
from mcjax_launch.features.preview.launcher import choose_ranks, compute_sizes
from mcjax_launch.features.preview.messages import Collective, PreviewedProgram, ProgramArgument
from mcjax_launch.features.preview.report import Chip, RankReport
from mcjax_launch.job.hosts import LOCAL, Host
from mcjax_launch.job.job import Job
from mcjax_launch.options.options import Options

# Eight devices on four hosts, in a mesh of 4 x 2.
HOSTS = (0, 0, 1, 1, 2, 2, 3, 3)
PLACES = tuple((place // 2, place % 2) for place in range(8))
LOOP = """\
HloModule jit_step, is_scheduled=true, num_partitions=8

%add (a: f32[], b: f32[]) -> f32[] {
  ROOT %sum = f32[] add(%a, %b)
}

%body (p: (s32[], f32[4,4])) -> (s32[], f32[4,4]) {
  %g = bf16[8,4]{1,0} all-gather(%x), channel_id=1, replica_groups=[2,4]<=[4,2]T(1,0), dimensions={0}
  %r = f32[4,4]{1,0} all-reduce(%y), channel_id=2, replica_groups={{0,1},{2,3},{4,5},{6,7}}, to_apply=%add
}

%condition (p: (s32[], f32[4,4])) -> pred[] {
  ROOT %less = pred[] compare(%i, %n), direction=LT
}

ENTRY %main (p: f32[4,4]) -> f32[4,4] {
  %w = (s32[], f32[4,4]{1,0}) while(%t), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"3"}}
  %s = (f32[2]{0}, f32[]) reduce-scatter(%a, %b), channel_id=3, replica_groups=[1,8]<=[8], to_apply=%add
  %c = (f32[4]{0}, f32[4]{0}, u32[], u32[]) collective-permute-start(%a), source_target_pairs={{0,1},{1,2}}
}
"""


def test_collectives_of_a_loop_count_each_time_along_their_axes() -> None:
    assert find_collectives(LOOP, HOSTS, ("fsdp", "tp"), PLACES) == (
        # Each device gets 3 parts of 4 from other hosts.
        Collective("all-gather", ("fsdp",), 3, 3 * 64, 3 * 64),
        Collective("all-reduce", ("tp",), 3, 3 * 64, 0),
        Collective("collective-permute", ("fsdp", "tp"), 1, 16, 8),
        Collective("reduce-scatter", ("fsdp", "tp"), 1, 8 * 12, 8 * 12 * 6 // 7),
    )


def test_collectives_without_a_mesh_have_no_axes() -> None:
    [gather, *_] = find_collectives(LOOP, (0,) * 8)
    assert (gather.axes, gather.crossing) == ((), 0)


class Sharding:
    spec = (("fsdp", "tp"),)
    is_fully_replicated = False


def test_arguments_are_read_from_a_programs_code() -> None:
    found = make_argument('loc("w")', "tensor<8x4xbf16>", Sharding())
    assert found == ProgramArgument("w", "bf16[8,4]", "sharded P(('fsdp', 'tp'))", 64, False)
    scalar = make_argument("loc(unknown)", "tensor<i32>", Sharding())
    assert (scalar.type, scalar.bytes) == ("i32[]", 4)


def test_keys_of_the_other_processes() -> None:
    first, other = make_topology_keys(0, 3, 2, 2048), make_topology_keys(2, 3, 2, 2048)
    assert list(first) == ["cpu:local_topology/cpu/1", "cpu:local_topology/cpu/2"]
    [(key, whole)] = other.items()
    assert key == "cpu:global_topology/cpu"
    assert all(text in whole for text in first.values())
    assert b"CpuDevice(id=2049)" in first["cpu:local_topology/cpu/1"]


# --- the report ---

STEP = PreviewedProgram(
    number=0,
    name="jit_step",
    where="train.py:42",
    arguments=40 << 20,
    outputs=1 << 20,
    temporaries=150 << 20,
    flops=5.8e9,
    collectives=(
        Collective("all-gather", ("fsdp",), 2, 96 << 20, 48 << 20),
        Collective("all-reduce", ("tp",), 1, 1 << 20, 0),
    ),
)


def make_rank(*programs: PreviewedProgram, rank: int = 0, calls: int = 3) -> RankReport:
    made = RankReport(rank)
    made.programs += [each.copy_with(number=number) for number, each in enumerate(programs)]
    made.counts = [calls for _ in programs]
    return made


def make_input(name: str, type_: str, size: int = 1, is_whole: bool = False) -> ProgramArgument:
    return ProgramArgument(name, type_, "sharded P()", size, is_whole)


def test_report_has_a_line_for_each_program_and_its_axes() -> None:
    first, other = make_rank(STEP), make_rank(STEP, rank=17)
    assert list(report.format_report([first, other], 64, 4, Chip())) == [
        "preview of rank 0 of 64, 4 devices each, bytes on a device by XLA's CPU compiler:",
        "  jit(step) at train.py:42: called 3 times: 40.0 MiB arguments + 1.0 MiB outputs + "
        "150.0 MiB temporaries = 191.0 MiB; 5.8 GFLOP",
        "    fsdp: 2 all-gathers 96.0 MiB; 50 % of 96.0 MiB crosses hosts",
        "    tp: 1 all-reduce 1.0 MiB; within hosts",
        "preview of rank 17: the same programs",
    ]


def test_what_does_not_fit() -> None:
    chip = Chip("160M", 160 << 20)
    assert report.find_misfits([make_rank(STEP), make_rank(STEP)], chip) == [
        "jit(step): 191.0 of 160.0 MiB: does not fit (temporaries 150.0 MiB at train.py:42)"
    ]
    assert report.find_misfits([make_rank(STEP)], Chip("16G", 16 << 30)) == []
    tpu = STEP.copy_with(memory=100 << 20)  # by libtpu
    assert report.find_misfits([make_rank(tpu)], Chip("v5e:2x4")) != []


WARNINGS = {
    "x has no rows": STEP.copy_with(inputs=(make_input("x", "f32[0,4]", 0),)),
    "not sharded, whole on each device: w (300.0 MiB)": STEP.copy_with(
        inputs=(
            make_input("w", "f32", 300 << 20, is_whole=True),
            make_input("b", "f32", 200 << 20, is_whole=True),
            make_input("x", "f32", 400 << 20),
        )
    ),
    "axis tp crosses hosts": STEP.copy_with(
        collectives=(Collective("all-reduce", ("tp",), 1, 8, 4),)
    ),
}


@pytest.mark.parametrize("text", WARNINGS)
def test_warnings_name_the_line(text: str) -> None:
    rank = make_rank(WARNINGS[text], WARNINGS[text])
    found = list(report.find_warnings(rank, Chip()))
    assert found == [f"jit(step) at train.py:42: {text}"]


def test_argument_that_is_not_sharded_is_compared_with_the_chip() -> None:
    small = STEP.copy_with(inputs=(make_input("w", "f32", 30 << 20, is_whole=True),))
    assert list(report.find_warnings(make_rank(small), Chip("16G", 16 << 30))) == []
    [found] = report.find_warnings(make_rank(small), Chip("200M", 200 << 20))
    assert found.endswith("not sharded, whole on each device: w (30.0 MiB)")


def compile_again(*types: str) -> RankReport:
    """A rank whose call has compiled a function for each of these types."""
    return make_rank(
        *(
            STEP.copy_with(inputs=(make_input("x", type_),), before=number - 1)
            for number, type_ in enumerate(types)
        )
    )


def test_warning_of_a_function_compiled_again_counts_all() -> None:
    [found] = report.find_warnings(compile_again("f32[8]", "f32[8]", "f32[7]"), Chip())
    assert found == (
        "jit(step) at train.py:42 was compiled 3 times: x is f32[7] sharded P(), before it was "
        "f32[8] sharded P()"
    )
    [found] = report.find_warnings(compile_again("f32[8]", "f32[8]"), Chip())
    assert "with equal arguments: a static argument" in found


def test_rematerialization_is_found_in_what_the_compiler_prints() -> None:
    printed = (
        "W1 spmd_partitioner.cc:666] [SPMD] Involuntary full rematerialization. The compiler "
        'cannot go from sharding {a} to {b}, metadata={op_name="jit(step)/dot_general" x}\nmore\n'
    )
    rank = make_rank(STEP)
    rank.rematerialized = report.find_rematerialized(printed * 2)
    [found] = report.find_warnings(rank, Chip())
    assert found.startswith("jit(step) at train.py:42: involuntary full rematerialization")
    assert found.endswith(": dot_general")


def test_ranks_that_call_a_function_with_other_shapes() -> None:
    full, short = compile_again("f32[8]"), compile_again("f32[8]", "f32[7]")
    short.rank = 17
    told = (
        "jit(step) at train.py:42: ranks 0 and 17 would run different programs: x is f32[8] "
        "sharded P(), and x is f32[7] sharded P()"
    )
    assert list(report.find_other_arguments([full, short])) == [told]
    full.has_failed = True  # and has not come to the last batch
    assert list(report.find_other_arguments([full, short])) == []
    full.programs[0] = short.programs[0].copy_with(inputs=(make_input("x", "f32[9]"),))
    assert list(report.find_other_arguments([full, short])) != []


def test_ranks_that_call_a_function_another_number_of_times() -> None:
    ranks = [make_rank(STEP, rank=rank, calls=calls) for rank, calls in enumerate((18, 2, 3, 3))]
    ranks[1].has_failed = True
    assert list(report.find_other_counts(ranks)) == [
        "jit(step) at train.py:42: rank 0 calls it 18 times, ranks 2-3 call it 3 times: in the "
        "job they would wait for each other"
    ]


@pytest.mark.parametrize(
    ("error", "needed"),
    [
        ("Used 80.0G of 15.75G hbm. Exceeded", 80 << 30),
        (
            "required for HLO temporaries (20.0G) exceeds available HBM (15.75G)",
            (20 << 30) + STEP.arguments + STEP.outputs,
        ),
    ],
)
def test_chip_without_enough_memory_is_read_from_the_compilers_error(
    error: str, needed: int
) -> None:
    told = explain(STEP, error)
    assert (told.needed, told.refused) == (needed, "")
    assert told.memory == int(15.75 * (1 << 30))
    assert explain(STEP, "no emitter\nmore").refused == "no emitter"


# --- the request ---


def test_sizes_of_hosts() -> None:
    local, hosts = (Host(name=LOCAL, slots=5),), (Host(name="a", slots=3), Host(name="b", slots=4))
    assert compute_sizes(Options(num_processes=5), local) == (1,) * 5
    assert compute_sizes(Options(num_processes=5, procs_per_host=2), local) == (2, 2, 1)
    assert compute_sizes(Options(), hosts) == (3, 4)
    assert compute_sizes(Options(num_processes=5), hosts) == (3, 2)


JOB = Job(program=("train.py",), num_processes=8, python="python", chdir="/", cpu_devices=4)


def test_too_few_chips_are_refused() -> None:
    job = JOB.copy_with(on="v5e:4x4", preview=frozenset({3, 0}))
    with pytest.raises(LaunchError, match="16 chips, and the job has 8 ranks of 4 devices"):
        choose_ranks(job, (1,) * 8)
    assert choose_ranks(job, (1,) * 4).alone == (0, 3)


def test_too_many_ranks_are_refused() -> None:
    with pytest.raises(LaunchError, match="at most 64"):
        choose_ranks(JOB.copy_with(num_processes=65, preview="all"), (1,) * 65)
