"""Folder of compiled programs that all ranks of a session share, and counts of its use."""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

_KEY = "mcjax_compiled"
_FOLDER = "mcjax-compiled"
# Of the private folder, so that a session does not fill the disk of temporary files.
_PRIVATE_SIZE = "2G"


class CompiledPrograms:
    """Folder of compiled programs, and counts of the programs that ranks compile and load.

    Without --mcjax-compile-cache the folder is one of pytest's temporary ones, and is removed when
    the user's pytest process ends. Workers of pytest-xdist on this machine use it too.
    If JAX has a cache of its own, ranks share programs there instead.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._counts = [0, 0.0, 0, 0.0]
        self._private = ""
        self._given = _given(config)

    @property
    def cache(self) -> str | None:
        """Folder and size, as --compile-cache takes them; None if JAX's own cache is used."""
        if self._given or _has_jax_a_cache():
            return self._given
        shared = getattr(self._config, "workerinput", {}).get(_KEY) or self._private_folder()
        return f"{shared}:{_PRIVATE_SIZE}"

    def _private_folder(self) -> str:
        if not self._private:
            factory = self._config._tmp_path_factory  # type: ignore[attr-defined]
            self._private = str(factory.getbasetemp() / _FOLDER)
            self._config.add_cleanup(_remover(self._private))
        return self._private

    def count(self, ranks: list[dict[str, Any]]) -> None:
        """Add the programs that the ranks of a job have compiled and loaded.

        Args:
            ranks: the ranks in the job's record.

        """
        names = ("programs_compiled", "compiling_s", "programs_loaded", "saved_s")
        for compiled in (rank["compiled"] for rank in ranks if rank["compiled"]):
            self._add([compiled[name] for name in names])

    def _add(self, counts: list[float]) -> None:
        self._counts = [mine + more for mine, more in zip(self._counts, counts, strict=True)]

    # --- pytest-xdist ---

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Send a worker on this machine the path of the folder; other workers make their own."""
        if node.gateway.spec.popen:
            node.workerinput[_KEY] = self._private_folder()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add the counts of a worker that has ended; a worker that crashed has sent none."""
        self._add(getattr(node, "workeroutput", {}).get(_KEY) or [0] * len(self._counts))

    def pytest_sessionfinish(self) -> None:
        """Send the counts to the main pytest process, if this process is a worker."""
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput[_KEY] = self._counts

    # --- the end ---

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print with -v how many programs were compiled and loaded, and the time saved."""
        compiled, compiling_s, loaded, saved_s = self._counts
        if compiled + loaded and self._config.option.verbose > 0:
            terminalreporter.write_line(
                f"mcjax: programs compiled: {compiled} in {compiling_s:.1f} s; loaded: {loaded}, "
                f"which saved {saved_s:.1f} s"
            )


def _remover(folder: str) -> Callable[[], None]:
    """Start a process that removes a folder when this process ends, even by SIGKILL.

    Returns:
        a function that removes the folder earlier.

    """
    command = ["/bin/sh", "-c", 'read -r _; exec rm -rf -- "$0"', folder]
    quiet = subprocess.DEVNULL
    watching = subprocess.Popen(  # and is not reached by Ctrl-C
        command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, cwd="/", start_new_session=True
    )

    def remove() -> None:
        watching.communicate(b"\n")  # a child of this process may hold the pipe open

    return remove


def _has_jax_a_cache() -> bool:
    """Return whether the user has set up JAX's own cache, by a variable or in Python code."""
    config = getattr(sys.modules.get("jax"), "config", None)
    folder = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    return bool(getattr(config, "jax_compilation_cache_dir", folder))


def _given(config: pytest.Config) -> str | None:
    """Return the value of the option, else of the ini setting; None if neither is set.

    A relative path counts from the working directory (option) or from the rootdir (setting).

    Raises:
        pytest.UsageError: the value names no folder.

    """
    option, setting = config.option.mcjax_compile_cache, config.getini("mcjax_compile_cache")
    name, value, base = "mcjax_compile_cache", setting, config.rootpath
    if option is not None:
        name, value, base = "--mcjax-compile-cache", option, config.invocation_params.dir
    if not value:
        return None
    from mcjax_launch.options.kinds import cache

    try:
        return os.path.join(base, os.path.expanduser(cache(value)))
    except ValueError as error:
        raise pytest.UsageError(f"{name}: {error}") from None
