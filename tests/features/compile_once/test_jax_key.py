"""Programs share a key only if one can stand for the other."""

import json
import subprocess
import sys

import pytest
from jobs import PROGRAMS


@pytest.mark.every_jax
def test_cache_keys_differ_only_where_programs_do() -> None:
    command = [sys.executable, str(PROGRAMS / "compiled_keys.py")]
    keys = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=150).stdout)
    assert keys["first"] == keys["again"] == keys["other device"]
    others = [key for name, key in keys.items() if name.startswith("other ")]
    assert len({keys["first"], *others}) == len(others)  # one of them is the other device
    assert {key for name, key in keys.items() if name.startswith("bound")} == {None}
    assert {key for name, key in keys.items() if name.startswith("unknown")} == {None}
