"""Names of the environment variables that imports read."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from types import FrameType
    from typing import Any

# Read when a program starts, by Python or the C library: to set them in a program is too late.
_READ_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "GLIBC_", "TZ", "LOCALTIME")
# Read by libraries in C when they are loaded: seen with a stand-in for getenv() while jax, NumPy
# and SciPy were imported. (XLA_FLAGS is not: XLA reads it when the first backend is made.)
_READ_BY_LIBRARIES = (
    *("OMP_", "GOMP_", "KMP_", "MKL_", "BLIS_", "OPENBLAS_", "GOTO_", "NPY_", "NUMPY_"),
    *("GFORTRAN_", "LLVM_", "OPENSSL_", "SSL_", "GRPC_", "GCS_", "TF_CPP_", "MPITRAMPOLINE_"),
)
# Read by an accelerator's driver when it begins, and by the libraries around it when they are
# loaded: which of them a rank's imports load is not known. In a rank a program may still set them,
# because a process in which the driver has begun forks no rank.
_READ_BY_DRIVERS = ("CUDA_", "NVIDIA_", "NCCL_", "HIP_", "ROCR_", "NVSHMEM_", "UCX_")
_READ_UNSEEN = (*_READ_AT_START, *_READ_BY_LIBRARIES, *_READ_BY_DRIVERS)

# These list all variables to find those with a prefix of their own, and keep no others. (The last
# is this package's name in a rank.)
_LOOK_FOR_THEIR_OWN = ("tqdm", "numba", "networkx", "wsgiref", "_mcjax_launch")
_ALL = "*"  # no variable has this name
_ENVIRON = ("os", "collections.abc")  # what the modules of os.environ and its views call themselves


class VariableReads:
    """Context that collects the names of variables read from os.environ.

    Attributes:
        names: names read so far, "*" if all were listed; a caller may replace the set.

    """

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._lister: FrameType | None = None  # the last of those that look for their own
        self._real: Any = None

    def __enter__(self) -> VariableReads:
        # Bound to the class: os.environ has to remain the object that it is.
        cls: Any = type(os.environ)
        self._real = getitem, iterate = cls.__getitem__, cls.__iter__

        def read(environ: Any, name: Any) -> Any:
            if isinstance(name, (str, bytes)) and _find_reader() is not self._lister:
                self.names.add(os.fsdecode(name))
            return getitem(environ, name)

        def list_all(environ: Any) -> Iterator[Any]:
            reader = _find_reader()
            if _get_module_name(reader).startswith(_LOOK_FOR_THEIR_OWN):
                self._lister = reader
            else:
                self.names.add(_ALL)
            return iterate(environ)  # type: ignore[no-any-return]

        cls.__getitem__, cls.__iter__ = read, list_all
        return self

    def __exit__(self, *exception: object) -> None:
        cls: Any = type(os.environ)
        cls.__getitem__, cls.__iter__ = self._real
        self._lister = None


def _find_reader() -> FrameType | None:
    """Return the frame of the code that reads os.environ, outside os.environ's own methods."""
    frame: FrameType | None = sys._getframe(2)
    while _get_module_name(frame) in _ENVIRON:
        frame = frame.f_back  # type: ignore[union-attr]
    return frame


def _get_module_name(frame: FrameType | None) -> str:
    return "" if frame is None else str(frame.f_globals.get("__name__", ""))


def find_first_read(names: Collection[str], read: Collection[str]) -> str:
    """Return the first of some variables that may have been read; "" if none was.

    Args:
        names: names of the variables to check.
        read: names that `VariableReads` has collected.

    """
    is_read = (n for n in sorted(names) if n in read or _ALL in read or n.startswith(_READ_UNSEEN))
    return next(is_read, "")


def select_read(names: Collection[str], read: Collection[str]) -> set[str]:
    """Return the variables that imports had read before the program set them.

    Args:
        names: names of variables that the program has set.
        read: names that `VariableReads` has collected.

    """
    return {name for name in names if name in read or _ALL in read}


def select_read_in_c(names: Collection[str]) -> set[str]:
    """Return the variables that libraries in C read when they are loaded.

    Args:
        names: names of variables that the program has set.

    """
    return {name for name in names if name.startswith(_READ_BY_LIBRARIES)}
