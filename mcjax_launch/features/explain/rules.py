"""Rules: each looks at a job at one moment, and yields findings, each worded once; pure.

A rule is a function below `@after(...)`, which names the facts and moments after which it is asked.
Of several findings the first counts, so rules stand in the order of precedence. Notes, limits, the
summary and the record quote the same words. A new rule is a function here, and rows of a history in
`tests/features/explain/test_unit_findings.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from mcjax_launch.features.explain.jax_messages import lost_peer
from mcjax_launch.features.explain.jax_messages.known_errors import KnownError, find_known_error
from mcjax_launch.features.explain.jax_messages.tracebacks import Traceback, find_tracebacks
from mcjax_launch.features.explain.picture import BARRIER
from mcjax_launch.features.explain.snapshots import find_crash_frame, format_place
from mcjax_launch.features.explain.victims import (
    get_failure_text,
    is_aborted_by_jax,
    ran_other_collective,
)
from mcjax_launch.features.explain.view import Moment, View
from mcjax_launch.journal.facts import Finding, GpuMemoryKnown, ProgramsDiffer
from mcjax_launch.journal.rank_run import ErrorReport, RankRun, Stage
from mcjax_launch.journal.state import RunState
from mcjax_launch.journal.words import extract_headline, shorten_line
from mcjax_launch.options import features as declared
from mcjax_launch.ranks import (
    format_all_ranks,
    format_count,
    format_ranks,
    group_by_key,
    inflect_have,
)
from mcjax_launch.wire.address import is_loopback, split_text
from mcjax_launch.wire.hook_messages import (
    GPU_PLATFORMS,
    AtBarrier,
    Backend,
    CalledBelow,
    CollectedTests,
    Compiling,
    ImportedJax,
    Joining,
    Leaving,
    NotJoined,
    ProcessNumber,
    Raised,
    UnhandledError,
)
from mcjax_launch.wire.messages import Exited, GpuUse, Leftover
from mcjax_launch.wire.source_lines import format_path, is_users, shorten_path
from mcjax_launch.wire.value import Value
from mcjax_launch.wording import format_names, format_rough_duration

HANG, LIMIT, DEATH = Moment.HANG, Moment.LIMIT, Moment.DEATH
FAILURE, END, OVER = Moment.FAILURE, Moment.END, Moment.OVER
# At most so many things of a kind are named in a line.
_MOST = 4

Find = Callable[[View], Iterable[Finding]]


class Rule(Value):
    """A rule: its function, and the classes of facts and the moments after which it is asked."""

    find: Find
    after: frozenset[type | Moment]

    @property
    def name(self) -> str:
        """Name of the rule's function."""
        return getattr(self.find, "__name__", "")


RULES: list[Rule] = []


def after(*news: type | Moment) -> Callable[[Find], Find]:
    """Make a function a rule that is asked after these facts and moments."""

    def add(find: Find) -> Find:
        RULES.append(Rule(find, frozenset(news)))
        return find

    return add


def list_facts() -> frozenset[type | Moment]:
    """Return the classes of facts, and the moments, after which rules are asked."""
    return frozenset().union(*(rule.after for rule in RULES))


def apply_rules(view: View, *news: type | Moment) -> Iterator[Finding]:
    """Ask the rules that depend on new facts or a moment; yield findings by precedence.

    A rule that raises is recorded in the state's `failed_hints`, and skipped.
    """
    for rule in RULES:
        if rule.after.isdisjoint(news):
            continue
        try:
            yield from rule.find(view)
        except Exception as error:  # a bug in a rule must not cost the summary
            failed = f"the rule {rule.name} failed: {error!r}; please report this"
            if failed not in view.state.failed_hints:
                view.state.failed_hints.append(failed)


def explain_limit(state: RunState, now: float) -> Sequence[str]:
    """Return the words of all findings for a job that has reached a limit, with advice.

    Args:
        state: state of the run.
        now: current time, in time.monotonic's seconds.

    """
    from mcjax_launch.features.explain.importing import describe_imports

    view = View(state, now, is_last=True)
    return [*describe_imports(state, now), *format_lines(apply_rules(view, LIMIT))]


def format_lines(found: Iterable[Finding]) -> Sequence[str]:
    """Return the words of each finding as a line, followed by its cure as a line `hint: ...`."""
    return [line for finding in found for line in (finding.words, finding.hint) if line]


# --- calls of initialize() that can never return ---

_OWN_ARGUMENTS = (
    "write jax.distributed.initialize() without arguments: it gets them from the launcher"
)
_WAITS_FOR_MORE = "which waits for the rest of them (--start-timeout ends such a wait)"


@after(DEATH)
def second_process(view: View) -> Iterator[Finding]:
    """Find a rank that called initialize() in two processes, for which JAX ends the job."""
    for run in view.runs:
        where = run.membership.second_process
        if where is not None:
            at = f", at {where}" if where else ""
            yield Finding(
                f"{view.format_ranks([run.process_id])} called initialize() in a second process "
                f"too{at}: put the code that starts processes under "
                "`if __name__ == '__main__':`",
                (run.process_id,),
            )
            return


@after(Joining)
def impossible_call(view: View) -> Iterator[Finding]:
    """Find arguments of initialize() with which no rank's call can ever return."""
    found = (
        next(filter(None, (_find_impossible_call(view, run) for run in view.joining)), None)
        or _find_same_port(view)
        or _find_contradiction(view)
    )
    if found is not None:
        yield found.copy_with(cure=_find_cure(view), is_certain=True)


@after(LIMIT, DEATH)
def wrong_call(view: View) -> Iterator[Finding]:
    """Find a call of initialize() whose arguments contradict other ranks' calls or the job."""
    if not view.joining and view.first is None:
        return
    if view.first is not None and not view.failed_joining:
        return
    runs = [run for run, _ in view.calls]
    others = (run for run in runs if _is_other_size(view, run))
    found = (
        _find_same_process_id(view, runs)
        or _find_difference(view, runs, "coordinator_address")
        or _find_difference(view, runs, "num_processes")
        or next((_make_size_finding(view, run) for run in others), None)
    )
    if found is not None:
        yield found.copy_with(cure=_find_cure(view))


