"""The command line: the only package that imports click."""

import sys
from types import ModuleType


class _WhenUsed(ModuleType):
    """A lazily imported module: the first use of an attribute imports the real module."""

    def __getattr__(self, name: str) -> object:
        sys.modules.pop(self.__name__, None)
        module = __import__(self.__name__)
        self.__dict__.update(vars(module))
        return getattr(module, name)


# click imports `inspect`, which imports much more; a run uses none of it.
sys.modules.setdefault("inspect", _WhenUsed("inspect"))
