"""Digests of arrays that several processes hold: arguments and outputs of programs that span them.

Nothing waits: a digest is enqueued when an array has been made, and read at a later launch, once
it is computed. No array is kept: only the digests are.
"""

from __future__ import annotations

import atexit
import math
import os
import threading
import time
from binascii import b2a_base64
from collections import deque

from ....wire.value import Value
from ..messages import ComputedDigests, Digests, NotComparing, ReplicatedPart, ReplicatedParts
from .digests import compile_digests, get_type

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from ....hook.agent_link import AgentLink
    from .sequences import Sequence as Sequence_

#: Launches of a program whose outputs are all compared.
FIRST = 20
# Later ones are at least so many seconds apart, and so many times as long as all comparisons take.
_EVERY_S, _TIMES = 1.0, 100
# Bytes of which a device computes the digest in a second, at least: a CPU's core, other devices.
_BYTES_PER_S = {"cpu": 1e9, "": 3e11}
# While so many digests are not computed yet, no other ones are begun: a CPU device accepts 32
# programs that wait, and with JAX before 0.9 ranks hang when it has more.
_MOST_PENDING = 4
# Characters of the reason why values are not compared.
_MOST_REASON = 200
# Seconds to wait for digests when the program ends.
_LAST_S = 1.0


class _Pick(Value):
    """Part of an array that this process holds, as others do.

    Args:
        index: number of the array.
        shard: number of the shard among those of this process.
        part: the part, such as `[0:4, :]`; "" for the whole array.

    """

    index: int
    shard: int
    part: str


class ValuePlan:
    """Replicated ones of the arrays that are a program's arguments or outputs.

    Args:
        arrays: the arrays.
        make: function that returns the executable for the digests of shards on a device.

    Attributes:
        picks: the parts that are compared, in the order of their digests.

    """

    def __init__(self, arrays: Sequence[Any], make: Callable[[Any, Any], Any]) -> None:
        picks = list(_pick(arrays))
        by_device: dict[Any, list[tuple[_Pick, Any]]] = {}
        for pick in picks:
            shard = _get_shard(arrays, pick)
            [device] = shard.devices()
            by_device.setdefault(device, []).append((pick, shard))
        self.picks = [pick for group in by_device.values() for pick, _ in group]
        self._groups = []
        self.cost_s = 0.0  # of the computation, about
        for device, group in by_device.items():
            specs = tuple((shard.shape, get_type(shard.dtype)) for _, shard in group)
            self._groups.append((make(specs, device), [pick for pick, _ in group]))
            per_s = _BYTES_PER_S.get(device.platform, _BYTES_PER_S[""])
            self.cost_s += sum(shard.nbytes for _, shard in group) / per_s

    def start(self, arrays: Sequence[Any]) -> list[Any]:
        """Enqueue the computation of the digests; return the arrays that will hold them."""
        found = []
        for executable, picks in self._groups:
            results = executable.execute_sharded([_get_shard(arrays, pick) for pick in picks])
            found.append(results.disassemble_into_single_device_arrays()[0][0])
        return found


def _pick(arrays: Sequence[Any]) -> Iterator[_Pick]:
    """Yield the parts of arrays that this process and others hold."""
    for index, array in enumerate(arrays):
        array = getattr(array, "_base_array", array)  # of a key
        sharding = getattr(array, "sharding", None)
        if sharding is None or sharding.is_fully_addressable or not array.size:
            continue
        kind = sharding.memory_kind
        if kind not in (None, _get_default_memory(sharding)) or array.is_deleted():
            continue
        for shard, part in _list_shared(array, sharding):
            yield _Pick(index, shard, part)


def _get_default_memory(sharding: Any) -> str:
    return str(next(iter(sharding.addressable_devices)).default_memory().kind)


