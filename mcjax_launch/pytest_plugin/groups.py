"""All groups of ranks of a session, by shape: started when needed, and again after a crash."""

import sys
from collections.abc import Callable, Sequence

import pytest

from mcjax_launch.pytest_plugin import rank_options
from mcjax_launch.pytest_plugin.group import Group, StartFailed
from mcjax_launch.pytest_plugin.marks import Shape

# So many starts in a row that fail are enough to know.
_MOST_FAILURES = 2


class Groups:
    """Has one group for each shape.

    Args:
        files: those of the tests of a shape.

    """

    def __init__(self, config: pytest.Config, files: Callable[[Shape], Sequence[str]]) -> None:
        self._config = config
        self._files = files
        self._groups: dict[Shape, Group] = {}
        self._ending: list[Group] = []
        self._failures: dict[Shape, list[StartFailed]] = {}

    def ready(self, shape: Shape) -> Group:
        """The group of a shape, which waits for tests.

        Raises:
            StartFailed: it cannot be started, or could not be, twice.

        """
        group = self._groups.get(shape)
        if group is not None and group.is_alive:
            return group
        if group is not None:
            self.replace(group)
        failures = self._failures.setdefault(shape, [])
        if len(failures) >= _MOST_FAILURES:
            raise failures[-1]
        group = self._start(shape)
        try:
            group.wait_until_ready()
        except StartFailed as failure:
            failures.append(failure)
            raise
        except BaseException:  # Ctrl-C
            group.end(at_once=True)
            raise
        failures.clear()
        self._groups[shape] = group
        return group

    def _start(self, shape: Shape) -> Group:
        factory = self._config._tmp_path_factory  # type: ignore[attr-defined]
        settings = {
            "sys_path": sys.path,
            "args": list(self._files(shape)),
            "options": rank_options.options(self._config),
            "workerinput": rank_options.workerinput(self._config),
            "coverage": rank_options.coverage(self._config),
            "in_place": shape.command,
            "tmp": str(factory.mktemp("ranks")),
        }
        return Group(
            shape,
            settings,
            str(self._config.getini("mcjax_preload")),
            shows=self._config.getoption("capture") == "no",
        )

    def retire(self, shape: Shape) -> None:
        """There are no more tests of this shape: let its ranks leave, while others run."""
        group = self._groups.pop(shape)
        group.finish()
        self._ending.append(group)

    def replace(self, group: Group) -> None:
        """End this group at once; the next test gets a fresh one."""
        self._groups.pop(group.shape, None)
        group.end(at_once=True)

    def close(self) -> None:
        """End all groups."""
        for shape in list(self._groups):
            self.retire(shape)
        for group in self._ending:
            group.end()
        self._ending.clear()