@after(Joining, LIMIT, DEATH)
def wrong_address(view: View) -> Iterator[Finding]:
    """Find a call as process 0 whose coordinator_address is not an address of its machine."""
    if view.first is not None and not view.failed_joining:
        return
    for run, call in view.calls:
        if call.elsewhere:
            address = f"coordinator_address={call.coordinator_address}"
            yield _make_call_finding(
                view, run, f"{address}, which is not an address of its machine"
            )
            return


@after(Joining)
def oversized_call(view: View) -> Iterator[Finding]:
    """Find a rank that waits in initialize() with a num_processes above the job's."""
    for run in view.joining:
        if (_get_call(run).num_processes or 0) > view.state.num_processes:
            found = _make_size_finding(view, run)
            yield found.copy_with(words=f"{found.words}, {_WAITS_FOR_MORE}")
            return


@after(Joining)
def replaced_handler(view: View) -> Iterator[Finding]:
    """Find that JAX replaces the program's handler of SIGTERM, so that a save never happens."""
    if where := next((call.term_handler for _, call in view.calls if call.term_handler), ""):
        yield Finding(
            f"jax.distributed.initialize() replaces the program's SIGTERM handler ({where}) by "
            "JAX's, so the program's is never called; set it after initialize()"
        )


def _find_cure(view: View) -> str:
    """Return the advice to pass a rank's own coordinates."""
    command = view.state.suggest()
    return f"{_OWN_ARGUMENTS}; or run {command}" if command else _OWN_ARGUMENTS


def _get_call(run: RankRun) -> Joining:
    assert run.membership.call is not None
    return run.membership.call


def _make_call_finding(view: View, run: RankRun, arguments: str) -> Finding:
    where = _get_call(run).where
    called = f"called initialize(){f' at {where}' if where else ''} with {arguments}"
    return Finding(f"{view.format_ranks([run.process_id])} {called}", (run.process_id,))


def _find_impossible_call(view: View, run: RankRun) -> Finding | None:
    """Return a finding on a call that can never return, whatever other ranks do; else None."""
    call, of_job = _get_call(run), view.state.num_processes
    size, process = call.num_processes, call.process_id
    if size is None:
        return None
    outside = process is not None and not 0 <= process < size
    # At an address of the program's own, processes may take part that are not this launcher's.
    ours = _is_local(call) or call.coordinator_address == view.state.coordinator
    if size != of_job and (outside or (size > of_job and ours)):
        return _make_size_finding(view, run, f"process_id={process} and " if outside else "")
    if outside:
        words = f"process_id={process}, which is not one of 0 to {size - 1}"
        return _make_call_finding(view, run, words)
    return None


def _is_local(call: Joining) -> bool:
    return is_loopback(split_text(call.coordinator_address)[0])


def _is_other_size(view: View, run: RankRun) -> bool:
    return _get_call(run).num_processes != view.state.num_processes


def _make_size_finding(view: View, run: RankRun, also: str = "") -> Finding:
    size, of_job = _get_call(run).num_processes, view.state.num_processes
    return _make_call_finding(view, run, f"{also}num_processes={size}, but the job has {of_job}")


def _find_same_port(view: View) -> Finding | None:
    """Return a finding on calls for one process each with the same port; JAX aborts one of them.

    The rank to blame is the last to have called. None if there are no such calls.
    """
    alone = (
        (run, call)
        for run, call in view.calls
        if call.num_processes == 1 and not run.is_gone
        if not run.membership.left and run.membership.refused is None
    )
    ports = group_by_key(((run.host, call.coordinator_address), run) for run, call in alone)
    taken = next((runs for runs in ports.values() if len(runs) > 1), None)
    if taken is None:
        return None
    calls = ((run.membership.joining_at or 0.0, run.process_id) for run in taken)
    _, latest = max(calls)
    return _make_size_finding(view, view.state.ranks[latest])


def _find_contradiction(view: View) -> Finding | None:
    """Return a finding on calls at one address that contradict each other.

    Either two have the same process_id, or their num_processes differ. None if neither holds.
    """
    waiting = ((_get_call(run), run) for run in view.joining)
    places = group_by_key(
        ((call.coordinator_address, run.host if _is_local(call) else ""), run)
        for call, run in waiting
        if call.num_processes is not None
    )
    for runs in places.values():
        several = [run for run in runs if _get_call(run).num_processes != 1]
        if (found := _find_same_process_id(view, several)) is not None:
            return found
        if len({_get_call(run).num_processes for run in runs}) > 1:
            return _make_size_finding(view, next(run for run in runs if _is_other_size(view, run)))
    return None


def _find_same_process_id(view: View, runs: Sequence[RankRun]) -> Finding | None:
    """Return a finding on two calls with the same process_id; None if there are none.

    The rank to blame is the one whose rank number is not the process_id.
    """
    seen: dict[int, RankRun] = {}
    for second in runs:
        process = _get_call(second).process_id
        first = second if process is None else seen.setdefault(process, second)
        if first is not second:
            other, run = (second, first) if process == second.process_id else (first, second)
            own = f"; its own is {run.process_id}" if process != run.process_id else ""
            same = f"the same as rank {other.process_id}"
            return _make_call_finding(view, run, f"process_id={process}, {same}{own}")
    return None


def _find_difference(view: View, runs: Sequence[RankRun], argument: str) -> Finding | None:
    values = [getattr(_get_call(run), argument) for run in runs]
    usual = Counter(values).most_common(1)[0][0] if values else None
    for run, value in zip(runs, values, strict=True):
        if value != usual:
            words = f"{argument}={value}, where the others have {usual}"
            return _make_call_finding(view, run, words)
    return None


# --- ranks that never call initialize() ---

_ALL_OR_NONE = (
    "either all ranks call initialize() or none: did this rank take another branch, or did its "
    "shell hide a failure?"
)