def _list_shared(array: Any, sharding: Any) -> list[tuple[int, str]]:
    """Return each part that this process and others hold: its first shard here, and the part."""
    if sharding.is_fully_replicated:
        return [(0, "")]
    size = math.prod(sharding.shard_shape(array.shape))
    if size * len(sharding.device_set) == array.size:
        return []  # each device has a part of its own
    places = {next(iter(shard.devices())): n for n, shard in enumerate(array._arrays)}
    owners: dict[str, set[int]] = {}
    first: dict[str, int] = {}
    for device, slices in sharding.devices_indices_map(array.shape).items():
        part = _format_part(slices)
        owners.setdefault(part, set()).add(device.process_index)
        if device in places:
            first.setdefault(part, places[device])
    return [(place, part) for part, place in first.items() if len(owners[part]) > 1]


def _format_part(slices: Sequence[slice]) -> str:
    bounds = ("" if each == slice(None) else (each.start or 0, each.stop) for each in slices)
    return f"[{', '.join(':'.join(map(str, each)) or ':' for each in bounds)}]"


def _get_shard(arrays: Sequence[Any], pick: _Pick) -> Any:
    array = arrays[pick.index]
    return getattr(array, "_base_array", array)._arrays[pick.shard]


class _Pending(Value):
    """Digests that are being computed."""

    digests: Any
    key: int
    number: int
    identity: int
    of_arguments: bool


class Replicas:
    """Reporter of digests of what this process has in common with others.

    Args:
        link: the link to the agent.
        list_leaves: JAX's `tree_leaves`.

    Attributes:
        pending: digests that are not read yet; see `collect`.
        programs: number of programs that have replicated outputs.

    """

    def __init__(self, link: AgentLink, list_leaves: Callable[[Any], list[Any]]) -> None:
        self.pending: deque[_Pending] = deque()
        self._link = link
        self.list_leaves = list_leaves
        self._entrance = threading.Lock()
        self._executables: dict[Any, Any] = {}
        self.programs = 0
        self._processor = ""
        atexit.register(self._finish)

    def collect(self) -> None:
        """Report digests that have been computed."""
        pending = self.pending
        if not self._entrance.acquire(False):
            return
        try:
            while pending and all(each.is_ready() for each in pending[0].digests):
                self._report(pending.popleft())
        finally:
            self._entrance.release()

    def _finish(self) -> None:
        """Report the last digests, unless they take too long."""
        until = time.monotonic() + _LAST_S
        try:
            self.collect()
            while self.pending and time.monotonic() < until:
                time.sleep(0.005)
                self.collect()
        except Exception:  # JAX's clients are gone
            pass

    def _report(self, done: _Pending) -> None:
        import jax
        import numpy as np

        with jax.transfer_guard_device_to_host("allow"):
            words = b"".join(np.asarray(each).astype("<u4").tobytes() for each in done.digests)
        text = b2a_base64(words, newline=False).decode()
        digests = Digests(done.key, done.number, done.identity, done.of_arguments, text)
        self._link.send(ComputedDigests(digests))

    def describe(self, program: ComparedProgram, plan: ValuePlan, *, of_arguments: bool) -> None:
        """Report of which arrays of a program there will be digests."""
        names = program.names[not of_arguments]
        parts = []
        for pick in plan.picks:
            name = names[pick.index] if pick.index < len(names) else f"[{pick.index}]"
            parts.append(ReplicatedPart(pick.index, name, pick.part))
        self._processor = self._processor or _find_processor()
        identity = program.identity
        self._link.send(ReplicatedParts(identity, of_arguments, tuple(parts), self._processor))

    def give_up(self, program: ComparedProgram, error: Exception) -> None:
        """Report that no values of a program are compared any more."""
        self._link.send(NotComparing(program.identity, repr(error)[:_MOST_REASON]))

    def get_executable(self, specs: Any, device: Any) -> Any:
        """Return the program for the digests of shards on a device; each is compiled once."""
        place = specs, device
        if place not in self._executables:
            self._executables[place] = compile_digests(specs, device)
        return self._executables[place]


