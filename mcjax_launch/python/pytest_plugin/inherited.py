"""Settings that the pytest of a rank inherits from the user's: options, and coverage."""

import os
from typing import Any

import pytest

# Options that make a rank write, measure or show what the user's pytest does already, or end the
# collection of the ranks early. (pyargs: a rank's arguments are paths.)
_NOT_IN_RANKS: dict[str, Any] = {
    "basetemp": None,
    "cacheclear": False,
    "cov_source": [],
    "log_file": os.devnull,
    "maxfail": 0,
    "pyargs": False,
    "setupshow": False,
    "xmlpath": None,
}
# Plugins that write what the user's pytest writes, or run tests in a way of their own.
_BLOCKED = ("terminal", "rerunfailures", "flaky", "html", "json-report")
_PLAIN = (str, int, float, bool, type(None), os.PathLike)


def make_rank_options(config: pytest.Config) -> dict[str, Any]:
    """Return pytest's options for a rank: those of the user's pytest that can be sent."""
    given = {name: value for name, value in vars(config.option).items() if _is_plain(value)}
    plugins = [*(given.get("plugins") or []), *(f"no:{name}" for name in _BLOCKED)]
    place = {"rootdir": str(config.rootpath), "plugins": plugins}
    if config.inipath is not None:
        place["inifilename"] = str(config.inipath)
    taken = {**given, **_NOT_IN_RANKS, **place}
    taken.pop("file_or_dir", None)  # a rank has files of its own
    return taken


def get_worker_input(config: pytest.Config) -> dict[str, Any] | None:
    """Return pytest-xdist's input for this process; None if it is no worker of pytest-xdist."""
    given = getattr(config, "workerinput", None)
    if given is None:
        return None
    return {name: value for name, value in given.items() if _is_plain(value)}


def get_coverage_arguments(config: pytest.Config) -> dict[str, Any] | None:
    """Return the arguments of a rank's Coverage; None if pytest-cov measures nothing here."""
    controller = getattr(config.pluginmanager.getplugin("_cov"), "cov_controller", None)
    measure = getattr(controller, "cov", None)
    if controller is None or measure is None:
        return None
    return {
        "source": controller.cov_source,
        "branch": controller.cov_branch,
        "config_file": controller.cov_config,
        "data_file": os.path.abspath(measure.config.data_file),
        "data_suffix": True,  # pytest-cov combines all that lie beside its own
    }


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(map(_is_plain, [*value, *value.values()]))
    return isinstance(value, _PLAIN)
