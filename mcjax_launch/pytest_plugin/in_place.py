"""Where pytest itself runs in the ranks of a job (`mcjax-launch -n 2 -m pytest`): for debugging.

A marked test then runs right here, with all that a debugger needs.
"""

import os
import tempfile
from pathlib import Path

import pytest

from mcjax_launch.pytest_plugin import marks, shared_tmp


class InPlace:
    """Runs marked tests in this process, if it is one of as many as they need."""

    def __init__(self) -> None:
        self._processes = int(os.environ["JAX_NUM_PROCESSES"])

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        job = os.environ["MCJAX_JOB_ID"]
        shared_tmp.share(session.config, Path(tempfile.gettempdir()) / f"pytest-mcjax-{job}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        marked = marks.read(item)
        if marked is None:
            return
        if marked.shape.processes != self._processes:
            pytest.skip(f"for {marked.shape}: this job has {self._processes}")
        import jax

        if not jax.distributed.is_initialized():
            jax.distributed.initialize()
