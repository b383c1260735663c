"""What the hook fills in for jax.distributed.initialize()."""

import sys
from collections.abc import Callable
from inspect import Parameter, Signature
from types import SimpleNamespace

import pytest

from mcjax_launch.kernel.hook import initialize as hook

ENVIRON = {
    "JAX_COORDINATOR_ADDRESS": "127.0.0.1:5000",
    "JAX_NUM_PROCESSES": "4",
    "JAX_PROCESS_ID": "2",
    "MCJAX_HOOK_BIND": "127.0.0.1:5000",
}


COMMON = ("coordinator_address", "num_processes", "process_id")


def taking(*names: str) -> Callable[..., None]:
    """The initialize() of a jax that knows these arguments beside the common ones."""

    def initialize(*args: object, **keywords: object) -> None: ...

    kind, default = Parameter.POSITIONAL_OR_KEYWORD, {"heartbeat_timeout_seconds": 100}
    parameters = [Parameter(name, kind, default=default.get(name)) for name in (*COMMON, *names)]
    initialize.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return initialize


old_jax = taking()
new_jax = taking(
    *("local_device_ids", "cluster_detection_method", "initialization_timeout"),
    *("shutdown_timeout_seconds", "coordinator_bind_address"),
)
jax_with_slices = taking("slice_index")  # as 0.6
jax_with_partitions = taking("slice_index", "partition_index")


def test_missing_arguments_are_filled_in() -> None:
    assert hook.fill_in(new_jax, (), {}, ENVIRON) == {
        "coordinator_address": "127.0.0.1:5000",
        "num_processes": 4,
        "process_id": 2,
        "cluster_detection_method": "deactivate",
        "coordinator_bind_address": "127.0.0.1:5000",
        "shutdown_timeout_seconds": 7 * 24 * 3600,
    }


def test_only_arguments_known_to_this_jax_are_filled_in() -> None:
    filled = hook.fill_in(old_jax, (), {}, ENVIRON)
    assert set(filled) == {"coordinator_address", "num_processes", "process_id"}


@pytest.mark.parametrize(
    ("version", "filled"),
    [("0.4.35", False), ("0.6.0", True), ("0.12.0.1", True), ("0.10.0.dev2", True), ("", True)],
)
def test_only_a_detection_method_known_to_this_jax_is_filled_in(
    monkeypatch: pytest.MonkeyPatch, version: str, filled: bool
) -> None:
    monkeypatch.setitem(sys.modules, "jax.version", SimpleNamespace(__version__=version))
    given = hook.fill_in(new_jax, (), {}, ENVIRON)
    assert ("cluster_detection_method" in given) is filled


def test_explicit_arguments_take_precedence() -> None:
    filled = hook.fill_in(
        new_jax, ("far:1", 8), {"process_id": 7, "shutdown_timeout_seconds": 5}, ENVIRON
    )
    assert filled["coordinator_address"] == "far:1"
    assert (filled["num_processes"], filled["process_id"]) == (8, 7)
    assert filled["shutdown_timeout_seconds"] == 5
    assert "coordinator_bind_address" not in filled


def test_a_local_address_of_the_programs_own_is_bound_locally() -> None:
    filled = hook.fill_in(new_jax, ("localhost:10000", 4, 1), {}, ENVIRON)
    assert filled["coordinator_bind_address"] == "localhost:10000"
    filled = hook.fill_in(new_jax, ("[::1]:10000", 4, 1), {}, ENVIRON)
    assert filled["coordinator_bind_address"] == "[::1]:10000"


@pytest.mark.parametrize("address", ["localhost:port", "localhost:", ":", "", "a:b:c"])
def test_invalid_address_is_passed_to_jax(address: str) -> None:
    assert hook.fill_in(new_jax, (address, 4, 1), {}, ENVIRON)["coordinator_address"] == address


def test_explicit_bind_address_takes_precedence() -> None:
    environ = {**ENVIRON, "JAX_COORDINATOR_BIND_ADDRESS": "0.0.0.0:5000"}
    assert "coordinator_bind_address" not in hook.fill_in(new_jax, (), {}, environ)


SLICES = {**ENVIRON, "MCJAX_HOOK_SLICES": "0,2"}


def test_requested_slices_are_filled_in() -> None:
    filled = hook.fill_in(jax_with_partitions, (), {}, SLICES)
    assert (filled["partition_index"], "slice_index" in filled) == (1, False)
    assert hook.fill_in(jax_with_slices, (), {}, SLICES)["slice_index"] == 1
    assert hook.fill_in(jax_with_slices, (), {"process_id": 1}, SLICES)["slice_index"] == 0
    assert "slice_index" not in hook.fill_in(old_jax, (), {}, SLICES)
    assert "partition_index" not in hook.fill_in(jax_with_partitions, (), {}, ENVIRON)


def test_own_partition_of_the_program_takes_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    filled = hook.fill_in(jax_with_partitions, (), {"slice_index": 5}, SLICES)
    assert "partition_index" not in filled
    monkeypatch.setenv("JAX_PARTITION_INDEX", "7")
    assert "partition_index" not in hook.fill_in(jax_with_partitions, (), {}, SLICES)


@pytest.mark.parametrize(
    ("survives", "given", "seconds"), [("1", None, 10), ("", None, None), ("1", 7, 7)]
)
def test_surviving_ranks_get_a_short_heartbeat(
    survives: str, given: int | None, seconds: int | None
) -> None:
    environ = {**ENVIRON, "MCJAX_HOOK_SURVIVES": survives}
    keywords = {} if given is None else {"heartbeat_timeout_seconds": given}
    filled = hook.fill_in(taking("heartbeat_timeout_seconds"), (), keywords, environ)
    assert filled.get("heartbeat_timeout_seconds") == seconds


@pytest.mark.parametrize(("given", "seconds"), [("40.0", 40), ("1.9", 1), ("0.5", 1)])
def test_the_start_timeout_is_passed_to_jax_in_whole_seconds(given: str, seconds: int) -> None:
    environ = {**ENVIRON, "MCJAX_HOOK_JOIN_TIMEOUT": given}
    assert hook.fill_in(new_jax, (), {}, environ)["initialization_timeout"] == seconds