@after(Joining, NotJoined, Exited)
def ended_without(view: View) -> Iterator[Finding]:
    """Find ranks that exited with 0 without joining while other ranks wait in initialize().

    The finding is certain if all ranks that still run wait there.
    """
    gone = [run for run in view.runs if run.never_joined]
    if not gone or not view.waiting:
        return
    first, ranks = gone[0], tuple(run.process_id for run in gone)
    waiting = [run.process_id for run in view.waiting]
    is_certain = len(waiting) == len(view.state.running)
    them = "it" if len(gone) == 1 else "them"
    wait = f"others wait for {them}; the job ends when all of them do"
    if is_certain:
        wait = f"{format_ranks(waiting)} {'wait' if len(waiting) > 1 else 'waits'} for {them}"
    refused, call = first.membership.refused, first.membership.call
    did, cure = "without calling initialize()", _ALL_OR_NONE
    if refused is not None:
        at = f" at {call.where}" if call is not None and call.where else ""
        did = "after its call of initialize() had failed"
        cure = f"initialize(){at} failed {_explain_refusal(refused)}"
    words = f"{view.format_ranks(ranks)} exited with 0 {did}, but {wait}"
    yield Finding(words, ranks, cure=cure, is_certain=is_certain)


@after(DEATH)
def never_called(view: View) -> Iterator[Finding]:
    """Find a rank whose missing call made other ranks' initialize() time out."""
    absent = [run for run in view.runs if not run.membership.has_called]
    if not absent or not view.failed_joining:
        return
    first = min(absent, key=lambda run: (run.status is None, run.order))
    others = [run.process_id for run in absent if run is not first]
    if (refused := first.membership.refused) is not None:
        did = "went on alone, but the others waited for it: initialize() failed"
        words = f"{view.format_ranks([first.process_id])} {did} {_explain_refusal(refused)}"
        yield Finding(words, (first.process_id,))
        return
    ranks = (first.process_id, *others)
    how = "and exited with 0" if first.never_joined else "while the others waited for it"
    words = f"{view.format_statement(ranks, 'never called initialize()')}, {how}"
    yield Finding(words, ranks)


# --- versions and settings that must be the same in all ranks ---


@after(Joining, LIMIT, DEATH)
def other_version(view: View) -> Iterator[Finding]:
    """Find a rank whose jax or jaxlib is not that of most ranks, when all have called."""
    if not view.all_have_called:
        return
    for package in ("jax", "jaxlib"):
        versions = [(getattr(call, package), run.process_id) for run, call in view.calls]
        groups = group_by_key(
            (f"{package} {version}", rank) for version, rank in versions if version
        )
        found = _find_odd_ranks(view, groups, lambda has, other: (has, other.partition(" ")[2]))
        if found is not None:
            yield found
            return


@after(Joining, LIMIT, FAILURE)
def other_setting(view: View) -> Iterator[Finding]:
    """Find a rank with another JAX_PLATFORMS, JAX_ENABLE_X64 or XLA_FLAGS than most.

    They are compared when all have called initialize().
    """
    if not view.all_have_called:
        return
    known = [(run.process_id, c.settings) for run, c in view.calls if c.settings is not None]
    for name in sorted({name for _, settings in known for name in settings}):
        groups = group_by_key((settings.get(name, ""), rank) for rank, settings in sorted(known))
        found = _find_odd_ranks(view, groups, partial(_format_setting_values, name))
        if found is not None:
            yield found
            return


def _find_odd_ranks(
    view: View, groups: Mapping[str, Sequence[int]], words: Callable[[str, str], tuple[str, str]]
) -> Finding | None:
    """Return a finding on ranks that differ from most; None if all are alike.

    Args:
        view: view of the run.
        groups: the ranks with each value.
        words: called with the odd and the usual value; returns both in words, in that order.

    """
    if len(groups) < 2:
        return None
    # Of two groups of equal size, that of rank 0 counts as the usual.
    usual = max(groups, key=lambda value: (len(groups[value]), -groups[value][0]))
    odd = next(value for value in groups if value != usual)
    first, *others = groups[odd]
    also = f" (as {inflect_have(others)} {format_ranks(others)})" if others else ""
    own, theirs = words(odd, usual)
    rest = groups[usual]
    has = f"has {own}{also}, {format_ranks(rest)} {inflect_have(rest)} {theirs}"
    line = f"{view.format_ranks([first])} {has}: all processes of a job need the same"
    return Finding(line, (first, *others))


def _format_setting_values(name: str, own: str, theirs: str) -> tuple[str, str]:
    """Return two values of a setting in words, without the flags that both contain."""
    common = {*own.split()} & {*theirs.split()}
    first, second = (
        " ".join(word for word in value.split() if word not in common) for value in (own, theirs)
    )
    return (f"{name}={first}", second or "none") if first else (f"no {name}", f"{name}={second}")


# --- devices ---

_CPU = "cpu"
_GPUS = ("gpu", *GPU_PLATFORMS)
_SEES_NONE = "do they see any (nvidia-smi, CUDA_VISIBLE_DEVICES, the plugin of their jax)?"
_SETS_THEM = {
    "CPU device": "does the program set jax_num_cpu_devices itself?",
    "GPU": "does the program set CUDA_VISIBLE_DEVICES, or local_device_ids= of initialize()?",
}
# At most this many process numbers are shown.
_MOST_NUMBERS = 8


@after(Backend, FAILURE)
def unlike_devices(view: View) -> Iterator[Finding]:
    """Find ranks whose devices differ in platform or number from the others', or from the options.

    They are compared when all ranks have a backend, or one has failed.
    """
    members = [run for run in view.runs if run.membership.joined_at is not None]
    backends = {
        run.process_id: run.membership.backend
        for run in members
        if run.membership.backend is not None
    }
    if not view.is_last and len(backends) < len(view.runs):
        return
    if asked := _find_unasked_counts(view, backends):
        yield from asked
        return
    on_cpu = [rank for rank, backend in backends.items() if backend.platform == _CPU]
    others = backends.keys() - set(on_cpu)
    words = ""
    if on_cpu and others:
        words = _describe_cpu_ranks(view, backends, on_cpu, others)
    elif len(backends) == len(view.runs):
        words = (_describe_cpu_fallback(backends) if on_cpu else "") or _describe_unusual_counts(
            view, backends
        )
    if words:
        yield Finding(words)


