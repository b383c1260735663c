"""Which variables a process reads from os.environ, and whether others can be set afterwards."""

from __future__ import annotations

import os
import sys

from .import_graph import executing_module, package_of

TYPE_CHECKING = False

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable, Collection, Iterator, Mapping
    from typing import Any

# --- a value that was asked for among all others ---
# `tqdm` looks for `TQDM_...` so, torch and grain copy all to look at a few. That is no use of the
# others: only what is done with a value is, or to keep it.

_NO_USE = {"__new__", "__init__", "__class__", "__getattribute__", "__setattr__", "__delattr__"}
_NO_USE |= {"__init_subclass__", "__subclasshook__", "__doc__", "__dir__", "__sizeof__"}


class LentValue(str):
    """Calls `used` whenever something is done with it."""

    used: Callable[[], object]


def lent(value: str, used: Callable[[], object]) -> LentValue:
    """That value.

    Args:
        value: of a variable.
        used: called at each use.

    """
    made = LentValue(value)
    made.used = used
    return made


def _noting(name: str) -> Callable[..., Any]:
    method = getattr(str, name)

    def use(self: LentValue, *args: Any, **named: Any) -> Any:
        self.used()
        return method(self, *args, **named)

    return use


def _converting(kind: type) -> Callable[[LentValue], Any]:
    def convert(self: LentValue) -> Any:
        self.used()
        return kind(str.__str__(self))

    return convert


for _name in set(dir(str)) - _NO_USE:
    if callable(getattr(str, _name)):
        setattr(LentValue, _name, _noting(_name))
for _kind in (int, float, bool):
    setattr(LentValue, f"__{_kind.__name__}__", _converting(_kind))
LentValue.__radd__ = lambda self, other: self.used() or str.__add__(other, self)  # type: ignore[attr-defined]


# --- what a process reads ---

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
_MOST_LOOKS = 4  # for copies of the environment that imports keep
_MAY_HAVE_BEEN_READ = (*_READ_AT_START, *_READ_BY_LIBRARIES, *_READ_BY_DRIVERS)