class ComparedProgram:
    """Program whose arguments and outputs are compared at some launches.

    Args:
        replicas: the reporter.
        identity: the program's identity.
        names: paths of its arguments, and of its outputs.

    """

    __slots__ = (
        *("identity", "left", "names", "ran", "stride"),
        *("_compared_at", "_plan", "_replicas", "_until"),
    )

    def __init__(
        self, replicas: Replicas, identity: int, names: tuple[Sequence[str], Sequence[str]]
    ) -> None:
        self.identity = identity
        self.names = names
        self._plan: ValuePlan | None = None
        self._replicas = replicas
        self.left = self.stride = self._until = 1
        self.ran, self._compared_at = 0, 0.0

    def begin_anew(self) -> None:
        """Compare the first launches, also if there have been some."""
        self.left = self.stride = self._until = 1
        self.ran, self._compared_at = 0, 0.0

    def before_launch(self, sequence: Sequence_, execution: Any, args: Sequence[Any]) -> None:
        """Start the comparison of the arguments of the first launch, which it may consume."""
        if self._plan is not None or not sequence.key:
            return
        replicas = self._replicas
        try:
            kept = [arg for number, arg in enumerate(args) if number in execution.kept_var_idx]
            plan = ValuePlan(kept, replicas.get_executable)
            if plan.picks:
                replicas.describe(self, plan, of_arguments=True)
                self._start(sequence, plan, kept, of_arguments=True)
        except Exception as error:
            self._give_up(error)

    def on_launch(self, sequence: Sequence_, out: Any) -> None:
        """Start the comparison of the outputs, if it is time; report those that are ready."""
        self.left -= 1
        if not self.left:
            self._compare(sequence, out)
        elif self._replicas.pending:
            self._replicas.collect()

    def _compare(self, sequence: Sequence_, out: Any) -> None:
        began, replicas = time.perf_counter(), self._replicas
        try:
            replicas.collect()
            plan = self._plan
            if plan is not None and len(replicas.pending) >= _MOST_PENDING:
                self._skip()
                return
            arrays = replicas.list_leaves(out)
            if plan is None:
                plan = self._plan = ValuePlan(arrays, replicas.get_executable)
                if not plan.picks or not sequence.key:
                    return
                replicas.programs += 1
                replicas.describe(self, plan, of_arguments=False)
                began = time.perf_counter()  # the rest comes again
            self._start(sequence, plan, arrays, of_arguments=False)
            replicas.collect()
            self.choose_next(time.perf_counter() - began + plan.cost_s, replicas.programs)
        except Exception as error:
            self._give_up(error)

    def _start(
        self,
        sequence: Sequence_,
        plan: ValuePlan,
        arrays: Sequence[Any],
        *,
        of_arguments: bool,
    ) -> None:
        place = sequence.key, sequence.count + of_arguments, self.identity
        self._replicas.pending.append(_Pending(plan.start(arrays), *place, of_arguments))

    def _give_up(self, error: Exception) -> None:
        self.left = -1
        self._replicas.give_up(self, error)

    def choose_next(self, cost_s: float, programs: int) -> None:
        """Choose the launch that is compared next.

        After the first ones it is the next multiple of a power of two, which follows the time. So
        ranks whose times differ choose the same launches, or one of them every other of them.

        Args:
            cost_s: seconds that this comparison has taken.
            programs: number of programs that are compared.

        """
        now = time.monotonic()
        self.ran += self._until
        if self.ran >= FIRST:
            elapsed_s = now - self._compared_at
            wanted_s = max(_EVERY_S, _TIMES * cost_s * programs)
            if elapsed_s < wanted_s:
                self.stride *= 2
            elif elapsed_s > 4 * wanted_s and self.stride > 1:
                self.stride //= 2
        self._compared_at = now
        self.left = self._until = self.stride - self.ran % self.stride

    def _skip(self) -> None:
        """Choose the next launch because this one is not compared."""
        self.ran += self._until
        self.left = self._until = self.stride - self.ran % self.stride


def _find_processor() -> str:
    """Return what computes in this process: equal ones compute equal bits."""
    import jax

    device = jax.local_devices()[0]
    if device.platform != "cpu":
        return str(device.device_kind)
    try:
        with open("/proc/cpuinfo") as file:
            name = next(line.partition(":")[2].strip() for line in file if "model name" in line)
    except (OSError, StopIteration):
        import platform

        name = platform.machine()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {cores} cores"