def _find_unasked_counts(view: View, backends: Mapping[int, Backend]) -> list[Finding]:
    """Return a finding for each number of devices that -d or --gpus-per-process does not ask for.

    There is none while a backend is being started, unless a rank has failed.
    """
    if not view.is_last and not all(backend.devices for backend in backends.values()):
        return []
    groups = group_by_key(
        ((backend.devices, format_device_name(backend.platform), asked), rank)
        for rank, backend in backends.items()
        if backend.devices and (asked := view.state.ranks[rank].share.asked) is not None
    )
    found = []
    for (has, name, asked), ranks in groups.items():
        if asked.kind == name and asked.count != has:
            devices = f"{inflect_have(ranks)} {format_count(has, f'local {name}')}"
            words = f"{view.format_ranks(ranks)} {devices}, but {asked.option} asks for "
            found.append(Finding(f"{words}{asked.count}: {_SETS_THEM[name]}", tuple(ranks)))
    return found


def _describe_cpu_ranks(
    view: View, backends: Mapping[int, Backend], on_cpu: Collection[int], others: Collection[int]
) -> str:
    use = "use" if len(on_cpu) > 1 else "uses"
    rest = _format_other_ranks(view, on_cpu, others)
    devices = "/".join(
        sorted({format_device_name(backends[rank].platform) + "s" for rank in others})
    )
    why = next((backends[rank].why for rank in on_cpu if backends[rank].why), _SEES_NONE)
    return f"{view.format_ranks(on_cpu)} {use} the CPU, {rest} {devices}: {why}"


def _describe_cpu_fallback(backends: Mapping[int, Backend]) -> str:
    """Return a line on ranks that use the CPU although there are GPUs; "" if there are none."""
    why = next((backend.why for backend in backends.values() if backend.why), "")
    if not why:
        return ""
    who = "all ranks use" if len(backends) > 1 else "the rank uses"
    wanted = "(or -x JAX_PLATFORMS=cpu if you want the CPU)"
    return f"{who} the CPU, although this machine has GPUs: {why} {wanted}"


def _describe_unusual_counts(view: View, backends: Mapping[int, Backend]) -> str:
    """Return a line on ranks whose number of devices is unusual; "" if there are none."""
    counts = {rank: backend.devices for rank, backend in backends.items()}
    if 0 in counts.values() or len(set(counts.values())) < 2:
        return ""
    usual = Counter(counts.values()).most_common(1)[0][0]
    odd = next(count for count in counts.values() if count != usual)
    ranks = [rank for rank, count in counts.items() if count == odd]
    like = [rank for rank, count in counts.items() if count == usual]
    name = format_device_name(backends[ranks[0]].platform)
    some = f"{odd} local {name}" + ("s" if odd > 1 else "")
    others = _format_other_ranks(view, ranks, like)
    return f"{view.format_ranks(ranks)} {inflect_have(ranks)} {some}, {others} {usual}"


def _format_other_ranks(view: View, ranks: Collection[int], others: Collection[int]) -> str:
    all_known = len(ranks) + len(others) == len(view.runs) and len(others) > 1
    return "the others" if all_known else format_ranks(others)


def format_device_name(platform: str) -> str:
    """Return the noun for a device of a platform: "GPU", "CPU device", or such as "TPU"."""
    return "GPU" if platform in _GPUS else "CPU device" if platform == _CPU else platform.upper()


@after(Backend, Compiling, ImportedJax)
def shared_gpus(view: View) -> Iterator[Finding]:
    """Find hosts whose ranks use GPUs that are not shared out."""
    hosts: set[str] = set()
    for run in view.runs:
        backend, line = run.membership.backend, run.share.shared_gpus
        platform = backend.platform if backend is not None else run.compilations.platform
        if line and platform in _GPUS and run.host not in hosts:
            hosts.add(run.host)
            yield Finding(f"host {run.host}: {line}")


@after(GpuMemoryKnown, FAILURE)
def memory_taken(view: View) -> Iterator[Finding]:
    """Find who holds the memory of a GPU on which a rank has found none."""
    known = [
        ((run.host, gpu.number), (run.process_id, gpu))
        for run in view.runs
        if (used := run.usage.gpus).exhausted_at is not None and (gpu := used.fullest) is not None
    ]
    for (host, _), found in group_by_key(known).items():
        ranks, gpus = zip(*found, strict=True)
        holders = _describe_holders(view, host, gpus[0])
        yield Finding(f"{view.format_ranks(ranks)} found no memory: {holders}", ranks)


def _describe_holders(view: View, host: str, gpu: GpuUse) -> str:
    """Describe who holds a GPU's memory: the ranks, and processes of no rank."""
    held = {
        run.process_id: mine.mib
        for run in view.runs
        if run.host == host
        for other, mine in run.usage.gpus.latest
        if other.number == gpu.number and mine.mib is not None
    }
    largest = sorted(held, key=lambda rank: -held[rank])
    parts = [f"rank {rank} {held[rank] / 1024:.1f} GiB" for rank in largest[:_MOST]]
    if rest := largest[_MOST:]:
        parts.append(f"{len(rest)} more {sum(held[rank] for rank in rest) / 1024:.1f} GiB")
    holders = ", ".join([*parts, *gpu.others[:_MOST]])
    name = gpu.name.removeprefix("NVIDIA ")
    used = f"{gpu.used_mib / 1024:.1f} of {gpu.total_mib / 1024:.1f} GiB"
    return f"of GPU {gpu.number} ({name}) {used} are in use" + (f": {holders}" if holders else "")


@after(ProcessNumber)
def other_numbers(view: View) -> Iterator[Finding]:
    """Find that jax.process_index() differs from the ranks' numbers; needs all numbers."""
    latest = max(view.runs, key=lambda run: run.membership.turn)
    known = view.state.get_processes(latest).find_renumbered_ranks(view.state.ranks)
    if not known:
        return
    pairs = [f"{process} is rank {known[process]}" for process in sorted(known)]
    more = ", ..." if len(pairs) > _MOST_NUMBERS else ""
    shown = ", ".join(pairs[:_MOST_NUMBERS])
    yield Finding(f"jax.process_index() is not the rank here: {shown}{more}")


