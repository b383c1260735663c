"""What the hook fills in for jax.distributed.initialize()."""

import sys
from collections.abc import Callable
from inspect import Parameter, Signature
from types import SimpleNamespace

import pytest

from mcjax_launch.hook import initialize as hook

pytestmark = pytest.mark.every_jax

ADDRESS = "127.0.0.1:5000"
ENVIRON = {
    "JAX_COORDINATOR_ADDRESS": ADDRESS,
    "JAX_NUM_PROCESSES": "4",
    "JAX_PROCESS_ID": "2",
    "MCJAX_HOOK_BIND": ADDRESS,
}
COMMON = WHERE, COUNT, ID = "coordinator_address", "num_processes", "process_id"
METHOD, BIND = "cluster_detection_method", "coordinator_bind_address"
BEAT, SHUTDOWN = "heartbeat_timeout_seconds", "shutdown_timeout_seconds"
JOIN = "initialization_timeout"
NEW = ("local_device_ids", METHOD, JOIN, SHUTDOWN, BIND)
SLICE, PARTITION = "slice_index", "partition_index"  # as in jax 0.6, and newer


def taking(*names: str) -> Callable[..., None]:
    """The initialize() of a jax that knows these arguments beside the common ones."""

    def initialize(*args: object, **keywords: object) -> None: ...

    kind, default = Parameter.POSITIONAL_OR_KEYWORD, {BEAT: 100}
    parameters = [Parameter(name, kind, default=default.get(name)) for name in (*COMMON, *names)]
    initialize.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return initialize


def test_missing_arguments_are_filled_in() -> None:
    common = {WHERE: ADDRESS, COUNT: 4, ID: 2}
    assert hook.fill_in(taking(), {}, ENVIRON) == common
    more = {METHOD: "deactivate", BIND: ADDRESS, SHUTDOWN: 7 * 24 * 3600}
    assert hook.fill_in(taking(*NEW), {}, ENVIRON) == common | more


SLICES = {"MCJAX_HOOK_SLICES": "0,2"}
SURVIVES = {"MCJAX_HOOK_SURVIVES": "1"}
PRIVATE = {"MCJAX_HOOK_COORDINATOR": "/private/coord"}
FAR = {"JAX_COORDINATOR_ADDRESS": "10.0.0.1:5000", "MCJAX_HOOK_BIND": "10.0.0.1:5000"}
BOUND = {"JAX_COORDINATOR_BIND_ADDRESS": "0.0.0.0:1"}
# What this jax knows, what the program gives, more variables, and what becomes of some arguments.
CALLS: dict[str, tuple[tuple[str, ...], dict[str, object], dict[str, str], dict[str, object]]] = {
    "own address": (NEW, {WHERE: "far:1", COUNT: 8}, {}, {COUNT: 8, BIND: None}),
    "own number": (NEW, {ID: 7}, {}, {ID: 7, BIND: ADDRESS}),
    "own timeout": (NEW, {SHUTDOWN: 5}, {}, {SHUTDOWN: 5}),
    "local address, other number": (
        NEW,
        {WHERE: "localhost:1", ID: 3},
        {},
        {WHERE: "localhost:1", BIND: "localhost:1"},
    ),
    "local address, other count": (
        NEW,
        {WHERE: "[::1]:1", COUNT: 2},
        {},
        {WHERE: "[::1]:1", BIND: "[::1]:1"},
    ),
    "local address beside --coordinator": (
        NEW,
        {WHERE: "localhost:1"},
        {},
        {WHERE: "localhost:1", BIND: "localhost:1"},
    ),
    "placeholder": (NEW, {WHERE: "localhost:1"}, PRIVATE, {WHERE: ADDRESS, BIND: ADDRESS}),
    "placeholder, v6": (
        NEW,
        {WHERE: "[::1]:1", COUNT: 4, ID: 2},
        PRIVATE,
        {WHERE: ADDRESS, BIND: ADDRESS},
    ),
    "placeholder, bound": (
        NEW,
        {WHERE: "127.0.0.1:1", BIND: "0.0.0.0:1"},
        PRIVATE,
        {WHERE: ADDRESS, BIND: ADDRESS},
    ),
    "placeholder, bound by a variable": (
        NEW,
        {WHERE: "localhost:1"},
        PRIVATE | BOUND,
        {WHERE: ADDRESS, BIND: ADDRESS},
    ),
    "placeholder in a variable": (
        NEW,
        {},
        PRIVATE | {"JAX_COORDINATOR_ADDRESS": "localhost:1"},
        {WHERE: ADDRESS},
    ),
    "placeholder over hosts": (
        NEW,
        {WHERE: "localhost:1"},
        FAR,
        {WHERE: "10.0.0.1:5000", BIND: "10.0.0.1:5000"},
    ),
    "placeholder, another launcher has rank 0": (
        NEW,
        {WHERE: "localhost:1"},
        FAR | {"MCJAX_HOOK_BIND": ""},
        {WHERE: "10.0.0.1:5000", BIND: None},
    ),
    "bound by a variable": (NEW, {}, BOUND, {BIND: None}),
    "slices": ((SLICE, PARTITION), {}, SLICES, {PARTITION: 1, SLICE: None}),
    "slices, jax 0.6": ((SLICE,), {}, SLICES, {SLICE: 1}),
    "slices, own number": ((SLICE,), {ID: 1}, SLICES, {SLICE: 0}),
    "slices, older jax": ((), {}, SLICES, {SLICE: None}),
    "no slices": ((SLICE, PARTITION), {}, {}, {PARTITION: None}),
    "own slice": ((SLICE, PARTITION), {SLICE: 5}, SLICES, {SLICE: 5, PARTITION: None}),
    "heartbeat": ((BEAT,), {}, SURVIVES, {BEAT: 10}),
    "JAX's heartbeat": ((BEAT,), {}, {}, {BEAT: None}),
    "own heartbeat": ((BEAT,), {BEAT: 7}, SURVIVES, {BEAT: 7}),
    "start timeout": (NEW, {}, {"MCJAX_HOOK_JOIN_TIMEOUT": "1.9"}, {JOIN: 1}),
    "short start timeout": (NEW, {}, {"MCJAX_HOOK_JOIN_TIMEOUT": "0.5"}, {JOIN: 1}),
}


@pytest.mark.parametrize("name", CALLS)
def test_explicit_arguments_take_precedence(name: str) -> None:
    known, given, variables, expected = CALLS[name]
    filled = hook.fill_in(taking(*known), given, ENVIRON | variables)
    assert {argument: filled.get(argument) for argument in expected} == expected


def test_own_partition_in_a_variable_takes_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_PARTITION_INDEX", "7")
    assert PARTITION not in hook.fill_in(taking(PARTITION), {}, ENVIRON | SLICES)


@pytest.mark.parametrize(
    ("version", "filled"),
    [("0.4.35", False), ("0.6.0", True), ("0.12.0.1", True), ("0.10.0.dev2", True), ("", True)],
)
def test_only_a_detection_method_known_to_this_jax_is_filled_in(
    monkeypatch: pytest.MonkeyPatch, version: str, filled: bool
) -> None:
    monkeypatch.setitem(sys.modules, "jax.version", SimpleNamespace(__version__=version))
    assert (METHOD in hook.fill_in(taking(*NEW), {}, ENVIRON)) is filled


@pytest.mark.parametrize("address", ["localhost:port", "localhost:", ":", "", "a:b:c"])
def test_invalid_address_is_passed_to_jax(address: str) -> None:
    assert hook.fill_in(taking(*NEW), {WHERE: address, COUNT: 4, ID: 1}, ENVIRON)[WHERE] == address
