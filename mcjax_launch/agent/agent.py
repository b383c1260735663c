"""Agent between its start and its end: carries out the launcher's orders and acts at deadlines.

prepare -> start -> serve until no child is left. All waiting is done here. `supervisor` decides
what follows from the end of a rank; a feature's part on the host does the feature's work.
"""

from __future__ import annotations

import os
import signal
import time

from ..machine import rank_environ
from ..machine.interpreter import Unusable, make_refusal_error
from ..machine.loop import READ, Loop, Signals
from ..machine.system import format_limit_error, widen
from ..machine.uplink import Uplink
from ..wire import exit_status, frames, hook_environ, hook_messages, messages
from ..wire.codec import Message
from ..wire.exit_status import ENDING
from . import launcher_link, network, private_folder, supervisor
from .gpu_watch import GpuWatch
from .hook_server import HookServer, WrappedPrograms
from .launcher_link import LauncherLink
from .leftovers import Leftovers, is_tracker
from .part import RankStarter
from .stacks import StackDump
from .staging import Staging
from .startup import HostPreparation
from .system import system
from .system.unix import Childless, Invocation, SpawnError
from .ulimits import explain_exceeded_limit
from .usage import UsageSampler

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from ..machine.loop import Timer
    from ..machine.system import Limit
    from .hook_server import HookConnection
    from .part import AgentPart, Wanted
    from .system.out_of_memory import OutOfMemory
    from .system.unix import EndedChild

_ENDLESS = 1 << 60
# Ranks that are started together, before output and hooks of any are read.
_TOGETHER = 32
_FEATURES = f"{__name__.partition('.')[0]}.features"