@after(DEATH)
def without_devices(view: View) -> Iterator[Finding]:
    """Find ranks that kept other ranks waiting for their devices, or for a shared compilation."""
    key = lost_peer.find_missing_key(view.failed_text)
    late = [run for process in key.late if (run := view.state.find_rank(process))] if key else []
    if key is None or not late:
        return
    first, ranks = late[0], tuple(run.process_id for run in late)
    backend = first.membership.backend
    if not key.platform:
        did = "did not reach a compilation that it shares with the others"
        yield _make_late_finding(view, late, did)
    elif backend is not None and backend.platform == _CPU:
        why = f" ({backend.why})" if backend.why else ""
        uses = f"uses the CPU{why}: the others waited for its {key.platform} devices"
        yield Finding(f"{view.format_ranks(ranks[:1])} {uses}", ranks)
    else:
        did = f"did not start a backend for {key.platform} in time"
        yield _make_late_finding(view, late, did)


def _make_late_finding(view: View, late: Sequence[RankRun], did: str) -> Finding:
    """Return a finding on ranks that did not do something, with the place of the first of them."""
    ranks, first = tuple(run.process_id for run in late), late[0]
    is_known = first.late_position and first.membership.leaving_at is None
    where = f"; it was {first.late_position}" if is_known else ""
    return Finding(view.format_statement(ranks, did) + where, ranks)


# --- ranks that left ---

_LEFT = "exited with 0 without leaving the job (as os._exit() does), so JAX considers it dead"
_SILENT = (
    "stopped sending heartbeats: it was stopped or swapped out, or held the GIL, for longer than "
    "initialize()'s heartbeat_timeout_seconds"
)


@after(DEATH)
def silent(view: View) -> Iterator[Finding]:
    """Find a rank that stopped sending heartbeats."""
    run = view.state.find_rank(lost_peer.find_silent_process(view.failed_text))
    if run is not None:
        did = _LEFT if run.status == 0 else _SILENT
        yield Finding(f"{view.format_ranks([run.process_id])} {did}", (run.process_id,))


@after(DEATH)
def failed_exit_barrier(view: View) -> Iterator[Finding]:
    """Find a rank whose wait in JAX's exit barrier timed out, and the ranks it waited for."""
    barrier = lost_peer.find_failed_exit_barrier(view.failed_text)
    run = view.state.find_rank(barrier.first) if barrier is not None else None
    if barrier is None or run is None:
        return
    late = [late.process_id for process in barrier.late if (late := view.state.find_rank(process))]
    waited_for = f" for {format_ranks(late)}" if late else ""
    yield Finding(
        f"{view.format_ranks([run.process_id])} finished and waited in JAX's exit "
        f"barrier{waited_for}, longer than the shutdown_timeout_seconds of its initialize()",
        (run.process_id,),
    )


@after(Exited, DEATH)
def vanished(view: View) -> Iterator[Finding]:
    """Find ranks that exited with 0 in the middle of their programs, as os._exit(0) does.

    There is a finding only while ranks run, or after a rank has failed.
    """
    ranks = [run.process_id for run in view.runs if run.vanished]
    if ranks and (view.state.running or view.first is not None):
        also = f" (as did {format_ranks(ranks[1:])})" if ranks[1:] else ""
        yield Finding(f"{view.format_ranks(ranks[:1])} {_LEFT}{also}", tuple(ranks))


# --- collectives and barriers that not all ranks reached ---

_CLEAN_UP = (
    "clean-up that computes with the other ranks must run in all of them, or in none: a `finally:` "
    "or `with` runs in a rank that fails alone, too"
)


@after(DEATH)
def failed_clean_up(view: View) -> Iterator[Finding]:
    """Find a rank that failed in clearing up after an exception, for which others did not come.

    Ranks that all compute while they handle exceptions do so on purpose.
    """
    found = [(run, *failed) for run in view.runs if (failed := _find_clean_up(run)) is not None]
    if not found or len(found) == len(view.runs):
        return
    run, raised, where = min(found, key=lambda each: each[0].order)
    rank = run.process_id
    words = f"{view.format_ranks([rank])} raised {_format_exception(raised)}"
    then = f"then its clean-up waited for other ranks at {where}"
    yield Finding(f"{words}; {then}", (rank,), cure=_CLEAN_UP)


def _find_clean_up(run: RankRun) -> tuple[Raised, str] | None:
    """Return the exception that a rank was handling when it failed, and where; None if none."""
    failure, handling = run.failure, run.handling
    if failure is not None and failure.before is not None and failure.where:
        before = failure.before
        is_own = not lost_peer.is_of_lost_peer(before.exception, before.summary)
        is_lost = lost_peer.is_of_lost_peer(failure.exception, failure.summary)
        return (before, failure.where) if is_own and is_lost else None
    if failure is not None or handling is None or (frame := find_crash_frame(run)) is None:
        return None
    is_there = f"/{frame.file}:{frame.line}".endswith(f"/{handling.where}")
    return (handling.raised, handling.where) if is_there else None


@after(DEATH)
def different_collectives(view: View) -> Iterator[Finding]:
    """Find that the ranks ran different collectives, with each rank's line if known."""
    first = view.first
    if first is None or not ran_other_collective(first):
        return
    if (sequences := view.state.sequences) is not None and (known := sequences.conclude()):
        told = declared.load("differences")
        for difference in known:
            code = told.describe_other_code(sequences, difference)
            words = "; ".join((*told.describe(sequences, difference), *code))
            yield Finding(f"the ranks ran different collectives: {words}")
        return
    # The rank that noticed is as much to blame as any other.
    runs = [first, *(run for run in view.runs if run is not first)]
    places = group_by_key((_find_failure_position(run), run.process_id) for run in runs)
    places.pop("", None)
    if len(places) == 1:  # one line runs several collectives
        yield Finding(f"the ranks were in different collectives {min(places)}")
        return
    groups = _format_places(places.items())
    yield Finding("the ranks ran different collectives" + (f": {groups}" if groups else ""))


