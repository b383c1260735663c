"""A program that a rank loads: when it compiles all the same, and what it serialises then."""

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from mcjax_launch.features.compile_once import hook
from mcjax_launch.features.compile_once.hook import key as keys
from mcjax_launch.features.compile_once.hook.origins import Origins
from mcjax_launch.features.compile_once.hook.store import Executable, Store
from mcjax_launch.wire import hook_environ


class Client:
    """A backend whose programs are their own serialisations."""

    platform = "cpu"
    is_broken = False

    def deserialize_executable(self, data: bytes, devices: Any, options: Any) -> Any:
        if self.is_broken:
            raise RuntimeError("another version")
        return SimpleNamespace(client=self, fingerprint=data, data=data)

    def serialize_executable(self, executable: Any) -> bytes:
        return bytes(executable.data)

    def process_index(self) -> int:
        return 0


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> hook.CompileOnce:
    monkeypatch.setattr(hook, "make_program_key", lambda backend, module, *more: module)
    jax_config = ModuleType("jax._src.config")  # of a jax without a cache
    monkeypatch.setitem(sys.modules, "jax._src.config", jax_config)
    return make_source(tmp_path, "auto")


def make_source(private: Path, mode: str) -> hook.CompileOnce:
    variable = hook_environ.get_feature_variable("compile_once")
    environ = {variable: json.dumps([mode, str(private), "", 0]), "JAX_PROCESS_ID": "0"}
    return hook.CompileOnce(SimpleNamespace(is_below=True), environ)  # type: ignore[arg-type]


def obtain(source: hook.CompileOnce, client: Client, name: str) -> bool:
    """Obtain a program; return whether it was compiled."""
    compiled: list[str] = []

    def compile_(backend: Any, module: str, *more: Any) -> Any:
        compiled.append(module)
        return client.deserialize_executable(module.encode(), (), None)

    source.obtain(compile_, (client, name, [], None))
    return bool(compiled)


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
    source: hook.CompileOnce, tmp_path: Path, mode: str, platform: str, *, shares: bool
) -> None:
    asked = make_source(tmp_path, mode)
    options = SimpleNamespace(env_option_overrides=[])
    backend: Any = SimpleNamespace(platform=platform)
    assert (asked._make_key(backend, "module", [], options) == "module") == shares
    assert bool(options.env_option_overrides) == (shares and platform == "cuda")


def test_only_failures_in_a_row_end_the_loading(
    source: hook.CompileOnce, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client()
    real = client.deserialize_executable

    def load(name: str, *, fails: bool) -> bool:
        is_first = iter([fails])  # the second call makes what is compiled

        def deserialize(*args: Any) -> Any:
            if next(is_first, False):
                raise RuntimeError("another version")
            return real(*args)

        monkeypatch.setattr(client, "deserialize_executable", deserialize)
        return obtain(source, client, name)

    assert load("a", fails=False) and not load("a", fails=False)
    for _ in range(2):
        assert [load("a", fails=True), load("a", fails=True)] == [True, True]
        assert not load("a", fails=False)
    assert [load("a", fails=True) for _ in range(3)] == [True] * 3
    assert load("a", fails=False)  # this version of JAX seems to load nothing


def test_program_for_another_ranks_device_is_not_serialised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Patched(Client):
        """What is patched is patched in the class: this one is not that of other tests."""

        def serialize_executable(self, executable: Any) -> bytes:
            return bytes(executable.data)

    store, client = Store(str(tmp_path), 1 << 20), Patched()
    assert store.write("a", Executable(b"kept", 1.0))
    loaded = client.deserialize_executable(b"a", (), None)
    origins = Origins()
    monkeypatch.delitem(sys.modules, keys._SERIALIZING, raising=False)
    origins.record(loaded, store, "a", is_local=True)
    monkeypatch.setitem(sys.modules, keys._SERIALIZING, ModuleType("imported too late"))
    with pytest.raises(ValueError, match="another rank has compiled this program"):
        client.serialize_executable(loaded)
    origins.record(loaded, store, "a", is_local=True)  # compiled for this rank's own devices
    assert client.serialize_executable(loaded) == b"kept"
    origins.forget(loaded)
    assert client.serialize_executable(loaded) == b"a"
