"""The record of real runs of JAX that fail."""

import platform
from importlib.metadata import version
from pathlib import Path

from records import read

import mcjax_launch

LATE = """
import os, time
rank = int(os.environ["JAX_PROCESS_ID"])
if rank == 1: time.sleep(2)
import jax
from jax.experimental import multihost_utils
jax.distributed.initialize(); jax.devices()  # for which all wait too
multihost_utils.sync_global_devices("started")  # all have to come here
"""


def test_record_holds_versions_and_waits(in_this_process: None, tmp_path: Path) -> None:
    path, program = tmp_path / "run.json", tmp_path / "late.py"
    program.write_text(LATE)
    result = mcjax_launch.launch(program, processes=3, cpu_devices=1, report=path).check()
    (attempt,) = read(path)["attempts"]
    assert attempt == {**result.record, "began_s": attempt["began_s"]}
    python = platform.python_version()
    for rank in attempt["ranks"]:
        assert (rank["jax"], rank["python"]) == (version("jax"), python)
        assert rank["jaxlib"] == version("jaxlib")
    [long] = [wait for wait in attempt["waits"] if wait["until_s"] - wait["arrived"][0][1] > 1]
    assert (long["late"], long["place"], long["where"]) == ([1], "initialize()", f"{program}:7")
    times = dict(long["arrived"])
    assert times == {rank["rank"]: rank["joining_s"] for rank in attempt["ranks"]}
    assert long["until_s"] == times[1]
