"""How TPU chips are shared out, against JAX's own test runner."""

import ast
import itertools
from pathlib import Path
from typing import Any

import jax
import pytest
from jax._src import hardware_utils

from mcjax_launch.job import devices

RUNNER = Path(jax.__file__).parent / "_src" / "test_multiprocess.py"


def jaxs_bounds() -> Any:
    """The function alone: its module wants what is not installed."""
    if not RUNNER.exists():
        pytest.skip("this jax has no test runner")
    for node in ast.parse(RUNNER.read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name == "_get_tpu_bounds":
            names: dict[str, Any] = {"hardware_utils": hardware_utils}
            exec(compile(ast.Module([node], []), str(RUNNER), "exec"), names)
            return names[node.name]
    pytest.skip("this jax shares chips out in another way")


def test_grids_of_tpu_chips_match_jax() -> None:
    bounds = jaxs_bounds()
    for version, chips, each in itertools.product(
        hardware_utils.TpuVersion, (1, 2, 4, 8), (1, 2, 4, 8)
    ):
        try:
            theirs = bounds(version, chips, each)
        except ValueError:
            theirs = None
        model = version.name.removeprefix("tpu")
        assert devices.compute_tpu_bounds(model, chips, each) == theirs, (version, chips, each)
