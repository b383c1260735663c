"""The code of programs, and in what two of them part."""

import pytest

from mcjax_launch.features.recorder.program_code import Argument, find_code_differences, parse_code

pytestmark = pytest.mark.every_jax

TEXT = """\
// on the devices 0, 1
#loc1 = loc("params['w']")
#loc2 = loc("batch")
module @program attributes {mhlo.num_partitions = 2 : i32} {
  sdy.mesh @mesh = <["data"=2, "model"=1]> loc(#loc)
  func.func public @main(%arg0: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"data", "model"}]>} loc("params['w']"), %arg1: tensor<i1> {tf.aliasing_output = 0 : i32} loc(#loc2), %arg2: tensor<4xbf16> loc(unknown)) -> (tensor<f32> {jax.x = "a"}) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32> loc(#loc5)
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [0, 1] : (tensor<8x4xf32>, tensor<f32>) -> tensor<f32> loc(#loc6)
    return %0 : tensor<f32> loc(#loc)
  } loc(#loc)
} loc(#loc)
#loc = loc(unknown)
#loc3 = loc("train.py":9:4 to :20)
#loc4 = loc("/usr/lib/python3/site-packages/flax/core.py":100:4 to :20)
#loc5 = loc("sum"(#loc3))
#loc6 = loc("jit(f)/reduce_sum"(callsite(#loc4 at #loc3)))
"""


def parts(*changes: tuple[str, str]) -> list[tuple[str, str, str]]:
    """How TEXT and TEXT with changes part."""
    other = TEXT
    for before, after in changes:
        assert before in other
        other = other.replace(before, after)
    return list(find_code_differences(parse_code(TEXT), parse_code(other)))


def test_program_arguments_are_parsed() -> None:
    assert parse_code(TEXT).arguments == (
        Argument("params['w']", "f32[8,4]", "P(None, ('data', 'model'))"),
        Argument("batch", "bool[]", ""),
        Argument("2", "bf16[4]", ""),
    )


SUM = "stablehlo.add across"
ZERO = "dense<0.000000e+00>"
PARTS = {
    "nothing": ((), []),
    "other places": ((("train.py", "other.py"),), []),
    "what it reduces by": (
        ((SUM, "stablehlo.maximum across"), (ZERO, "dense<0xFF800000>")),
        [("", "stablehlo.reduce add at train.py:9", "stablehlo.reduce maximum at train.py:9")],
    ),
    "a constant": (
        ((ZERO, "dense<1.500000e+00>"),),
        [("", "stablehlo.constant 0 f32[] at train.py:9", "stablehlo.constant 1.5 f32[] at train.py:9")],
    ),
    "an attribute": (
        (("dimensions = [0, 1]", "dimensions = [0]"),),
        [(
            "",
            "stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [0, 1] : "
            "(f32[8,4], f32[]) -> f32[] at train.py:9",
            "stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [0] : "
            "(f32[8,4], f32[]) -> f32[] at train.py:9",
        )],
    ),
    "a shape": ((("tensor<4xbf16>", "tensor<5xbf16>"),), [("argument 2", "bf16[4]", "bf16[5]")]),
    "a sharding": (
        (('{"data", "model"}', '{"data"}'),),
        [("sharding of argument params['w']", "P(None, ('data', 'model'))", "P(None, 'data')")],
    ),
    "an argument more": (
        (("%arg2:", "%arg2: tensor<f32> loc(\"c\"), %arg3:"),),
        [("arguments", "params['w'], batch, 2", "params['w'], batch, c, 3")],
    ),
    "an operation more": (
        (("    return", "    %1 = call @f1(%0) : (tensor<f32>) -> tensor<f32> loc(#loc5)\n    return"),),
        [("", "return", "call @f1 at train.py:9")],
    ),
    "the devices": ((("devices 0, 1", "devices 1, 0"),), [("", "on the devices 0, 1", "on the devices 1, 0")]),
}  # fmt: skip


@pytest.mark.parametrize("name", PARTS)
def test_difference_of_two_programs_is_found(name: str) -> None:
    changes, expected = PARTS[name]
    assert parts(*changes) == expected


def test_a_long_operation_is_cut_where_it_differs() -> None:
    long = " {" + ", ".join(f"a{number} = {number}" for number in range(60)) + "}"
    changes = (("dimensions = [0, 1]", "dimensions = [0, 1]" + long),)
    other = changes[0][0], changes[0][1].replace("a50 = 50", "a50 = 51")
    texts = [parse_code(TEXT.replace(*change)) for change in (changes[0], other)]
    [(_, first, second)] = find_code_differences(*texts)
    assert first.startswith("stablehlo.reduce ... ") and "a50 = 50," in first
    assert first.endswith(" ... at train.py:9") and len(first) < 170
    assert second == first.replace("a50 = 50", "a50 = 51")


def test_malformed_program_text_is_compared_without_error() -> None:
    assert (
        list(
            find_code_differences(
                parse_code(""), parse_code("garbage\n#loc1 = loc(#loc1)\n x loc(#loc1)")
            )
        )
        != []
    )
