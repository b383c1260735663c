"""What the pytest in a rank takes over from the user's: options, and what measures coverage."""

import os
from typing import Any

import pytest

# What would write what the user's pytest writes, measure or show as that does, or end the ranks'
# collection early; their arguments are paths.
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


def options(config: pytest.Config) -> dict[str, Any]:
    """Pytest's options for a rank, of those that can be sent."""
    given = {name: value for name, value in vars(config.option).items() if _is_plain(value)}
    plugins = [*(given.get("plugins") or []), *(f"no:{name}" for name in _BLOCKED)]
    place = {"rootdir": str(config.rootpath), "plugins": plugins}
    if config.inipath is not None:
        place["inifilename"] = str(config.inipath)
    taken = {**given, **_NOT_IN_RANKS, **place}
    taken.pop("file_or_dir", None)  # a rank has files of its own
    return taken


def workerinput(config: pytest.Config) -> dict[str, Any] | None:
    """What pytest-xdist has told this process, if it is a worker of it."""
    given = getattr(config, "workerinput", None)
    if given is None:
        return None
    return {name: value for name, value in given.items() if _is_plain(value)}


def coverage(config: pytest.Config) -> dict[str, Any] | None:
    """How a rank's Coverage measures, if pytest-cov does here."""
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