class Agent:
    """Agent of a host: carries out the launcher's orders and the decisions of `supervisor`.

    Args:
        control: descriptor from which the launcher's messages are read.
        uplink: queue of the bytes for the launcher.
        loop: the event loop.
        folder: path of the job's private folder on this host.
        hook_folder: path of the hook's folder, for the ranks' PYTHONPATH.
        remote: True if the launcher is on another machine.
        files_limit: limit on each rank's open files; None for this process's limit.

    Attributes:
        link: connection to the launcher.
        streams: reader of the ranks' output.
        supervisor: state of the ranks, which decides when and how they are ended.
        pids: mapping from the pid of each rank's own process to the rank, until it is reaped.
        hooks: server for the ranks' hooks.
        prepared: facts and reserved ports of this host; None before Prepare.
        leftovers: finder of the processes that ranks have left behind.
        timers: objects with work to do at a deadline; features' parts may add theirs.

    """

    def __init__(
        self,
        control: int,
        uplink: Uplink,
        loop: Loop,
        folder: str,
        hook_folder: str,
        remote: bool,
        files_limit: Limit | None,
    ) -> None:
        self.starter = RankStarter(files_limit)
        self.folder = folder
        self._hook_folder = hook_folder
        self.loop = loop
        self.link = LauncherLink(
            control,
            uplink,
            loop,
            remote=remote,
            on_message=self._receive,
            on_lost=self._on_launcher_loss,
        )
        self.streams = launcher_link.Streams(loop, uplink)
        self._parts: dict[str, AgentPart] = {}  # by the names of their features
        self.supervisor = supervisor.Supervisor(0)
        self.pids: dict[int, int] = {}
        self.prepared: HostPreparation | None = None
        self._staging = Staging(folder)
        self.hooks = HookServer(
            os.path.join(folder, "hook"),
            loop,
            lambda pid, rank: self.pids.get(pid) == rank,
            self._on_hook_message,
            self._on_hook_loss,
        )
        self._stacks = StackDump(self._send_stacks)
        self._memory: OutOfMemory | None = None
        gpus = GpuWatch(loop, hook_folder)
        self._usage = UsageSampler(self._map_pids_to_ranks, self.link.send, gpus)
        self.leftovers = Leftovers(self.pids)
        self._leaving: supervisor.Leave | None = None
        self.timers: list[Timer] = []
        self._waiting: list[Wanted] = []  # ranks of a Start that waits
        self._acts = self._make_acts()

    def _make_acts(self) -> dict[type, Callable[[Any], object]]:
        """Return what is done at each message that is no feature's."""
        return {
            messages.StageEntry: self._stage,
            messages.Compressed: self._expand,
            messages.StageEntries: self._stage,
            frames.Raw: self._stage,
            messages.Prepare: self._prepare,
            messages.TryCoordinator: self._try_coordinator,
            messages.Start: self._start,
            messages.Release: lambda order: self._release(),
            messages.Credit: lambda credit: self.streams.add_credit(credit.count),
            messages.Forward: self._forward,
            messages.Stop: self._stop,
            messages.RequestStacks: self._request_stacks,
            messages.RequestUsage: lambda request: self._usage.answer(),
            messages.Ping: lambda ping: None,
        }

    def run(self) -> None:
        """Serve the run, until no process of a rank is left."""
        signals = Signals((signal.SIGCHLD, *ENDING))
        self.loop.watch(signals.fd, READ, lambda ready: self._read_signals(signals.read()))
        self.link.open()
        self.timers += (self, self._stacks, self._usage, self.link)
        while not self._try_finish():
            self.loop.run_once(self.timers)

    @property
    def deadline(self) -> float | None:
        """Time (time.monotonic) of the supervisor's next step or next check for ended children."""
        times = (self.supervisor.deadline, system.get_check_time())
        return min((at for at in times if at is not None), default=None)

    def expire(self, now: float) -> None:
        """Check for ended children and carry out the supervisor's steps that are due at `now`."""
        check_at = system.get_check_time()
        if check_at is not None and now >= check_at:
            self.reap()
        self._perform(self.supervisor.expire(now))

    def _try_finish(self) -> bool:
        """Send the rest and Bye after the ranks' end; return whether this run is over."""
        if self._leaving is None:
            return False
        if not self.streams.drain():
            return False  # until the launcher takes the rest
        if not self.link.said_bye:
            if self.link.uplink.holds_back:
                return False
            unkillable = _describe_processes(
                system.list_descendants() if self._leaving.unkillable else []
            )
            self._keep_in_touch()  # answer what has been asked
            self.link.ignores = True  # nothing may be made in the folder any more
            not_removed = private_folder.remove(self.folder, self._keep_in_touch)
            log = tuple(self._memory.read_log()) if self._memory is not None else ()
            left = self.leftovers.found
            self.link.send(messages.Bye(unkillable, left, not_removed, log))
        return self.link.uplink.empty

    def _keep_in_touch(self) -> None:
        """Receive messages and send a heartbeat if due, in the middle of a long operation."""
        self.loop.dispatch_ready(0.0)
        self.link.expire(time.monotonic())

    def _load_part(self, feature: str) -> AgentPart:
        """Return a feature's part on this host; import and create it at the first call."""
        part = self._parts.get(feature)
        if part is None:
            module = __import__(f"{_FEATURES}.{feature}.agent", fromlist=["PART"])
            part = self._parts[feature] = module.PART(self)
        return part

    # --- events ---

    def _receive(self, message: frames.Frame) -> None:
        if isinstance(message, (Message, frames.Raw)) and message.feature:
            self._load_part(message.feature).on_message(message)
        elif type(message) in self._acts:
            self._acts[type(message)](message)
        else:
            raise TypeError(f"no message to an agent: {message!r}")

    def _on_launcher_loss(self) -> None:
        """End the ranks, because the launcher is gone; permit unlimited output, so none blocks."""
        self.streams.add_credit(_ENDLESS)
        self._perform(self.supervisor.abandon(time.monotonic()))
        if not self.pids:
            self.reap()

    def _read_signals(self, signums: Iterable[int]) -> None:
        for signum in signums:
            if signum in ENDING:  # a scheduler ends the job (scancel), or the guardian is gone
                self.link.send(messages.Ending(signal.Signals(signum).name))
                self._perform(self.supervisor.on_agent_signal(time.monotonic()))
        self.reap()

    def reap(self) -> None:
        """Handle and reap every ended child; carry out the supervisor's effects."""
        try:
            while (ended := self._find_ended_child()) is not None:
                if ended.pid in self.pids:
                    self._handle_end(ended)
                elif self.starter.owns(ended.pid):
                    continue  # it has ended since the starter checked, so check again
                elif self.starter.is_starting:
                    return  # it may be a rank, which the starter will announce in a moment
                else:
                    system.reap(ended.pid)
                    for part in self._parts.values():
                        part.on_child_end(ended.pid, ended.status)
            self._perform(self.supervisor.on_child_end())
        except Childless:
            self._perform(self.supervisor.on_last_child_end())

    def _find_ended_child(self) -> EndedChild | None:
        self.starter.handle_ended_children()
        return system.find_ended_child()

    def _handle_end(self, ended: EndedChild) -> None:
        rank = self.pids[ended.pid]
        self.hooks.drain(rank)
        for part in self._parts.values():
            part.on_rank_end(rank)
        sent = list(self.supervisor.sent[rank])
        hooked = rank in self.hooks.seen
        alone = not hooked or rank in self.hooks.members or not self._may_fail_before_joining(rank)
        now = time.monotonic()
        self._perform(self.supervisor.on_rank_exit(rank, ended.status, now, alone=alone))
        del self.pids[ended.pid]
        self.leftovers.record_end(rank, ended.pid)
        if not self.pids:
            self._usage.gpus.end()
        self.streams.drain(rank)  # its last output explains its end
        limits = system.read_limits(ended.pid)
        used = system.reap(ended.pid)
        failed = ended.status != 0 and -ended.status not in sent
        pid = self._find_program_pid(rank, ended.pid)
        killer: str | None = ""
        if failed:
            killer = explain_exceeded_limit(-ended.status, *limits, used[0])
            if not killer:
                killer = self._memory.find_evidence(pid) if self._memory is not None else None
        self.link.send(messages.Exited(rank, ended.status, tuple(sent), killer, *used, hooked))

    def _may_fail_before_joining(self, ended: int | None = None) -> bool:
        """Return whether a rank other than `ended` runs and has never joined the JAX job."""
        return bool(set(self.pids.values()) - self.hooks.members - {ended})

    def _on_hook_message(self, hook: HookConnection, said: messages.FromHook) -> None:
        message = said.message
        if message.feature:
            self._load_part(message.feature).on_hook_message(hook, said)
            return
        if isinstance(message, hook_messages.Leaving):
            for part in self._parts.values():
                part.on_leaving(said.rank)
        if not isinstance(message, hook_messages.Failed):
            self.link.send(said)
            return
        if message.exited and not message.summary:
            self.streams.drain(said.rank)  # its last output explains the exit
        # A debugger may have released the terminal just before.
        self.hooks.read_sibling_connections(hook)
        sent = tuple(self.supervisor.sent.get(said.rank, ()))
        self.link.send(messages.FromHook(said.rank, message, main=said.main, sent=sent))
        if message.joined:
            self._perform(self.supervisor.on_early_failure(said.rank, time.monotonic()))

    def _on_hook_loss(self, hook: HookConnection) -> None:
        for part in self._parts.values():
            part.on_hook_loss(hook)

    # --- what the launcher asks ---

    def _prepare(self, wanted: messages.Prepare) -> None:
        """Look up and reserve everything in `wanted` on this host, or say what is lacking."""
        if (folder := self.complete_staging()) is None:
            return
        try:
            self.prepared = HostPreparation(wanted, folder, self.loop)
        except Unusable as refused:
            self.link.send(messages.Refused(str(refused), refused.status))
            return
        self.link.send(self.prepared.facts)

    def complete_staging(self) -> str | None:
        """Complete the staging folder; return its path, "" if no files were sent.

        Return None if files are lacking, or cannot be written: the launcher has been told.
        """
        if not self._try_staging(self._staging.complete):
            return None
        if lacking := self._staging.pop_lacking():
            self.link.send(messages.Lacks(lacking))
            return None
        return self._staging.folder

    def _expand(self, packed: messages.Compressed) -> None:
        from ..wire import compression  # few jobs need it

        self._receive(compression.expand(packed))

    def _stage(self, part: messages.StageEntry | messages.StageEntries | frames.Raw) -> None:
        """Make entries of the staging folder, or append a piece to the file of the latest."""
        if isinstance(part, frames.Raw):
            self._try_staging(self._staging.write, part.payload)
        elif isinstance(part, messages.StageEntry):
            self._try_staging(self._staging.begin, part)
        else:
            self._try_staging(self._staging.begin_all, part.entries)

    def _try_staging(self, step: Callable[..., None], *values: Any) -> bool:
        """Take a step of the staging; report an error, and return whether there was none."""
        try:
            step(*values)
        except OSError as error:
            message = f"{self._staging.what}: {error.strerror}"
            self.link.send(messages.Refused(message, exit_status.HOST_LOST))
            return False
        return True

    def _try_coordinator(self, wanted: messages.TryCoordinator) -> None:
        time.sleep(wanted.after_s)
        tried = network.try_addresses([(address, wanted.port) for address in wanted.addresses])
        self.link.send(
            messages.CoordinatorTried(
                sources={a.address: a.source for a in tried if a.source},
                errors={a.address: a.error for a in tried if not a.source},
            )
        )

    # --- the ranks' start ---

    def _start(self, order: messages.Start) -> None:
        if self.supervisor.stopping:
            return  # a signal has ended this agent meanwhile, and the launcher knows
        self.supervisor = supervisor.Supervisor(
            order.grace_s,
            lambda: system.select_ending(self.pids),
            order.term_grace_s,
            order.on_failure,
        )
        self._memory = system.make_out_of_memory_watch()
        own = {name for rank in order.ranks for name in rank.env}
        inherited = rank_environ.select_inherited(os.environ, order.env, own, hook=order.hook)
        if order.hook:
            self._serve_hooks(order, inherited)
        for feature, part in self._parts.items():
            if part.variable:
                inherited[hook_environ.get_feature_variable(feature)] = part.variable

        def pair_with_environ(rank: messages.RankOrder) -> Wanted:
            return rank, self._make_environ(rank, order, inherited)

        ranks = list(map(pair_with_environ, order.ranks))
        self._usage.gpus.environs = {rank.process_id: environ for rank, environ in ranks}
        self._usage.begin(order.sample_every_s)
        if order.waits:
            self._waiting = ranks
            self.starter.prepare(ranks)
        else:
            self._begin_ranks(ranks)

    def _release(self) -> None:
        """Start the ranks that wait, unless the agent is about to end."""
        ranks, self._waiting = self._waiting, []
        if not self.supervisor.stopping:
            self._begin_ranks(ranks)

    def _begin_ranks(self, ranks: Sequence[Wanted]) -> None:
        assert self.prepared is not None
        self.prepared.stop_listening()
        if not self.starter.start_ranks(ranks):
            self.start_ranks(ranks)

    def _serve_hooks(self, order: messages.Start, environ: dict[str, str]) -> None:
        self.hooks.ranks = {rank.process_id for rank in order.ranks}
        self.hooks.wrapped = WrappedPrograms(
            {
                rank.process_id: rank.argv[rank.wrapper_words :]
                for rank in order.ranks
                if rank.wrapper_words
            }
        )
        environ[hook_environ.SOCKET] = self.hooks.path
        if order.private:
            environ[hook_environ.COORDINATOR] = os.path.join(self.folder, "coord")

    def start_ranks(self, ranks: Sequence[Wanted]) -> None:
        """Start processes for these ranks; if one cannot be started, stop the attempt."""
        for first in range(0, len(ranks), _TOGETHER):
            if failure := self._try_start(ranks[first : first + _TOGETHER]):
                self.link.send(failure)
                self._stop(messages.Stop(signal.SIGKILL, 0))
                return
            self.hooks.accept()  # the socket's queue is limited

    def _make_environ(
        self, rank: messages.RankOrder, order: messages.Start, inherited: dict[str, str]
    ) -> dict[str, str]:
        """Return all environment variables of a rank."""
        own = rank.env
        for part in self._parts.values():
            own = part.drop_replaced(own)
        set_here = rank_environ.compute_changes(
            inherited,
            common=order.env
            if order.hook
            else rank_environ.leave_coordinator_to_scheduler(order.env, inherited),
            defaults=order.defaults,
            own=own,
            coordinator_host=order.coordinator_host,
        )
        environ = {**inherited, **set_here}
        return rank_environ.with_hook(environ, self._hook_folder) if order.hook else environ

    def _try_start(self, ranks: Sequence[Wanted]) -> messages.Refused | None:
        """Start ranks together; return the message for the launcher if one cannot be started."""
        failure = None
        # It ends early if there is no room for a rank.
        for (rank, environ), spawned in zip(ranks, system.spawn_all(self._invoke(ranks))):
            if isinstance(spawned, int):
                self.record_rank_start(rank.process_id, spawned)
            elif failure is None:
                failure = _refuse(rank, environ, spawned)
        return failure

    def _invoke(self, ranks: Sequence[Wanted]) -> Iterator[Invocation]:
        """Make the pipes of one rank after the other; close its ends when it has been started."""
        for rank, environ in ranks:
            ends = self.make_standard_streams(rank)
            try:
                settings, limit = rank.settings, self.starter.files_limit
                yield Invocation(rank.argv, environ, rank.cwd, ends, settings, limit)
            finally:
                for fd in ends:
                    os.close(fd)

    def make_standard_streams(self, rank: messages.RankOrder) -> tuple[int, int, int]:
        """Make a rank's pipes; return its descriptors 0, 1 and 2, which the caller closes."""
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        given = self.streams.pop_input(rank.process_id)
        for fd, stream in ((out, frames.STDOUT), (err, frames.STDERR)):
            widen(fd)
            self.streams.add(fd, rank.process_id, stream)
        return given, out_end, err_end

    def record_rank_start(self, number: int, pid: int) -> None:
        """Record the pid of a rank's new process, and report it to the launcher."""
        self.pids[pid] = number
        self.supervisor.on_rank_start(number)
        self.link.send(messages.Started(number, pid))

    def _forward(self, order: messages.Forward) -> None:
        """Send a signal to each rank's main process only, because helpers may die of it."""
        for pid, rank in self.pids.items():
            system.signal_process(self._find_program_pid(rank, pid), order.signum)

    def _find_program_pid(self, rank: int, pid: int) -> int:
        """Return the pid of the program below a rank's wrapper if known, else `pid`."""
        return self.hooks.wrapped.get_pid(rank) or pid

    def _stop(self, order: messages.Stop) -> None:
        for part in self._parts.values():
            part.on_stop()
        now = time.monotonic()
        stop = order.signum, order.grace_s, now, order.patience_s
        settles = order.settles and self._may_fail_before_joining()
        self._perform(self.supervisor.stop(*stop, settles=settles))
        if not self.pids:
            self.reap()  # without children there is no SIGCHLD

    def _map_pids_to_ranks(self) -> Mapping[int, int]:
        """Return the rank by pid, of ranks' own processes and of placeholders for ranks."""
        return {**self.pids, **self.starter.placeholder_pids}

    def _request_stacks(self, request: messages.RequestStacks) -> None:
        sources = [*self.hooks.list_stack_sources(), *self.starter.list_stack_sources()]
        self._stacks.begin(sources, time.monotonic(), all_threads=request.all_threads)

    def _send_stacks(self, collected: Iterable[messages.Stacks]) -> None:
        """Send the collected stacks, and for each rank without stacks the kernel's view of it."""
        silent = dict(self._map_pids_to_ranks())
        for stacks in collected:
            self.link.send(stacks)
            silent = {pid: rank for pid, rank in silent.items() if rank != stacks.rank}
        for pid, rank in silent.items():
            why = self._stacks.find_silence(self._find_program_pid(rank, pid))
            state = system.describe(pid) + (f", and {why}" if why else "")
            importing = pid not in self.pids
            self.link.send(messages.Stacks(rank, pid, "", state=state, importing=importing))
        self.link.send(messages.StacksComplete())

    # --- effects ---

    def _perform(self, effects: list[supervisor.HostEffect]) -> None:
        if any(not isinstance(effect, supervisor.KillRank) for effect in effects):
            for part in self._parts.values():
                part.on_ranks_end()
        for effect in effects:
            if isinstance(effect, supervisor.KillRank):
                self._kill_rank(effect.rank)
            elif isinstance(effect, supervisor.Leave):
                self._leaving = effect
                self.link.send(messages.NothingLeft())
            elif isinstance(effect, supervisor.ReportUnkilled):
                self._kill(all_of_them=True)
                self.link.send(messages.NotYetGone(_describe_processes(system.list_descendants())))
            elif isinstance(effect, supervisor.RecordLeftovers):
                strays = self._list_strays()
                self.leftovers.find([pid for pid in strays if not self.starter.owns(pid)])
            elif isinstance(effect, supervisor.Kill):
                self._kill()
            elif isinstance(effect, supervisor.SignalRanks):
                # A rank that has ended does not say where it was.
                self._stacks.call_after(self._ask_to_end, effect)

    def _ask_to_end(self, effect: supervisor.SignalRanks) -> None:
        # Before their ranks end: some are found only through these.
        strays = self._list_strays()
        self._signal_ranks(effect.signum, effect.spare)
        self._signal_each(strays, effect.signum)

    def _kill_rank(self, rank: int) -> None:
        """Send SIGKILL to a failed rank's processes."""
        left = self.leftovers.list_of_rank(rank, system.list_descendants())
        self._signal_each(left, signal.SIGKILL)

    def _signal_ranks(self, signum: int, spare: frozenset[int] = frozenset()) -> None:
        """Send a signal and SIGCONT to the process group of each rank that is not in `spare`."""
        for pid, rank in self.pids.items():
            if rank not in spare:
                system.signal_group(pid, signum)
                system.signal_group(pid, signal.SIGCONT)  # a stopped process handles no signals

    def _list_strays(self) -> list[int]:
        """Return the pids of the job's processes that are not in the process group of a rank."""
        groups = {*self.pids, self._usage.gpus.pid}
        pids = system.list_descendants()
        return [pid for pid in pids if system.get_process_group(pid) not in groups]

    def _signal_each(self, pids: Iterable[int], signum: int) -> None:
        for pid in pids:
            system.signal_process(pid, signum)
            system.signal_process(pid, signal.SIGCONT)

    def _kill(self, *, all_of_them: bool = False) -> None:
        """Kill all processes below the agent, Python's resource trackers only if they are alone.

        A tracker removes shared memory and semaphores of ended processes, and then ends by itself.

        Args:
            all_of_them: kill the resource trackers too.

        """
        left = system.list_descendants()
        killed = [pid for pid in left if all_of_them or not is_tracker(pid)]
        if len(killed) == len(left):
            self._signal_ranks(signal.SIGKILL)
        self._signal_each(killed, signal.SIGKILL)


def _refuse(
    rank: messages.RankOrder, environ: Mapping[str, str], why: OSError | SpawnError
) -> messages.Refused:
    """Return the message for the launcher about a rank that cannot be started."""
    if isinstance(why, SpawnError):
        path = environ.get("PATH", os.defpath)
        found = make_refusal_error(why.what, rank.cwd, path, why.errno)
        return messages.Refused(str(found), found.status)
    # Too many processes, or files.
    what = f"rank {rank.process_id} cannot be started: {format_limit_error(why)}"
    return messages.Refused(what, exit_status.HOST_LOST)


def _describe_processes(pids: Iterable[int]) -> tuple[str, ...]:
    return tuple(f"pid {pid}: {system.describe(pid)}" for pid in pids)