@after(DEATH)
def different_barriers(view: View) -> Iterator[Finding]:
    """Find ranks that waited at barriers with different names until a barrier timed out."""
    if not view.gave_up:
        return
    places: dict[str, tuple[str, list[int]]] = {}
    for run in view.runs:
        name, place = _find_barrier(run)
        if name:
            places.setdefault(name, (place, []))[1].append(run.process_id)
    if len(places) > 1:
        groups = _format_places(places.values())
        yield Finding(f"the ranks waited at different barriers: {groups}")


def _find_barrier(run: RankRun) -> tuple[str, str]:
    """Return the name of a rank's last barrier, and words with name and line; "" twice if none."""
    failed = lost_peer.find_failed_programs_barrier(get_failure_text(run))
    if failed is not None:
        return repr(failed.name), f"at the barrier {failed.name!r} {_find_failure_position(run)}"
    name = run.late_position.removeprefix(BARRIER).partition(" at ")[0].partition(" in ")[0]
    return (name, run.late_position) if run.late_position.startswith(BARRIER) else ("", "")


def _format_places(places: Iterable[tuple[str, list[int]]]) -> str:
    """Return the first places, each behind its ranks."""
    by_rank = sorted(places, key=lambda place: min(place[1]))
    return ", ".join(f"{format_ranks(ranks)} {place}" for place, ranks in by_rank[:_MOST])


def _find_failure_position(run: RankRun) -> str:
    """Return a rank's position when it failed, else at the first failure; "" if unknown."""
    frame = find_crash_frame(run)
    if frame is not None:
        return format_place(frame.name, f"{frame.file.rpartition('/')[2]}:{frame.line}")
    if run.failure is not None and run.failure.where:
        where, _, name = run.failure.where.rpartition(" in ")
        file, _, line = where.rpartition(":")
        return format_place(name, f"{shorten_path(file).rpartition('/')[2]}:{line}")
    return run.late_position


@after(AtBarrier, Leaving, Exited)
def deserted_barrier(view: View) -> Iterator[Finding]:
    """Find a barrier of all ranks at which ranks wait for ranks that have finished.

    A rank has come to a barrier if it has done so as often as the rank that waits there.
    """
    gone = [run for run in view.runs if run.has_finished]
    for run in view.runs if gone else ():
        barrier = run.barrier
        if barrier is None or run.has_finished:
            continue
        times = run.barriers[barrier.name]
        absent = [other for other in gone if other.barriers.get(barrier.name, 0) < times]
        if absent:
            ranks = tuple(other.process_id for other in absent)
            at = f" at {barrier.where}" if barrier.where else ""
            words = (
                f"{view.format_ranks(ranks)} finished without reaching the barrier "
                f"{barrier.name!r}, where rank {run.process_id} waits{at}"
            )
            cure = "all ranks must reach a barrier, or none"
            yield Finding(words, ranks, cure=cure, is_certain=not view.state.survives)
            return


@after(DEATH)
def failed_callback(view: View) -> Iterator[Finding]:
    """Find a rank that has not failed itself, but whose callback raised an exception."""
    for run in view.runs:
        failed = [lost.error for lost in run.unhandled_errors if lost.error.callback]
        if failed and not run.failed:
            name, error = view.format_ranks([run.process_id]), failed[-1]
            words = f"{name} raised in its {error.callback}: {_format_exception(error.raised)}"
            yield Finding(words, (run.process_id,))
            return


@after(DEATH)
def missed_barrier(view: View) -> Iterator[Finding]:
    """Find ranks that did not reach a barrier called by the user's program in time."""
    barrier = lost_peer.find_failed_programs_barrier(view.failed_text)
    processes = barrier.late if barrier is not None else ()
    late = [run for process in processes if (run := view.state.find_rank(process))]
    if barrier is not None and late:
        yield _make_late_finding(view, late, f"did not reach the barrier {barrier.name!r} in time")


@after(DEATH)
def missed_collective(view: View) -> Iterator[Finding]:
    """Find ranks that had not reached a collective when it timed out in other ranks."""
    late = _find_late_ranks(view)
    if late:
        has_left = late[0].membership.leaving_at is not None
        how = "finished without reaching" if has_left else "did not reach"
        did = f"{how} a collective in which others gave up waiting"
        yield _make_late_finding(view, late, did)


def _find_late_ranks(view: View) -> list[RankRun]:
    """Return the ranks that did not reach a collective that has timed out."""
    state = view.state
    late = [run for run in view.runs if _may_not_have_come(run)]
    if not late or not lost_peer.says_timed_out(view.failed_text):
        return []
    # Others may have been ended before they could fail in the collective: they have begun it.
    awaited = {rank for gap in state.gaps for rank in gap.behind}
    # A late rank may also be another launcher's.
    known = [run for run in late if run.process_id in awaited]
    if not known:  # the rank has arrived meanwhile, too late
        named = state.find_rank(lost_peer.find_late_process(view.failed_text))
        known = [run for run in late if run is named]
    return known if known or state.has_others else [run for run in late if not run.failed]


def _may_not_have_come(run: RankRun) -> bool:
    """Return whether a rank may be missing from a collective that timed out in other ranks.

    False for a rank that failed by itself, gave up waiting, or never joined.
    """
    if run.membership.joined_at is None:
        return False
    ended = run.after_signal or is_aborted_by_jax(run)
    gave_up = lost_peer.says_timed_out(get_failure_text(run))
    return not run.failed or (ended and not gave_up)


# --- exceptions that have not ended the program ---


@after(HANG, LIMIT, FAILURE)
def unhandled_errors(view: View) -> Iterator[Finding]:
    """Find unhandled exceptions: first the culprit's, then those of late ranks."""
    runs = view.runs
    if not any(run.unhandled_errors for run in runs):
        return
    errors = (
        (run, lost)
        for run in sorted(
            runs, key=lambda run: (run is not view.culprit, run.process_id not in view.late)
        )
        for lost in sorted(run.unhandled_errors, key=lambda lost: -lost.at)[:_MOST]
    )
    untold = [(run, lost) for run, lost in errors if not mentions(lost.error, view.said)]
    for run, lost in untold[:_MOST]:
        words = f"rank {run.process_id}'s {_describe_error(view, lost)}"
        yield Finding(words, (run.process_id,))


