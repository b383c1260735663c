"""Folder of compiled programs that all ranks of a session share."""

import os
import shutil
import sys
from functools import partial
from typing import Any

import pytest

_KEY = "mcjax_compiled"
_FOLDER = "mcjax-compiled"
# Of the private folder, so that a session does not fill the disk of temporary files.
_PRIVATE_SIZE = "2G"


class CompiledPrograms:
    """Folder of compiled programs.

    Without --mcjax-compile-cache the folder is one of pytest's temporary ones, and is removed at
    the end of the session. Workers of pytest-xdist on this machine use it too.
    If JAX has a cache of its own, ranks share programs there instead.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._private = ""
        self._given = _read_cache_option(config)

    @property
    def cache(self) -> str | None:
        """Folder and size, as --compile-cache takes them; None if JAX's own cache is used."""
        if self._given or _has_jax_cache():
            return self._given
        shared = getattr(self._config, "workerinput", {}).get(_KEY) or self._get_private_folder()
        return f"{shared}:{_PRIVATE_SIZE}"

    def _get_private_folder(self) -> str:
        if not self._private:
            factory = self._config._tmp_path_factory  # type: ignore[attr-defined]
            self._private = str(factory.getbasetemp() / _FOLDER)
            self._config.add_cleanup(partial(shutil.rmtree, self._private, ignore_errors=True))
        return self._private

    # --- pytest-xdist ---

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Send a worker on this machine the path of the folder; other workers make their own."""
        if node.gateway.spec.popen:
            node.workerinput[_KEY] = self._get_private_folder()


def _has_jax_cache() -> bool:
    """Return whether the user has set up JAX's own cache, by a variable or in Python code."""
    config = getattr(sys.modules.get("jax"), "config", None)
    folder = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    return bool(getattr(config, "jax_compilation_cache_dir", folder))


def _read_cache_option(config: pytest.Config) -> str | None:
    """Return --mcjax-compile-cache, else the ini setting mcjax_compile_cache, as DIR or DIR:SIZE.

    DIR becomes absolute: relative to the working directory (option) or the rootdir (setting).

    Returns:
        None if the chosen value is empty, or if neither is set.

    Raises:
        pytest.UsageError: the value names no folder, or its size is invalid.

    """
    option, setting = config.option.mcjax_compile_cache, config.getini("mcjax_compile_cache")
    name, value, base = "mcjax_compile_cache", setting, config.rootpath
    if option is not None:
        name, value, base = "--mcjax-compile-cache", option, config.invocation_params.dir
    if not value:
        return None
    from mcjax_launch.options.kinds import CACHE

    try:
        return os.path.join(base, os.path.expanduser(CACHE.read(value)))
    except ValueError as error:
        raise pytest.UsageError(f"{name}: {error}") from None