class EnvironmentReads:
    """A `with` in which each look at os.environ is noticed, and each change of it.

    A read has a place: the module whose import has led to it, and the line of that.

    Args:
        guesses: variables that the program is likely to set before its imports, with the values:
            set meanwhile.
        in_c: gives the environment as C has it.

    """

    def __init__(
        self, guesses: Mapping[str, str], in_c: Callable[[], Mapping[str, str]] = dict
    ) -> None:
        self._guesses = guesses
        self._in_c = in_c
        self._read: dict[str, str | None] = {}  # as it was at the first read, None: not set
        self._places: dict[str, set[tuple[str, int]]] = {}
        self._listed: set[tuple[str, int]] = set()  # where it was asked which variables there are
        self._set: list[tuple[str, str, str | None]] = []  # by imports: the package, name, value
        self._before: dict[str, str] = {}
        self._begun_with: dict[str, str] = {}  # by the rank, before its program
        self._lent: list[tuple[weakref.ref[LentValue], str, Callable[[], None]]] = []
        self._copies: list[tuple[dict[str, str], str]] = []  # kept, of the whole environment
        self._real: Any = None

    def __enter__(self) -> EnvironmentReads:
        self._before = dict(os.environ)
        os.environ.update(self._guesses)
        cls: Any = type(os.environ)
        # Bound here: these are called often, and os.environ has to remain the object it is.
        self._real = cls.__getitem__, cls.__iter__, cls.__setitem__, cls.__delitem__
        getitem, iterate, setitem, delitem = self._real

        def read(environ: Any, name: Any) -> Any:
            value = None
            try:
                value = getitem(environ, name)
            finally:
                if isinstance(name, (str, bytes)):
                    value = self._given(os.fsdecode(name), value)
            return value

        def list_all(environ: Any) -> Iterator[Any]:
            self._listed.add(executing_module())
            return iterate(environ)  # type: ignore[no-any-return]

        def change(environ: Any, name: Any, value: Any) -> None:
            setitem(environ, name, value)
            self._note_change(os.fsdecode(name), os.fsdecode(value))

        def delete(environ: Any, name: Any) -> None:
            delitem(environ, name)
            self._note_change(os.fsdecode(name), None)

        cls.__getitem__, cls.__iter__ = read, list_all
        cls.__setitem__, cls.__delitem__ = change, delete
        return self

    def __exit__(self, *exception: object) -> None:
        cls: Any = type(os.environ)
        cls.__getitem__, cls.__iter__, cls.__setitem__, cls.__delitem__ = self._real
        self._look_for_copies()

    def _given(self, name: str, value: Any) -> Any:
        """What a reader gets for a value, None if there is none, once that has been noted."""
        import _weakref

        place = executing_module()
        text = None if value is None else os.fsdecode(value)

        def use() -> None:
            if name in self._read or all(name != one for _, one, _ in self._set):
                self._read.setdefault(name, text)  # it is not what an import has set
                self._places.setdefault(name, set()).add(place)

        if place not in self._listed or not isinstance(value, str):
            use()
            return value
        value = lent(value, use)
        self._lent.append((_weakref.ref(value), name, use))
        return value

    def _look_for_copies(self) -> None:
        """Find the dictionaries that keep values; one that is kept otherwise counts as used."""
        kept = [(reference(), name, use) for reference, name, use in self._lent]
        kept = [one for one in kept if one[0] is not None]
        holders = _holders([(name, value) for value, name, _ in kept])
        nobodys = object()
        free = 0  # references to what nobody holds but this function
        for value, name, use in [(nobodys, "", None), *kept]:
            count = sys.getrefcount(value)
            if use is None:
                free = count - 1
                continue
            its = [one for one in holders if one.get(name) is value]
            if its and count - free == len(its):
                self._copies += [(one, name) for one in its]
            else:
                use()

    def _note_change(self, name: str, value: str | None) -> None:
        self._set.append((package_of(executing_module()[0]), name, value))

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
        in_c = self._in_c() or environ
        for name in {*environ, *in_c, *self._begun_with, *self._guesses}:
            was = self._guesses.get(name, self._begun_with.get(name))
            value = environ.get(name)
            if value != self._read.get(name, was):
                found[name] = set(self._places.get(name, ()))
            if (value is None) is not (was is None):
                found.setdefault(name, set()).update(self._listed)
            if name.startswith(_READ_BY_LIBRARIES) and in_c.get(name) != was:
                found.setdefault(name, set()).update([(imported, 0)] if are_in_c(packages) else ())
        for name, places in found.items():
            found[name] = {place for place in places if package_of(place[0]) in packages}
        return {name: places for name, places in found.items() if places}

    def begin(self, changes: Mapping[str, str | None], packages: Collection[str]) -> None:
        """Begin a rank with its own variables.

        Args:
            changes: those that differ from the first rank's.
            packages: that the program has not imported yet, nor seen what they set.

        """
        lasting = {name: value for package, name, value in self._set if package not in packages}
        _assign({**dict.fromkeys(os.environ), **self._before, **changes, **lasting})
        self._begun_with = dict(os.environ)
        for copy, name in self._copies:
            if name in self._begun_with:
                copy[name] = self._begun_with[name]

    def redo(self, packages: Collection[str]) -> None:
        """Set what the imports of packages have set."""
        _assign({name: value for package, name, value in self._set if package in packages})


def _holders(kept: Collection[tuple[str, object]]) -> list[dict[str, str]]:
    """The dictionaries that have values: who copies the environment keeps all in one.

    So a few of the values are looked for, since each look goes through all objects that there are.

    Args:
        kept: values with their names.

    """
    import gc

    found: list[dict[str, str]] = []
    for _ in range(_MOST_LOOKS):
        kept = [(name, one) for name, one in kept if all(its.get(name) is not one for its in found)]
        if not kept:
            break
        found += [one for one in gc.get_referrers(kept[0][1]) if type(one) is dict]
    return found


def _assign(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        elif os.environ.get(name) != value:
            os.environ[name] = value


def are_in_c(packages: Collection[str]) -> bool:
    """Whether some module of them is a library, and not Python's own."""
    standard: Collection[str] = getattr(sys, "stdlib_module_names", ())
    others = set(packages).difference(standard)
    return any(
        package_of(name) in others and file_of(module).endswith(".so")
        for name, module in (list(sys.modules.items()) if others else ())
    )


def file_of(module: object) -> str:
    """The file that a module was loaded from; "" if there is none."""
    try:
        # Not by way of a module's own lookup, which may import what has been put off.
        path = object.__getattribute__(module, "__dict__").get("__file__")
    except AttributeError:
        return ""
    return path if isinstance(path, str) else ""