def mentions(error: UnhandledError, said: str) -> bool:
    """Return whether printed text already contains an unhandled exception's line or message."""
    raised, line = error.raised, extract_headline(error.raised)
    if not error.callback:
        return line in said
    return (line.partition(": ")[2] or raised.exception) in said  # JAX's own, with that message


def _describe_error(view: View, lost: ErrorReport) -> str:
    error = lost.error
    thread = error.callback or (f"thread {error.thread}" if error.thread else "a thread")
    did = "failed" if error.callback else "ended"
    ago = "before" if view.first is not None else "ago"
    when = f"{format_rough_duration(max(view.now - lost.at, 0.0))} {ago}"
    return f"{thread} {did} {when}: {_format_exception(error.raised)}"


def _format_exception(raised: Raised) -> str:
    return extract_headline(raised) + (f", at {raised.where}" if raised.where else "")


@after(HANG, LIMIT, FAILURE)
def failed_test(view: View) -> Iterator[Finding]:
    """Find the first failed test of each rank: the rank went on before the others had."""
    failed = group_by_key(
        ((report[0].test, extract_headline(raised), raised.where), (run.process_id, report[1]))
        for run in view.runs
        if (report := run.process.failed_test) is not None
        and not lost_peer.is_of_lost_peer((raised := report[0].raised).exception, raised.summary)
    )
    for (test, headline, where), those in list(failed.items())[:_MOST]:
        if test in view.said:
            continue
        ranks = tuple(rank for rank, _ in those)
        ago = format_rough_duration(max(view.now - min(at for _, at in those), 0.0))
        when = f"{ago} {'before' if view.first is not None else 'ago'}"
        place = f", at {where}" if where else ""
        words = f"{view.format_ranks(ranks)} failed in {test} {when}: {headline}{place}"
        yield Finding(words, ranks)


@after(Joining, CollectedTests, FAILURE)
def other_tests(view: View) -> Iterator[Finding]:
    """Find ranks of the JAX job that run other tests than others, or in another order."""
    members = [run for run in view.runs if run.membership.call is not None]
    tests = [(run.process.tests, run.process_id) for run in members]
    groups = group_by_key((known, rank) for known, rank in tests if known is not None)
    if len(groups) < 2 or (not view.is_last and any(known is None for known, _ in tests)):
        return
    parts = [
        f"{format_count(tests.count, 'test')} in {format_ranks(ranks)} (first {tests.first})"
        for tests, ranks in groups.items()
    ]
    words = (
        f"the ranks run different tests, or run them in different orders: "
        f"{format_names(parts, _MOST)}; all ranks need the same order: give them one seed, as with "
        "--randomly-seed=1, or use -p no:randomly"
    )
    fewest: list[int] = min(groups.values(), key=len)
    yield Finding(words, tuple(fewest))


# --- programs that not all ranks run ---

_SAME_ORDER = (
    "all ranks of a mesh must run the same programs in the same order; "
    "--verify-spmd ends a job that does not"
)


@after(ProgramsDiffer, HANG, LIMIT, FAILURE)
def other_sequence(view: View) -> Iterator[Finding]:
    """Find the differences between the programs that ranks have run.

    One is certain if a rank has ended, and a running rank has begun a program that needs it.
    """
    sequences = view.state.sequences
    if sequences is None or not sequences.differences:
        return
    told = declared.load("differences")
    for difference in sequences.differences:
        ranks = tuple(rank for found in difference.deviations for rank in found.ranks)
        cure = told.find_cure(difference, _SAME_ORDER)
        code = told.describe_other_code(sequences, difference)
        lines = told.describe(sequences, difference)
        for line, found in zip(lines, difference.deviations, strict=True):
            if line not in view.said:
                is_certain = not found.identity and _may_wait(view, difference)
                follows = "results may be wrong from there on"
                if is_certain:
                    follows = "the job can never go on"
                words = "; ".join((line, *code, follows))
                yield Finding(words, ranks, cure, is_urgent=True, is_certain=is_certain)
                code = []


@after(HANG, LIMIT)
def other_compilation(view: View) -> Iterator[Finding]:
    """Find ranks that compile another program of a name than others, while nothing moves."""
    if words := describe_other_compilation(view.state):
        yield Finding(f"{words}; where compilation waits for other ranks, it never ends")


def describe_other_compilation(state: RunState) -> str:
    """Return words on ranks that compile another program than others of its name; "" for none."""
    if state.sequences is None:
        return ""
    words: str = declared.load("differences").describe_compilations(state)
    return words


def _may_wait(view: View, difference: Any) -> bool:
    """Return whether a running rank may wait for what ranks that have ended will never run."""
    ranks = view.state.ranks
    begun = any(not ranks[rank].is_gone for rank in difference.ranks)
    return begun and not view.state.survives


# --- exceptions that ranks only logged ---


@after(HANG, LIMIT, FAILURE, END)
def logged_errors(view: View) -> Iterator[Finding]:
    """Find exceptions that ranks logged before they finished, while other ranks needed them."""
    finished = [
        run
        for run in view.runs
        if run.status == 0 or (run.stage is Stage.LEAVING and not run.failed)
    ]
    logged = [(run, last) for run in finished if (last := _find_logged(view, run)) is not None]
    needed = view.state.differs or any(last.is_victims for _, last in logged)
    for run, last in logged:
        is_needed = needed or run is view.culprit or run.process_id in view.late
        if is_needed and not last.is_victims:
            who = view.format_ranks([run.process_id])
            words = f"{who} logged {_format_traceback(last)}, and finished"
            yield Finding(words, (run.process_id,))


def _find_logged(view: View, run: RankRun) -> Traceback | None:
    """Return the last traceback that a rank has printed; None if there is none."""
    printed = run.stderr or view.state.tails.get_tails(run.process_id)[1]
    found = find_tracebacks(printed.encode("utf-8", "replace") + b"\n")
    return next((each for each in reversed(found) if each.is_over and each.text), None)


