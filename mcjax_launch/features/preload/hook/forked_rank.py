"""Steps of a forked rank before its program, and at its first import of a preloaded module."""

from __future__ import annotations

import os
import sys

from ....hook import devices
from ....hook.agent_link import import_privately
from ....wire import hook_environ
from ....wire.rank_process import die_with_parent
from ..messages import READ_AT_IMPORT, SetTooLate

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    from ....hook.agent_link import AgentLink
    from ....wire.rank_process import Prctl, RankSettings
    from ..messages import Fork


# --- what /proc shows ---

_PR_SET_MM, _PR_SET_MM_MAP = 35, 14
_UNCHANGED = 0xFFFFFFFF
# Positions of fields in /proc/PID/stat, counted after the process's name.
_BEFORE_HEAP_END, _STACK = (23, 24, 42, 43, 44), 25  # of code, data, and the heap's start


class System:
    """Calls of the C library; the modules that they need stay hidden from the program."""

    def __init__(self) -> None:
        self._ctypes: Any = import_privately("ctypes")
        self._library: Any = self._ctypes.CDLL(None)
        self.prctl: Prctl = self._library.prctl
        self._shown: Any = None  # where the kernel reads the command: kept as long as the process

    def set_shown_command(self, argv: Sequence[str], environ: Mapping[str, str]) -> None:
        """Have the kernel, if it can, show another command and environment in /proc and `ps`."""
        command = b"".join(os.fsencode(word) + b"\0" for word in argv)
        variables = b"".join(os.fsencode(f"{name}={environ[name]}") + b"\0" for name in environ)
        with open("/proc/self/stat", "rb") as file:
            fields = [int(field) for field in file.read().rpartition(b")")[2].split()[1:]]
        fields.insert(0, 0)  # the state
        c = self._ctypes
        self._shown = c.create_string_buffer(command + variables)
        begin = c.addressof(self._shown)
        middle, end = begin + len(command), begin + len(command) + len(variables)
        self._library.sbrk.restype = c.c_void_p
        heap_end = self._library.sbrk(c.c_ssize_t(0))
        addresses = [*(fields[at] for at in _BEFORE_HEAP_END), heap_end, fields[_STACK]]
        addresses += [begin, middle, middle, end, 0]
        data = b"".join(address.to_bytes(8, sys.byteorder) for address in addresses)
        data += (0).to_bytes(4, sys.byteorder) + _UNCHANGED.to_bytes(4, sys.byteorder)
        size = c.c_ulong(len(data))
        self.prctl(_PR_SET_MM, c.c_ulong(_PR_SET_MM_MAP), data, size, c.c_ulong(0))


# --- before its program ---


class ForkedRank:
    """Identity of a rank, which a fork of this process takes on.

    Args:
        link: the hook's link to the agent.
        environ: the hook's environment.
        agent: the agent's pid.
        system: calls of the C library.

    """

    def __init__(
        self, link: AgentLink, environ: dict[str, str], agent: int, system: System
    ) -> None:
        self._link, self._environ, self._agent, self._system = link, environ, agent, system
        self._packages: Collection[str] = ()
        self._loaded: dict[str, ModuleType] = {}
        self._path: list[str] = []
        self._variables: dict[str, str] = {}

    def set_loaded(self, packages: Collection[str], before: Collection[str]) -> None:
        """Record what has been loaded, with sys.path as a program begins.

        Args:
            packages: names of the packages that had to be imported.
            before: names of the modules that were loaded before.

        """
        self._packages = packages
        self._path = list(sys.path)
        self._variables = dict(os.environ)  # some of them are set by jax
        self._loaded = {
            name: module
            for name, module in sys.modules.items()
            if "." not in name and name not in before
        }

    def become(self, order: Fork, descriptors: Sequence[int]) -> None:
        """Turn this process, just forked, into the ordered rank: apply all its differences."""
        _set_up_process(descriptors, order.settings, self._agent, self._system.prctl)
        for environ in (self._environ, os.environ):
            for name, value in order.changes.items():
                if value is None:
                    environ.pop(name, None)
                else:
                    environ[name] = value
        count = len(sys.argv) - 1
        if count:
            sys.argv[1:] = order.argv[-count:]
            if hasattr(sys, "orig_argv"):
                sys.orig_argv[-count:] = order.argv[-count:]
        self._system.set_shown_command(order.argv, self._environ)
        _renew()
        try:
            self._link.connect(
                self._environ[hook_environ.SOCKET], self._environ.get("JAX_PROCESS_ID", "")
            )
        except OSError:  # there is no agent: it is about to end this rank
            pass
        FirstImport(self._packages, self.on_first_import)

    def on_first_import(self) -> None:
        """Complete the import of jax, or of a module that the user has named, in a forked rank."""
        self._link.send_held()
        devices.assign_gpus(self._environ)
        missed = apply_variables(self._variables)
        missed += self._find_other_modules()
        if missed:
            self._link.send(SetTooLate(tuple(missed)))

    def _find_other_modules(self) -> list[str]:
        """Return the packages that an import would take from elsewhere now, or has taken."""
        is_same = sys.path == self._path
        return [
            name
            for name, module in self._loaded.items()
            if sys.modules.get(name) is not module or not (is_same or _is_found_again(module))
        ]


