"""Pytest plugin: tests marked `mcjax` run in the ranks of jobs, started once per job shape.

A session without such tests imports little more than this file. With them, one of three plugins
does the work, by where pytest runs: the Controller in the user's pytest, RankTests in the pytest of
each rank that it starts, and InPlace where the user runs pytest itself with mcjax-launch.
"""

import os

import pytest

from mcjax_launch.features.pytest import marks

_IN_PLACE = "mcjax-in-place"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the plugin's option and settings."""
    parser.getgroup("mcjax", "tests marked mcjax").addoption(
        "--mcjax-compile-cache",
        metavar="DIR[:SIZE]",
        help="keep the programs that ranks compile in DIR for later sessions, at most SIZE of them "
        "(10G)",
    )
    parser.addini(
        "mcjax_compile_cache",
        "as --mcjax-compile-cache: DIR[:SIZE] for compiled programs",
        default="",
    )
    parser.addini(
        "mcjax_timeout",
        "seconds after which a test marked mcjax is ended, with the stacks of all ranks; 0: never",
        default="300",
    )
    parser.addini(
        "mcjax_preload",
        "modules that ranks of tests marked mcjax share: imported once, then forked",
        default="jax,pytest",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark; register the plugin of a pytest that runs in ranks itself."""
    config.addinivalue_line(
        "markers",
        "mcjax(processes, cpu_devices=1, timeout=None, slices=None, compile_once=None): run "
        "the test in this many JAX processes with this many CPU devices each, after initialize(); "
        "a list of processes parametrizes the test",
    )
    in_rank = config.pluginmanager.hasplugin(marks.IN_RANK)
    if not in_rank and "MCJAX_JOB_ID" in os.environ and "JAX_NUM_PROCESSES" in os.environ:
        from mcjax_launch.features.pytest.in_rank import InPlace

        config.pluginmanager.register(InPlace(), _IN_PLACE)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Register a Controller if tests are marked and this is the user's pytest."""
    marked = [item for item in items if item.get_closest_marker(marks.NAME) is not None]
    if marked and not any(map(config.pluginmanager.hasplugin, (marks.IN_RANK, _IN_PLACE))):
        from mcjax_launch.features.pytest.controller import Controller

        marks.check_options(config.option, marked)
        config.pluginmanager.register(Controller(config), "mcjax-controller")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test whose mark is wrong; other tests run as usual."""
    try:
        marks.read(item)
        return
    except marks.WrongMark as error:
        wrong = str(error)
    pytest.fail(wrong, pytrace=False)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test per number of processes if the mark gives a list of them."""
    marks.parametrize(metafunc)