def _format_traceback(traceback: Traceback) -> str:
    """Return a traceback's exception, with the user's line that raised it if known."""
    calls = (call for call in reversed(traceback.frames) if is_users(call[0]))
    file, frame = next(calls, ("", b""))
    number = frame.decode("utf-8", "replace").rpartition(", line ")[2].partition(",")[0]
    return shorten_line(traceback.text) + (f", at {format_path(file)}:{number}" if file else "")


# --- ranks that run as separate jobs, and child processes that call initialize() ---

_LONGEST_REFUSAL = 110
_GUARD = 'put the call under `if __name__ == "__main__":`'


@after(NotJoined, Compiling, FAILURE, END)
def lone_ranks(view: View) -> Iterator[Finding]:
    """Find ranks that go on as single-process jobs because initialize() failed.

    A rank goes on if it compiles programs, or has ended well.
    """
    alone = [run for run in view.runs if run.was_alone]
    size = view.state.num_processes
    if not alone or size < 2:
        return
    is_over = view.first is not None or not view.state.running
    if not is_over and not all(run.membership.goes_on or run.is_gone for run in alone):
        return
    first, count = alone[0].membership, len(alone)
    if count == size:
        what, whose = f"these are {count} separate single-process jobs", format_all_ranks(count)
    else:
        jobs = "is a single-process job" if count == 1 else "are single-process jobs"
        ranks = view.format_ranks([run.process_id for run in alone])
        what, whose = f"{ranks} {jobs}, separate from the others", "it" if count == 1 else "them"
    assert first.refused is not None
    at = f" at {first.call.where}" if first.call is not None and first.call.where else ""
    words = f"{what}: initialize(){at} failed in {whose} {_explain_refusal(first.refused)}"
    yield Finding(words, tuple(run.process_id for run in alone), is_urgent=True)


def _explain_refusal(refused: NotJoined) -> str:
    """Return the reason, and cure if known, of a failed initialize(); to follow "failed"."""
    too_late = find_known_error(refused.summary) is KnownError.INITIALIZED_TOO_LATE
    if too_late and refused.backend_at:
        at = refused.backend_at
        return f"because {at} had already started a backend: call initialize() before that line"
    said = f"with {refused.exception}: {refused.summary}"
    return said if len(said) <= _LONGEST_REFUSAL else said[:_LONGEST_REFUSAL] + "..."


@after(FAILURE, END)
def single_process_calls(view: View) -> Iterator[Finding]:
    """Find that every rank called initialize() with num_processes=1."""
    count, calls = view.state.num_processes, view.calls
    if count < 2 or len(calls) < len(view.runs):
        return
    if all(call.num_processes == 1 for _, call in calls):
        at = f" at {calls[0][1].where}" if calls[0][1].where else ""
        yield Finding(
            f"these ran as {len(calls)} separate single-process jobs: each rank called "
            f"initialize(){at} with num_processes=1{_suggest_command(view)}"
        )


@after(Compiling, END)
def separate_jobs(view: View) -> Iterator[Finding]:
    """Find that no rank has called initialize(), and can no more, because two have compiled.

    At the end it suffices that all have imported jax.
    """
    state = view.state
    if state.initialize_calls or state.num_processes < 2:
        return
    compiled = [run for run in view.runs if run.compilations.latest is not None]
    imported = not state.running and all(run.membership.imported for run in view.runs)
    if len(compiled) > 1 or imported:
        cure = _suggest_command(view) or "; call it before any other use of JAX"
        words = f"these are {state.num_processes} separate single-process jobs{cure}"
        said = "no rank has called jax.distributed.initialize()"
        yield Finding(f"{said}: {words}", is_urgent=True)


def _suggest_command(view: View) -> str:
    """Return the command that passes PROGRAM its coordinates, to append to a line; or ""."""
    command = view.state.suggest()
    return f"; its coordinates come from arguments: run {command}" if command else ""


@after(CalledBelow)
def calls_below(view: View) -> Iterator[Finding]:
    """Find calls of initialize() by child processes of ranks, with the first rank of each."""
    calls: dict[CalledBelow, tuple[float, int]] = {}
    for run in view.runs:
        for call, called_at in run.membership.called_below.items():
            first = called_at, run.process_id
            calls[call] = min(first, calls.get(call, first))
    for call, (_, rank) in calls.items():
        at = f" at {call.where}" if call.where else ""
        cure = _GUARD if call.by_import else "call it in the rank's own process alone"
        words = (
            f"{view.format_ranks([rank])} started a process that called initialize() again{at}; "
            f"it is not a rank, so the call was skipped: {cure}"
        )
        yield Finding(words, (rank,), is_urgent=True)


# --- processes that outlive the ranks that have started them ---

# Processes, and characters of a command, to print.
_MOST_PROCESSES, _LONGEST_COMMAND = 3, 80


@after(OVER)
def left_behind(view: View) -> Iterator[Finding]:
    """Find processes that were ended because they had outlived ranks that ended well."""
    left = sorted(view.state.leftovers, key=lambda process: (process.rank or 0, process.pid))
    if not left or view.state.stop is not None:
        return
    what, their, them, they = (
        ("1 process", "its rank", "it", "it")
        if len(left) == 1
        else (f"{len(left)} processes", "their ranks", "them", "they")
    )
    named = format_names([_describe_process(view, process) for process in left], _MOST_PROCESSES)
    ranks = sorted({process.rank for process in left if process.rank is not None})
    yield Finding(
        f"ended {what} that outlived {their}: {named}; if {they} must finish, wait for {them} in "
        "the program (`wait` in a shell script)",
        tuple(ranks),
    )


def _describe_process(view: View, process: Leftover) -> str:
    command, of = process.command, ""
    if len(command) > _LONGEST_COMMAND:
        command = f"{command[:_LONGEST_COMMAND]}..."
    if process.rank is not None:
        of = f"{view.format_ranks([process.rank])}, "
    return f"{command} ({of}pid {process.pid})"
