"""Sharing of compiled programs between the ranks of a host: one compiles and writes, the rest load.

No rank waits for a rank that does not compile: a program's lock is held only during its
compilation, and the kernel frees it with the process. So programs that differ cannot cause a hang.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time

from ....hook.part import ProgramSource
from ....machine import own_paths
from ..messages import Awaits, Obtained
from .key import UnknownJax, is_local, make_program_key
from .locks import Lock, Locks
from .origins import Origins
from .store import Executable, Store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from ....hook.agent_link import AgentLink
    from ....wire.hook_messages import HookMessage

# Most bytes in the job's private folder.
_PRIVATE_SIZE = 2 << 30
# Folder for all ranks inside the folder of JAX's own cache, which only rank 0 uses.
_BESIDE_JAX = "mcjax-launch"
_TUNE_ALONE = ("xla_gpu_shard_autotuning", False)
# Failures to load, one after another, after which this process compiles all programs.
_MOST_FAILURES = 3


class CompileOnce(ProgramSource):
    """Part that loads programs, or compiles them: for all ranks, or for this process alone."""

    def __init__(self, link: AgentLink, environ: Mapping[str, str]) -> None:
        super().__init__(link, environ)
        import json

        mode, private, folder, size = json.loads(self.asked)
        self._is_for_all = mode == "on"
        self._locks = Locks(private, environ.get("JAX_PROCESS_ID", ""))
        self._kept = Store(folder, size) if folder else None
        self._private = Store(private, _PRIVATE_SIZE)
        self._of_jax: dict[str, Store | None] = {}
        self._origins = Origins()
        self._failures = 0  # to load, one after the other
        util = sys.modules.get("jax._src.traceback_util")
        exclude = getattr(util, "register_exclusion", None)
        if exclude is not None:  # from JAX's tracebacks, like JAX's own frames
            exclude(CompileOnce.obtain.__code__.co_filename)

    def obtain(self, compile_: Callable[..., Any], program: tuple[Any, ...]) -> Any:
        """Return the executable of a program, loaded if another rank has compiled it.

        Args:
            compile_: compiles the program that is passed to it.
            program: JAX's backend, the module, the devices, JAX's options, the host's callbacks.

        Raises:
            Exception: whatever the compiler raises.

        """
        key = self._make_key(*program)
        if key is None:
            return compile_(*program)
        # To be searched in order; the first that can also keeps new programs.
        stores = [store for store in (self._kept, self._get_jax_store(), self._private) if store]
        executable = self._load(stores, key, program)
        if executable is not None:
            return executable
        with self._locks.hold(key, lambda rank: self._report(Awaits(rank))) as lock:
            if not any(store.has(key) for store in stores):
                return self._compile(compile_, stores, key, program, lock)
        executable = self._load(stores, key, program)  # without the lock: ranks load in parallel
        return compile_(*program) if executable is None else executable

    def _make_key(
        self, backend: Any, module: Any, devices: Any, options: Any, callbacks: Any = (), *more: Any
    ) -> str | None:
        """Return a program's key; None if this process compiles it only for itself."""
        if backend.platform != "cpu" and not self._is_for_all:
            return None
        if backend.platform in ("cuda", "gpu", "rocm"):
            # Otherwise ranks tune a program together, and would wait for ranks that load it.
            options.env_option_overrides = [*options.env_option_overrides, _TUNE_ALONE]
        if callbacks or more or self._failures >= _MOST_FAILURES:
            return None
        try:
            return make_program_key(backend, module, list(devices), options)
        except UnknownJax:
            return None

    def _load(self, stores: list[Store], key: str, program: tuple[Any, ...]) -> Any:
        """Return an executable that some rank has compiled; None if there is none."""
        backend, _, devices, options, *_ = program
        began = time.monotonic()
        for store in stores:
            compiled = store.read(key)
            if compiled is None:
                continue
            try:
                executable = backend.deserialize_executable(compiled.data, devices, options)
                self._origins.record(executable, store, key, is_local=is_local(backend, devices))
            except Exception:  # an unknown version of JAX may fail each time
                self._failures += 1
                store.remove(key)
                continue
            self._failures = 0
            self._report(Obtained(True, compiled.seconds - (time.monotonic() - began)))
            return executable
        return None

    def _compile(
        self,
        compile_: Callable[..., Any],
        stores: list[Store],
        key: str,
        program: tuple[Any, ...],
        lock: Lock,
    ) -> Any:
        """Compile a program, and write it for the other ranks."""
        began = time.monotonic()
        executable = compile_(*program)
        seconds = time.monotonic() - began
        self._origins.forget(executable)
        self._report(Obtained(False, seconds))
        if lock.is_shared and not self._write(stores, key, program[0], executable, seconds):
            lock.give_up_sharing()
        return executable

    def _write(
        self, stores: list[Store], key: str, backend: Any, executable: Any, seconds: float
    ) -> bool:
        """Write an executable to the first store that accepts it; return whether one does."""
        try:
            data = backend.serialize_executable(executable)
        except Exception:  # XLA cannot serialise this kind of executable
            return False
        for store in stores:
            with contextlib.suppress(OSError):
                if store.write(key, Executable(data, seconds)):
                    return True
        return False

    def _report(self, message: HookMessage) -> None:
        if not self.link.is_below:  # a rank's child process is not the rank
            self.link.send(message)

    def _get_jax_store(self) -> Store | None:
        """Return a store in the folder of JAX's own cache; None if there is none to be trusted."""
        config = sys.modules["jax._src.config"]
        try:
            folder = config.compilation_cache_dir.value
            if not folder or "://" in folder or not config.enable_compilation_cache.value:
                return None
            least = config.persistent_cache_min_compile_time_secs.value
            size = config.compilation_cache_max_size.value
        except AttributeError:
            return None
        if folder not in self._of_jax:
            path = os.path.join(os.path.abspath(os.path.expanduser(folder)), _BESIDE_JAX)
            # The folder is made by the first of the two.
            is_trusted = not own_paths.explain_distrust(path)
            store = Store(path, size if size > 0 else sys.maxsize, least) if is_trusted else None
            self._of_jax[folder] = store
        return self._of_jax[folder]


PART = CompileOnce
