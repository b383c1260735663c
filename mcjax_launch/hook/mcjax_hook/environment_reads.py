"""Which variables a process reads from os.environ, and whether others can be set afterwards."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

# Read by libraries in C when they are loaded, or by the C library when a program starts: seen with
# a stand-in for getenv() while jax, NumPy and SciPy were imported. (XLA_FLAGS is not: XLA reads it
# when the first backend is made.)
_READ_BY_LIBRARIES = (
    *("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "GLIBC_", "TZ", "LOCALTIME"),
    *("OMP_", "GOMP_", "KMP_", "MKL_", "BLIS_", "OPENBLAS_", "GOTO_", "NPY_", "NUMPY_"),
    *("GFORTRAN_", "LLVM_", "OPENSSL_", "SSL_", "GRPC_", "GCS_", "TF_", "MPITRAMPOLINE_"),
)


class EnvironmentReads:
    """A `with` in which each look at os.environ is noticed.

    Attributes:
        names: the variables that were read.
        all_names: it was asked which variables there are.

    """

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.all_names = False
        self._before: dict[str, str] = {}
        self._set_here: set[str] = set()
        self._real: Any = None

    def __enter__(self) -> EnvironmentReads:
        self._before = dict(os.environ)
        cls: Any = type(os.environ)
        # Bound here: these are called often, and os.environ has to remain the object it is.
        self._real = cls.__getitem__, cls.__iter__
        getitem, iterate = self._real

        def read(environ: Any, name: Any) -> Any:
            self.names.add(os.fsdecode(name) if isinstance(name, (str, bytes)) else "")
            return getitem(environ, name)

        def list_all(environ: Any) -> Iterator[Any]:
            self.all_names = True
            return iterate(environ)  # type: ignore[no-any-return]

        cls.__getitem__, cls.__iter__ = read, list_all
        return self

    def __exit__(self, *exception: object) -> None:
        cls: Any = type(os.environ)
        cls.__getitem__, cls.__iter__ = self._real
        after = dict(os.environ)
        names = {*after, *self._before}
        self._set_here = {name for name in names if after.get(name) != self._before.get(name)}

    def used_of(self, changes: Mapping[str, str | None]) -> str:
        """A variable among these that has been used with another value; "" if there is none.

        Args:
            changes: variables with the values that they should have had, None for unset.

        """
        for name, value in sorted(changes.items()):
            comes_or_goes = (value is None) is (name in self._before)
            if name in self.names or name.startswith(_READ_BY_LIBRARIES):
                return name
            if self.all_names and comes_or_goes:
                return name
        return ""

    def apply(self, changes: Mapping[str, str | None]) -> None:
        """Set these, but for those that the imports have set, whatever their value was."""
        for name, value in changes.items():
            if name in self._set_here:
                continue
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