def _set_up_process(
    descriptors: Sequence[int], settings: RankSettings, agent: int, prctl: Prctl
) -> None:
    """Set up this rank's session, streams and settings; then wait until it may begin.

    It may begin when the agent is its parent; from then on it ends with the agent.

    Args:
        descriptors: descriptors for its 0, 1 and 2, and a descriptor to wait on.
        settings: settings of its process.
        agent: the agent's pid.
        prctl: function of the C library.

    """
    os.setsid()
    *standard, start = descriptors
    for target, fd in enumerate(standard):
        os.dup2(fd, target)
        os.close(fd)
    settings.apply()
    begins = os.read(start, 1)
    os.close(start)
    if not begins:  # the agent does not want this rank any more, or is gone
        os._exit(0)
    die_with_parent(agent, prctl)


def _renew() -> None:
    """Renew objects that ranks must not share: `__main__`, NumPy seed, authkey, thread id.

    Python reseeds the `random` module itself after a fork.
    """
    sys.modules["__main__"] = _copy(sys.modules["__main__"])
    if "__mp_main__" in sys.modules:  # as multiprocessing calls it
        sys.modules["__mp_main__"] = sys.modules["__main__"]
    numpy_random: Any = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    process: Any = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.current_process().authkey = os.urandom(32)
    threading: Any = sys.modules.get("threading")
    if threading is not None and hasattr(threading.main_thread(), "_set_native_id"):
        threading.main_thread()._set_native_id()


def _copy(main: ModuleType) -> ModuleType:
    """Return a copy of `__main__`: the original may be frozen, so it would not be finalized."""
    copy = type(main)(main.__name__)
    vars(copy).update(vars(main))
    return copy


# --- at its first import ---

# JAX only sets a flag from each of the variables that are named like its flags, but for these: it
# changes the value, or uses it during its import.
_USED_OTHERWISE = (
    *("JAX_BACKEND_TARGET", "JAX_PLATFORM_NAME", "JAX_USE_SIMPLIFIED_JAXPR_CONSTANTS"),
)
_TRUTH = {
    **dict.fromkeys(("y", "yes", "t", "true", "on", "1"), True),
    **dict.fromkeys(("n", "no", "f", "false", "off", "0"), False),
}


class FirstImport:
    """Import finder that hides preloaded packages until the program imports one of them.

    Args:
        packages: names of packages; those that are not loaded are ignored.
        on_import: called once, when the program imports one of them; at once if none is loaded.

    """

    def __init__(self, packages: Collection[str], on_import: Callable[[], object]) -> None:
        self._on_import = on_import
        found = {name for name in packages if _can_be_hidden(name)}
        names = [name for name in sys.modules if name.partition(".")[0] in found]
        self._hidden = {name: sys.modules.pop(name) for name in names}
        if self._hidden:
            sys.meta_path.insert(0, self)
        else:
            on_import()

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """Return the spec of a hidden module, with which an import returns that module."""
        if name not in self._hidden:
            return None
        module = self._hidden[name]
        spec: Any = module.__spec__
        loader: Any = spec.loader

        def create_module(_: ModuleSpec) -> ModuleType:
            sys.modules.update(self._hidden)
            return module

        def exec_module(_: ModuleType) -> None:
            del loader.create_module, loader.exec_module  # which leaves the loader as it was
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            if self._hidden:
                self._hidden = {}
                self._on_import()

        loader.create_module, loader.exec_module = create_module, exec_module
        return spec  # type: ignore[no-any-return]


def _can_be_hidden(name: str) -> bool:
    """Return whether a module is loaded, and a later import can be given it as it is.

    The loader has to be an object: that of another module cannot load this one as it is.
    """
    spec: Any = getattr(sys.modules.get(name), "__spec__", None)
    return spec is not None and not isinstance(spec.loader, (type, type(None)))


def apply_variables(before: Mapping[str, str]) -> list[str]:
    """Set JAX's flags from the variables that a program has set since JAX was imported for it.

    Args:
        before: the variables at that import.

    Returns:
        names of the changed variables that cannot be applied.

    """
    config: Any = getattr(sys.modules.get("jax._src.config"), "config", None)
    if config is None:  # no JAX was imported, or one of that name alone
        return []
    names = sorted(name for name in {*before, *os.environ} if name.startswith(READ_AT_IMPORT))
    changed = [name for name in names if before.get(name) != os.environ.get(name)]
    return [name for name in changed if not _apply(config, name)]


def _apply(config: Any, name: str) -> bool:
    """Set the flag of a variable as JAX does; return False if that is not possible."""
    text, flag = os.environ.get(name), name.lower()
    if name in _USED_OTHERWISE:
        return False
    if flag not in config.meta:  # a variable of JAX's is read later, or not at all
        return name.startswith("JAX_")
    kind = config.meta[flag][0]
    try:
        assert text is not None
        value = _TRUTH[text.lower()] if kind is bool else text
        config.update(flag, kind(text) if kind in (int, float) else value)
    except Exception:  # an import of JAX does not accept it either
        return False
    return True


def _is_found_again(loaded: ModuleType) -> bool:
    """Return whether Python would now find a loaded module in the same file."""
    import importlib.machinery

    spec: Any = loaded.__spec__
    if spec is None or not spec.has_location:
        return True
    found = importlib.machinery.PathFinder.find_spec(spec.name)
    # A finder of some build's own may have found it, which PathFinder does not.
    if found is None or found.origin == spec.origin:
        return True
    return os.path.realpath(str(found.origin)) == os.path.realpath(str(spec.origin))
