"""A program that several ranks need: one compiles it, the others wait for it, and load it."""

import json
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from mcjax_launch.features.compile_once import hook
from mcjax_launch.features.compile_once.hook import Sharing
from mcjax_launch.features.compile_once.messages import Awaits, CannotLimit, Obtained
from mcjax_launch.wire.hook_messages import HookMessage


class Cache:
    """JAX's cache of files."""

    def __init__(self, path: str, max_size: int) -> None:
        self._path = path

    def get(self, key: str) -> bytes | None:
        path = Path(self._path, f"{key}-cache")
        return path.read_bytes() if path.exists() else None

    def put(self, key: str, value: bytes) -> None:
        Path(self._path, f"{key}-cache").write_bytes(value)


class Client:
    """A backend whose programs are their own serialisations."""

    platform = "cpu"

    def deserialize_executable(self, data: bytes, devices: Any, options: Any) -> Any:
        if data.startswith(b"bad"):
            raise RuntimeError("another version")
        return SimpleNamespace(client=self, fingerprint=data, data=data)

    def serialize_executable(self, executable: Any) -> bytes:
        return bytes(executable.data)

    def process_index(self) -> int:
        return 0


CLIENT = Client()


class Jax:
    """What JAX does with a program, with the stand-ins of its modules."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.option = SimpleNamespace(value=None)
        self.jax_shares = SimpleNamespace(value=False)
        cache = SimpleNamespace(
            is_cache_used=lambda backend: False,
            get_cache_key=lambda *program: "jit_own",
            _get_cache=lambda backend: Cache(str(self.option.value), -1),
            combine_executable_and_time=lambda data, seconds: bytes([seconds]) + data,
            extract_executable_and_time=lambda value: (value[1:], value[0]),
            compress_executable=bytes,
            decompress_executable=bytes,
        )
        compiler = SimpleNamespace(
            _cache_read=lambda *program: (None, None),
            _cache_write=lambda *program: None,
            backend_compile_and_load=None,
        )
        config = SimpleNamespace(
            compilation_cache_dir=self.option,
            persistent_cache_min_compile_time_secs=SimpleNamespace(value=1),
            enable_compilation_cache=SimpleNamespace(value=True),
            share_binary_between_hosts=self.jax_shares,
            config=SimpleNamespace(update=self.update),
        )
        lru_cache = SimpleNamespace(LRUCache=Cache)
        src: Any = ModuleType("jax._src")
        src.compilation_cache, src.compiler, src.config = cache, compiler, config
        src.lru_cache = lru_cache
        util = SimpleNamespace(register_exclusion=lambda file: None)
        monkeypatch.setitem(sys.modules, "jax", ModuleType("jax"))
        monkeypatch.setitem(sys.modules, "jax._src", src)
        monkeypatch.setitem(sys.modules, "jax._src.traceback_util", util)
        monkeypatch.setattr(hook, "make_program_key", lambda backend, module, *more: module)
        self.cache, self.compiler = cache, compiler
        self.updated: dict[str, object] = {}

    def update(self, name: str, value: object) -> None:
        self.updated[name] = value
        if name == "jax_compilation_cache_dir":
            self.option.value = value


class Rank:
    """A rank of its own, with what its hook has said."""

    def __init__(self, jax: Jax, private: Path, number: int, *, mode: str = "auto") -> None:
        self.jax = jax
        self.said: list[HookMessage] = []
        link: Any = SimpleNamespace(is_below=False, send=self.said.append)
        environ = {"JAX_PROCESS_ID": str(number), "JAX_NUM_PROCESSES": "2"}
        asked = json.dumps([mode, str(private), "", 0])
        self.sharing = Sharing(link, environ, asked)
        # Both replace the functions of one JAX, which each rank has to itself.
        self.functions = {**vars(jax.cache)}, {**vars(jax.compiler)}

    def obtain(self, name: str, during: Any = None) -> bool:
        """Obtain a program as JAX does; return whether this rank has compiled it."""
        cache, compiler = self.functions
        compiled: list[str] = []

        def compile_or_get_cached() -> None:
            if not cache["is_cache_used"](CLIENT):
                compiled.append(name)
                return
            devices = SimpleNamespace(flat=[])
            key = cache["get_cache_key"](name, devices, None, CLIENT)
            executable, _ = compiler["_cache_read"]("name", key, None, CLIENT, [])
            if executable is None:
                compiled.append(name)
                if during is not None:
                    during()
                data = name.encode()
                executable = SimpleNamespace(client=CLIENT, fingerprint=data, data=data)
                compiler["_cache_write"](key, 2.0, "name", CLIENT, executable)

        self.sharing.obtain(compile_or_get_cached, CLIENT, None, ())
        return bool(compiled)


@pytest.fixture
def jax(monkeypatch: pytest.MonkeyPatch) -> Jax:
    return Jax(monkeypatch)


def test_rank_waits_for_the_rank_that_compiles(jax: Jax, tmp_path: Path) -> None:
    first, second = Rank(jax, tmp_path, 0), Rank(jax, tmp_path, 1)
    found: list[bool] = []
    waiter = threading.Thread(target=lambda: found.append(second.obtain("a")))

    def during() -> None:
        waiter.start()
        while Awaits(0) not in second.said:
            pass

    assert first.obtain("a", during)
    waiter.join()
    assert found == [False]
    assert second.said == [Awaits(0), Awaits(-1), Obtained(True, second.said[-1].seconds)]  # type: ignore[attr-defined]
    assert first.said == [Obtained(False, 2.0)]


def test_failed_compilation_lets_the_next_rank_compile(jax: Jax, tmp_path: Path) -> None:
    def during() -> None:
        raise RuntimeError("no memory")

    with pytest.raises(RuntimeError):
        Rank(jax, tmp_path, 0).obtain("a", during)
    assert Rank(jax, tmp_path, 1).obtain("a")


def test_damaged_program_is_compiled_and_written_again(jax: Jax, tmp_path: Path) -> None:
    (tmp_path / "mcjax-a-cache").write_bytes(b"\x01bad")
    assert Rank(jax, tmp_path, 0).obtain("a")
    assert (tmp_path / "mcjax-a-cache").read_bytes() == b"\x02a"
    assert not Rank(jax, tmp_path, 1).obtain("a")


def test_full_disk_has_every_rank_compile(
    jax: Jax, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put(cache: Cache, key: str, value: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Cache, "put", put)
    assert Rank(jax, tmp_path, 0).obtain("a") and Rank(jax, tmp_path, 1).obtain("a")


@pytest.mark.parametrize(
    ("mode", "platform", "shares"),
    [
        ("auto", "cpu", True),
        ("on", "cpu", True),
        ("auto", "cuda", False),
        ("on", "cuda", True),
        ("auto", "tpu", False),
        ("on", "tpu", True),
    ],
)
def test_programs_of_accelerators_are_shared_only_on_request(
    jax: Jax, tmp_path: Path, mode: str, platform: str, *, shares: bool
) -> None:
    rank = Rank(jax, tmp_path, 0, mode=mode)
    options = SimpleNamespace(env_option_overrides=[])
    backend = SimpleNamespace(platform=platform)
    seen = rank.sharing.obtain(lambda: jax.cache.is_cache_used(backend), backend, options, ())
    assert seen == shares
    assert bool(options.env_option_overrides) == (shares and platform == "cuda")


def test_program_for_another_ranks_device_is_not_serialised(
    jax: Jax, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank = Rank(jax, tmp_path, 0)
    monkeypatch.setattr(Client, "serialize_executable", Client.serialize_executable)  # is replaced
    (tmp_path / "mcjax-a-cache").write_bytes(b"\x01a")
    for devices, is_own in ([], True), ([SimpleNamespace(process_index=1)], False):
        executable, _ = rank.sharing._load("mcjax-a", None, CLIENT, devices)
        if is_own:
            with pytest.raises(ValueError, match="another rank has compiled this program"):
                CLIENT.serialize_executable(executable)
        else:
            assert CLIENT.serialize_executable(executable) == b"a"


@pytest.mark.parametrize(("own", "used"), [(None, True), ("/programs", False)])
def test_folder_becomes_that_of_jax_unless_the_program_has_its_own(
    jax: Jax, tmp_path: Path, own: str | None, *, used: bool
) -> None:
    jax.option.value = own
    link: Any = SimpleNamespace(is_below=False)
    Sharing(link, {}, json.dumps(["auto", str(tmp_path), "/kept", 0]))
    assert (jax.updated.get("jax_compilation_cache_dir") == "/kept") == used


def test_size_without_its_package_is_told(
    jax: Jax, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    said: list[HookMessage] = []
    link: Any = SimpleNamespace(is_below=False, send=said.append)
    Sharing(link, {}, json.dumps(["auto", str(tmp_path), "/kept", 5]))
    assert said == [CannotLimit()]
    assert not jax.updated


def test_programs_that_jax_shares_are_left_to_it(jax: Jax, tmp_path: Path) -> None:
    jax.jax_shares.value = True
    assert [Rank(jax, tmp_path, number).obtain("a") for number in range(2)] == [True, True]
    jax.jax_shares.value = False
    assert [Rank(jax, tmp_path, number).obtain("a") for number in range(2)] == [True, False]
