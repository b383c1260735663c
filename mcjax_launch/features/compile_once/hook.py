"""Sharing of compiled programs between ranks: one compiles and writes, the rest load.

JAX's own cache does the keeping: its files, its folder and its size. By itself it would serve only
rank 0 of a CPU job, because its keys contain the number of the process, and only process 0 writes.
Here a program has one key in all ranks, and whichever rank has compiled it writes it.

No rank waits for a rank that does not compile: a program's lock is held only during its
compilation, and the kernel frees it with the process. So programs that differ cannot cause a hang.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import sys
import threading
import time
from functools import lru_cache

from ...hook.part import RankPart
from ...machine import system
from .messages import Awaits, CannotLimit, Obtained

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from ...hook.agent_link import AgentLink
    from ...wire.hook_messages import HookMessage

# Most bytes in the job's private folder, which is not emptied before the job ends.
_PRIVATE_SIZE = 2 << 30
# Beginning of the keys that are equal in all ranks.
_OURS = "mcjax-"
_TUNE_ALONE = ("xla_gpu_shard_autotuning", False)
_GPUS = ("cuda", "gpu", "rocm")
_LONGEST_RANK = 16
# Names in the code of a program that calls back by a pointer into the process that has compiled it.
# They are found anywhere in MLIR's bytecode, so a user's function of such a name is not shared.
_BOUND = (b"callback", b"CustomSPMDPartitioning", b"InspectSharding", b"custom_partition")
# Variables that affect how XLA compiles, or for how many threads.
_VARIABLES = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "NPROC", "PJRT_NPROC")
# Parts of the names of XLA's options that make a compilation write files.
_WRITING = ("dump", "cache_dir", "cache_file", "profile")
_SERIALIZING = "jax.experimental.serialize_executable"


class _Now(threading.local):
    """Program that this thread compiles: if it may be shared, and the descriptor of its lock."""

    may_share = False
    lock = -1


class CompileOnce(RankPart):
    """Part that has JAX's cache serve all ranks, from the rank's first program on."""

    _sharing: Sharing | None = None
    _is_known = True  # this version of JAX has what is needed

    def obtain(
        self, compile_: Callable[[], Any], backend: Any, options: Any, callbacks: Any
    ) -> Any:
        """Return the executable of a program, loaded if another rank has compiled it."""
        if self._sharing is None and self._is_known:
            try:
                self._sharing = Sharing(self.link, self.environ, self.asked)
            except (ImportError, AttributeError, LookupError):
                self._is_known = False
        if self._sharing is None:
            return compile_()
        return self._sharing.obtain(compile_, backend, options, callbacks)


class Sharing:
    """JAX's cache, with functions of JAX's own replaced so that it serves all ranks.

    Args:
        link: the link to the agent.
        environ: environment variables with which this process was started.
        asked: mode of --compile-once, private folder, folder of --compile-cache ("" for none) and
            its size (0 for no limit), as JSON.

    """

    def __init__(self, link: AgentLink, environ: Mapping[str, str], asked: str) -> None:
        from jax._src import compilation_cache, compiler, config, lru_cache

        self._link = link
        self._environ = environ
        mode, self._private, folder, size = json.loads(asked)
        self._is_for_all = mode == "on"
        self._has_folder = bool(folder) and self._use_folder(config, folder, size)
        self._cache, self._config = compilation_cache, config
        self._jax_shares = config.share_binary_between_hosts
        self._private_cache = lru_cache.LRUCache(self._private, max_size=-1)
        self._room = _PRIVATE_SIZE // int(environ.get("MCJAX_LOCAL_NUM_PROCESSES") or 1)
        self._is_shared = int(environ.get("JAX_NUM_PROCESSES") or 1) > 1
        self._now = _Now()
        # By the executable's id: its fingerprint, its key, and whether it is for local devices.
        self._loaded: dict[int, tuple[Any, str, bool]] = {}
        self._patched: set[type] = set()
        if hasattr(compiler, "backend_compile_and_load"):  # jax 0.6 loads programs in another way
            self._patch(compilation_cache, "is_cache_used", self._is_cache_used)
            self._patch(compilation_cache, "get_cache_key", self._get_key)
            self._patch(compiler, "_cache_read", self._read)
            self._patch(compiler, "_cache_write", self._write)
        sys.modules["jax._src.traceback_util"].register_exclusion(
            Sharing.obtain.__code__.co_filename
        )

    def _use_folder(self, config: Any, folder: str, size: int) -> bool:
        """Make the folder of --compile-cache that of JAX's cache; return whether it can be."""
        own = self._environ.get("JAX_COMPILATION_CACHE_DIR")
        if config.compilation_cache_dir.value not in (None, own):  # the program has its own
            return False
        if size:
            from importlib.util import find_spec

            if find_spec("filelock") is None:
                self._report(CannotLimit())
                return False
            config.config.update("jax_compilation_cache_max_size", size)
        config.config.update("jax_compilation_cache_dir", folder)
        if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in self._environ:
            config.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        return True

    @staticmethod
    def _patch(owner: Any, name: str, function: Callable[..., Any]) -> None:
        real = getattr(owner, name)

        def replacement(*args: Any, **more: Any) -> Any:
            # No version that is known to us names arguments.
            return real(*args, **more) if more else function(real, *args)

        setattr(owner, name, replacement)

    def obtain(
        self, compile_: Callable[[], Any], backend: Any, options: Any, callbacks: Any
    ) -> Any:
        """Return the executable of a program; see `RankPart.obtain`."""
        is_shared = self._is_shared and (self._is_for_all or backend.platform == "cpu")
        if backend.platform in _GPUS and (is_shared or self._has_folder):
            # Otherwise ranks tune a program together, and would wait for ranks that load it.
            options.env_option_overrides = [*options.env_option_overrides, _TUNE_ALONE]
        now = self._now
        # With its own way to share, JAX's keys must stay JAX's.
        now.may_share = is_shared and not callbacks and not self._jax_shares.value
        try:
            return compile_()
        finally:
            now.may_share = False
            self._unlock()

    # --- JAX's functions, as this thread calls them while it compiles ---

    def _is_cache_used(self, real: Callable[..., bool], backend: Any) -> bool:
        return self._now.may_share or real(backend)

    def _get_key(
        self,
        real: Callable[..., str],
        module: Any,
        devices: Any,
        options: Any,
        backend: Any,
        *more: Any,
    ) -> str | None:
        """Return a program's key; None if this process compiles it only for itself."""
        if self._now.may_share:
            key = make_program_key(backend, module, list(devices.flat), options)
            if key is not None:
                return _OURS + key
        is_kept = self._config.compilation_cache_dir.value
        return real(module, devices, options, backend, *more) if is_kept else None

    def _read(
        self,
        real: Callable[..., Any],
        name: str,
        key: str,
        options: Any,
        backend: Any,
        devices: Any,
        *more: Any,
    ) -> Any:
        """Return a LoadedExecutable and the seconds of its compilation; (None, None) for none."""
        if not key.startswith(_OURS):
            began = time.monotonic()
            found = real(name, key, options, backend, devices, *more)
            if found[0] is not None:
                self._report_loaded(found[1], began)
            return found
        found = self._load(key, options, backend, devices)
        if found[0] is None:
            is_late = self._lock(key)
            found = self._load(key, options, backend, devices)
            if is_late or found[0] is not None:  # what cannot be shared is not waited for again
                self._unlock()
        return found

    def _load(self, key: str, options: Any, backend: Any, devices: Any) -> Any:
        began = time.monotonic()
        for cache in self._list_caches(backend):
            value = cache.get(key)
            if value is None:
                continue
            try:
                data, seconds = self._unpack(value)
                executable = backend.deserialize_executable(data, devices, options)
            except Exception:  # damaged: it is compiled and written again
                continue
            is_own = is_local(backend, list(devices))
            self._loaded[id(executable)] = executable.fingerprint, key, is_own
            self._patch_serializing(type(executable.client))
            self._report_loaded(seconds, began)
            return executable, seconds
        return None, None

    def _report_loaded(self, seconds: int, began: float) -> None:
        self._report(Obtained(True, max(seconds - (time.monotonic() - began), 0.0)))

    def _write(
        self,
        real: Callable[..., None],
        key: str,
        seconds: float,
        name: str,
        backend: Any,
        executable: Any,
        *more: Any,
    ) -> None:
        """Keep a program that this process has compiled, for the other ranks and later runs."""
        self._loaded.pop(id(executable), None)
        self._report(Obtained(False, seconds))
        if not key.startswith(_OURS):
            real(key, seconds, name, backend, executable, *more)
            return
        private, *kept = self._list_caches(backend)[::-1]
        least_s = self._config.persistent_cache_min_compile_time_secs.value
        cache = kept[0] if kept and seconds >= least_s else private
        with contextlib.suppress(Exception):  # the disk is full, or XLA cannot serialise this kind
            data = backend.serialize_executable(executable)
            value = self._cache.combine_executable_and_time(data, int(seconds))
            value = self._cache.compress_executable(value)
            if cache is private:
                self._room -= len(value)
                if self._room < 0:
                    return
            self._put(cache, key, value)

    def _put(self, cache: Any, key: str, value: bytes) -> None:
        """Keep a program under its name only when its file is whole: ranks read without a lock."""
        unfinished = f"{key}.{os.urandom(8).hex()}"
        cache.put(unfinished, value)
        for suffix in ("-cache", "-atime"):
            part = os.path.join(cache._path, unfinished + suffix)
            if os.path.exists(part):
                os.replace(part, os.path.join(cache._path, key + suffix))

    def _list_caches(self, backend: Any) -> list[Any]:
        """Return the caches to search: JAX's own, where it has a folder, and the private one."""
        folder = self._config.compilation_cache_dir.value
        is_used = folder and "://" not in folder and self._config.enable_compilation_cache.value
        kept = self._cache._get_cache(backend) if is_used else None
        return [*([kept] if kept else []), self._private_cache]

    def _unpack(self, value: bytes) -> tuple[bytes, int]:
        cache = self._cache
        data, seconds = cache.extract_executable_and_time(cache.decompress_executable(value))
        return data, seconds

    def _patch_serializing(self, client: type) -> None:
        """Have a Client serialise what was loaded as it was written: XLA would leave out code."""
        if client in self._patched:
            return
        self._patched.add(client)
        self._patch(client, "serialize_executable", self._serialize)

    def _serialize(self, real: Callable[..., bytes], backend: Any, executable: Any) -> bytes:
        fingerprint, key, is_own = self._loaded.get(id(executable), (None, "", False))
        if fingerprint is None or fingerprint != executable.fingerprint:
            return real(backend, executable)
        if not is_own:
            for cache in self._list_caches(backend):
                if value := cache.get(key):
                    return self._unpack(value)[0]
        raise ValueError(  # the file is gone, or is for the devices of the rank that wrote it
            f"another rank has compiled this program: import {_SERIALIZING} before it is compiled, "
            "or run with --compile-once off"
        )

    # --- locks, one for each program: files in the private folder, which is on a local disk ---

    def _lock(self, key: str) -> bool:
        """Lock a program; return whether another rank has held the lock until now."""
        is_late = False
        with contextlib.suppress(OSError):  # the folder is gone, full, or knows no locks
            path = os.path.join(self._private, key + ".lock")
            self._now.lock = fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                is_late = True
                self._wait(fd)
            os.pwrite(fd, self._environ.get("JAX_PROCESS_ID", "").encode().ljust(_LONGEST_RANK), 0)
        return is_late

    def _wait(self, fd: int) -> None:
        """Wait for a lock; say for which rank, as it is written in the file."""
        rank = os.pread(fd, _LONGEST_RANK, 0).decode("ascii", "replace").strip()
        is_other = rank.isdecimal() and rank != self._environ.get("JAX_PROCESS_ID")
        self._report(Awaits(int(rank) if is_other else -1))
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        finally:
            self._report(Awaits(-1))

    def _unlock(self) -> None:
        fd, self._now.lock = self._now.lock, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_UN)  # a process forked meanwhile holds it too
            os.close(fd)

    def _report(self, message: HookMessage) -> None:
        if not self._link.is_below:  # a rank's child process is not the rank
            self._link.send(message)


