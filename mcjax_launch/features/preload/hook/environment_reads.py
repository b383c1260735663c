"""Which variables a process reads from os.environ, and whether others can be set afterwards."""

from __future__ import annotations

import os
import sys

from .import_graph import executing_module, package_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from typing import Any

# Read when a program starts, by Python or the C library: to set them in a program is too late.
_READ_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "GLIBC_", "TZ", "LOCALTIME")
# Read by libraries in C when they are loaded: seen with a stand-in for getenv() while jax, NumPy
# and SciPy were imported. (XLA_FLAGS is not: XLA reads it when the first backend is made.)
_READ_BY_LIBRARIES = (
    *("OMP_", "GOMP_", "KMP_", "MKL_", "BLIS_", "OPENBLAS_", "GOTO_", "NPY_", "NUMPY_"),
    *("GFORTRAN_", "LLVM_", "OPENSSL_", "SSL_", "GRPC_", "GCS_", "TF_", "MPITRAMPOLINE_"),
)
# Read by an accelerator's driver when it begins, and by the libraries around it when they are
# loaded: which of them a rank's imports load is not known. In a rank a program may still set them,
# since where the driver has begun no rank is forked.
_READ_BY_DRIVERS = ("CUDA_", "NVIDIA_", "NCCL_", "HIP_", "ROCR_", "NVSHMEM_", "UCX_")
_MAY_HAVE_BEEN_READ = (*_READ_AT_START, *_READ_BY_LIBRARIES, *_READ_BY_DRIVERS)


class EnvironmentReads:
    """A `with` in which each look at os.environ is noticed.

    A read has a place: the module whose import has led to it, and the line of that.
    """

    def __init__(self) -> None:
        self._read: dict[str, str | None] = {}  # as it was at the first read, None: not set
        self._places: dict[str, set[tuple[str, int]]] = {}
        self._listed: set[tuple[str, int]] = set()  # where it was asked which variables there are
        self._before: dict[str, str] = {}
        self._after: dict[str, str] = {}
        self._begun_with: dict[str, str] = {}  # by the rank, before its program
        self._real: Any = None

    def __enter__(self) -> EnvironmentReads:
        self._before = dict(os.environ)
        cls: Any = type(os.environ)
        # Bound here: these are called often, and os.environ has to remain the object it is.
        self._real = cls.__getitem__, cls.__iter__
        getitem, iterate = self._real

        def read(environ: Any, name: Any) -> Any:
            value = None
            try:
                value = getitem(environ, name)
            finally:
                if isinstance(name, (str, bytes)):
                    self._note(os.fsdecode(name), None if value is None else os.fsdecode(value))
            return value

        def list_all(environ: Any) -> Iterator[Any]:
            self._listed.add(executing_module())
            return iterate(environ)  # type: ignore[no-any-return]

        cls.__getitem__, cls.__iter__ = read, list_all
        return self

    def __exit__(self, *exception: object) -> None:
        cls: Any = type(os.environ)
        cls.__getitem__, cls.__iter__ = self._real
        self._after = dict(os.environ)

    def _note(self, name: str, value: str | None) -> None:
        self._read.setdefault(name, value)
        self._places.setdefault(name, set()).add(executing_module())

    def used_of(self, changes: Mapping[str, str | None]) -> str:
        """A variable among these that has been used with another value; "" if there is none.

        Args:
            changes: variables with the values that they should have had, None for unset.

        """
        for name, value in sorted(changes.items()):
            comes_or_goes = (value is None) is (name in self._before)
            if name in self._read or name.startswith(_MAY_HAVE_BEEN_READ):
                return name
            if self._listed and comes_or_goes:
                return name
        return ""

    def changed(self, imported: str, packages: Collection[str]) -> dict[str, set[tuple[str, int]]]:
        """The variables that the imports of packages have read, and that are others now.

        Args:
            imported: the package that the program imports: charged with the reads of libraries in
                C, of which the line is 0.
            packages: that one, and those that its import has imported.

        Returns:
            the places of each that have read it.

        """
        found: dict[str, set[tuple[str, int]]] = {}
        environ = dict(os.environ)
        if environ == self._begun_with:
            return found
        for name in {*environ, *self._begun_with}:
            value, begun_with = environ.get(name), self._begun_with.get(name)
            if value in (begun_with, self._read.get(name, begun_with)):
                continue
            places = self._places.get(name, set())
            if (value is None) is not (begun_with is None):
                places = places | self._listed
            found[name] = {place for place in places if package_of(place[0]) in packages}
            if name.startswith(_READ_BY_LIBRARIES) and _are_in_c(packages):
                found[name].add((imported, 0))
        return {name: places for name, places in found.items() if places}

    def apply(self, changes: Mapping[str, str | None]) -> None:
        """Begin a rank: set these, but for those that the imports have set, whatever they were."""
        for name, value in changes.items():
            if self._after.get(name) != self._before.get(name):
                continue
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._begun_with = dict(os.environ)


def _are_in_c(packages: Collection[str]) -> bool:
    """Whether some module of them is a library."""
    return any(
        package_of(name) in packages and _file_of(module).endswith(".so")
        for name, module in list(sys.modules.items())
    )


def _file_of(module: object) -> str:
    """The file that a module was loaded from; "" if there is none."""
    try:
        # Not by way of a module's own lookup, which may import what has been put off.
        path = object.__getattribute__(module, "__dict__").get("__file__")
    except AttributeError:
        return ""
    return path if isinstance(path, str) else ""
