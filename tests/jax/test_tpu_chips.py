"""How TPU chips are shared out, against JAX's own test runner."""

import ast
import itertools
from pathlib import Path
from typing import Any

import pytest

from mcjax_launch.job import devices


def jaxs_bounds(hardware_utils: Any) -> Any:
    """The function alone: its module wants what is not installed."""
    runner = Path(hardware_utils.__file__).with_name("test_multiprocess.py")
    if not runner.exists():
        pytest.skip("this jax has no test runner")
    for node in ast.parse(runner.read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name == "_get_tpu_bounds":
            names: dict[str, Any] = {"hardware_utils": hardware_utils}
            exec(compile(ast.Module([node], []), str(runner), "exec"), names)
            return names[node.name]
    pytest.skip("this jax shares chips out in another way")


def test_grids_of_tpu_chips_match_jax() -> None:
    from jax._src import hardware_utils  # here: each worker reads all modules

    bounds = jaxs_bounds(hardware_utils)
    for version, chips, each in itertools.product(
        hardware_utils.TpuVersion, (1, 2, 4, 8), (1, 2, 4, 8)
    ):
        try:
            theirs = bounds(version, chips, each)
        except ValueError:
            theirs = None
        model = version.name.removeprefix("tpu")
        assert devices.compute_tpu_bounds(model, chips, each) == theirs, (version, chips, each)
