"""The program of a rank: a pytest of its own, which runs the tests that the controller names.

A script, so that nothing of this package is imported before pytest is there to rewrite it.
"""

import os
import sys
from multiprocessing.connection import Client, Connection
from types import SimpleNamespace
from typing import Any


def main(address: str) -> None:
    """Connect to the controller at this address, and do what it says."""
    name = f"\0{address[1:]}" if address.startswith("@") else address
    connection = Client(name, "AF_UNIX")
    connection.send(int(os.environ["JAX_PROCESS_ID"]))
    try:
        settings = connection.recv()
    except EOFError:  # it is gone
        return
    sys.path[:] = settings["sys_path"]
    measure = _coverage(settings["coverage"])
    import jax

    jax.distributed.initialize()
    try:
        _run_pytest(connection, settings, measure)
    finally:
        if measure is not None:
            measure.stop()
            measure.save()


def _coverage(how: dict[str, Any] | None) -> Any:
    """A measurement of this process's coverage, from here on, if pytest-cov makes one."""
    if how is None:
        return None
    import coverage

    measure = coverage.Coverage(
        source=how["source"],
        branch=how["branch"],
        config_file=how["config_file"],
        data_file=how["data_file"],
        data_suffix=True,  # pytest-cov combines all that lie beside its own
    )
    measure.start()
    return measure


def _run_pytest(connection: Connection, settings: dict[str, Any], measure: Any) -> None:
    from _pytest.config import Config

    config = Config.fromdictargs(settings["options"], settings["args"])
    # Only now: pytest rewrites the assertions of installed plugins, if they are not imported yet.
    from mcjax_launch.pytest_plugin import IN_RANK
    from mcjax_launch.pytest_plugin.in_rank import InRank

    if settings["workerinput"] is not None:
        config.workerinput = settings["workerinput"]  # type: ignore[attr-defined]
    config.pluginmanager.register(InRank(config, connection, settings), IN_RANK)
    if measure is not None and settings["coverage"]["contexts"]:
        from pytest_cov.plugin import TestContextPlugin

        config.pluginmanager.register(TestContextPlugin(SimpleNamespace(cov=measure, started=True)))
    config.hook.pytest_cmdline_main(config=config)


if __name__ == "__main__":
    main(sys.argv[1])
