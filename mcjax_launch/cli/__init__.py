"""The command line: the only package that knows click."""

import sys
from types import ModuleType


class _WhenUsed(ModuleType):
    """Stands for a module until something of it is used."""

    def __getattr__(self, name: str) -> object:
        sys.modules.pop(self.__name__, None)
        module = __import__(self.__name__)
        self.__dict__.update(vars(module))
        return getattr(module, name)


# click imports it, with what it needs to read source code in turn, and a run uses none of that.
sys.modules.setdefault("inspect", _WhenUsed("inspect"))