def make_program_key(backend: Any, module: Any, devices: Sequence[Any], options: Any) -> str | None:
    """Return the key of a program, equal for programs that can replace each other.

    Instead of the topology in JAX's own keys it has the processor's properties.

    Args:
        backend: the backend that compiles it.
        module: its code, in MLIR.
        devices: the devices on which it runs.
        options: JAX's options for its compilation.

    Returns:
        None if the program can only run in this process, or this jax lacks what a key needs.

    """
    # What it writes is read without being told the devices to run on.
    if _writes(options) or _SERIALIZING in sys.modules:
        return None
    try:
        from jax._src import cache_key

        code, digest = _Recorder(), hashlib.sha256()
        cache_key._hash_computation(code, module, False)
        if any(word in code.text for word in _BOUND):
            return None
        digest.update(code.text)
        is_own = is_local(backend, devices)
        cache_key._hash_serialized_compile_options(digest, options, strip_device_assignment=is_own)
        facts = (
            *(backend.platform, backend.platform_version, sys.modules["jaxlib"].__version__),
            *(len(devices), backend.local_device_count(), is_own),
            *sorted({str(device.device_kind) for device in devices}),
            *(os.environ.get(name) for name in _VARIABLES),
            *sorted(word for word in sys.argv if word.startswith("--xla")),
            *(cache_key.custom_hook(), *_get_processor()),
        )
    except Exception:  # another version of JAX
        return None
    digest.update(repr(facts).encode())
    return digest.hexdigest()


def _writes(options: Any) -> bool:
    """Return whether a compilation writes files besides, as the user wants of each rank.

    Options of XLA come from a variable, or with a program (`compiler_options` of `jax.jit`).
    """
    names = (str(name) for name, *_ in getattr(options, "env_option_overrides", ()))
    given = (*names, *(os.environ.get(variable, "") for variable in _VARIABLES[:2]))
    return any(word in text for text in given for word in _WRITING)


def is_local(backend: Any, devices: Sequence[Any]) -> bool:
    """Return whether a program runs only on devices of this process."""
    own = backend.process_index()
    return all(device.process_index == own for device in devices)


@lru_cache(None)
def _get_processor() -> tuple[str, ...]:
    return system.identify_processor()


class _Recorder:
    """Hash-like object that keeps what JAX adds to it."""

    text = b""

    def update(self, text: bytes) -> None:
        self.text += text


PART = CompileOnce
