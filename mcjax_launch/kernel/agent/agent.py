"""What an agent does between its start and its end: what the launcher asks, and what is due.

prepare -> start -> serve until no child is left. All waiting is done here, in one place; what to
do about a death is decided in `supervisor`.
"""

from __future__ import annotations

import os
import signal
import time

from ...features.check.messages import (
    CountDevices,
    Survey,
    TellTime,
    Time,
)
from ...features.debugging.messages import (
    DebuggerMessage,
    ReplyToDebugger,
    TerminalCredit,
    TerminalSize,
)
from ...features.function.messages import Returned
from ...features.preload.messages import Importing
from ...features.stdin.messages import InputEnds
from ..wire import (
    exit_status,
    frames,
    hook_environ,
    hook_messages,
    messages,
    rank_environ,
    ulimits,
)
from ..wire.loop import READ, Loop, Signals
from ..wire.program_check import Unusable
from ..wire.signals import ENDING, PROFILE
from ..wire.uplink import Uplink, widen
from . import network, private_folder, streams, supervisor
from .hook_server import HookServer
from .launcher_link import LauncherLink
from .stacks import StackDump
from .startup import Prepared
from .system import system
from .system.unix import Childless, SpawnError
from .usage import UsageSampler

TYPE_CHECKING = False  # as typing's own, without importing it: an agent's start is waited for
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from ...features.function.agent import Returns
    from ...features.preload.agent.preloading import Preloading
    from ...features.relay.agent import CoordinatorStreams
    from ...features.stdin.agent import Inputs
    from ..wire.codec import Message
    from .hook_server import HookConnection
    from .staging import Staging
    from .system.interface import OutOfMemory
    from .system.unix import Ended
    from .wrapped import WrappedPrograms

_FOR_DEBUGGERS = (ReplyToDebugger, TerminalSize, TerminalCredit)
_ENDLESS = 1 << 60
# What a rank gets as its standard input, unless it takes the launcher's: /dev/null, see `main`.
_NO_INPUT = 0
# So many ranks are started before their hooks' connections are taken: a queue may not be longer.
_TOGETHER = 32


class Agent:
    """Does what the launcher asks and what `supervisor` decides.

    Args:
        control: the descriptor to read the launcher's messages from.
        uplink: the way to the launcher.
        loop: to wait in.
        folder: the job's private one on this host.
        hook_folder: for the ranks' PYTHONPATH.
        remote: the launcher is on another machine.

    """

    def __init__(
        self,
        control: int,
        uplink: Uplink,
        loop: Loop,
        folder: str,
        hook_folder: str,
        remote: bool,
    ) -> None:
        self._files_limit = ulimits.allow_many_files()  # which the ranks get
        self._folder = folder
        self._hook_folder = hook_folder
        self._loop = loop
        self._link = LauncherLink(
            control,
            uplink,
            loop,
            remote=remote,
            on_message=self._receive,
            on_lost=self._launcher_lost,
        )
        self._streams = streams.Streams(loop, uplink)
        self._inputs: Inputs | None = None  # of ranks that take the launcher's
        self._coordinator: CoordinatorStreams | None = None  # where it is relayed
        self._preloading: Preloading | None = None
        self._supervisor = supervisor.Supervisor(0)
        self._pids: dict[int, int] = {}  # pid of each rank that has not been reaped -> rank
        self._prepared: Prepared | None = None
        self._staging: Staging | None = None
        self._returns: Returns | None = None  # of functions, where they are what ranks run
        self._hooks: HookServer | None = None
        self._stacks = StackDump(self._send_stacks)
        self._memory: OutOfMemory | None = None
        self._usage: UsageSampler | None = None
        self._stragglers = 0
        self._leaving: supervisor.Leave | None = None

    def run(self) -> None:
        """Serve until the ranks, and all that they started, are gone."""
        signals = Signals((signal.SIGCHLD, *ENDING))
        self._loop.watch(signals.fd, READ, lambda ready: self._read_signals(signals.read()))
        self._link.open()
        while not self._finished():
            usage = (self._usage,) if self._usage is not None else ()
            self._loop.run_once((self, self._stacks, *usage, self._link))

    @property
    def deadline(self) -> float | None:
        """When the supervisor has something to do, or ends have to be looked for."""
        times = (self._supervisor.deadline, system.look_at())
        return min((at for at in times if at is not None), default=None)

    def expire(self, now: float) -> None:
        """Act, if it is time."""
        look_at = system.look_at()
        if look_at is not None and now >= look_at:
            self._reap()
        self._perform(self._supervisor.expire(now))

    def _finished(self) -> bool:
        """Whether everything has ended and the launcher knows it all."""
        if self._leaving is None:
            return False
        if not self._streams.drain():
            return False  # until the launcher takes the rest
        if self._coordinator is not None and not self._coordinator.drain():
            return False  # until the other hosts do
        if not self._link.said_bye and self._link.uplink.supplies:
            return False  # what functions have returned
        if not self._link.said_bye:
            unkillable = _described(system.descendants() if self._leaving.unkillable else [])
            not_removed = private_folder.remove(self._folder, self._keep_in_touch)
            self._link.say_bye(messages.Bye(unkillable, self._stragglers, not_removed))
        return self._link.empty

    def _keep_in_touch(self) -> None:
        """Let heartbeats come and go while something takes its time."""
        self._loop.turn(0.0)
        self._link.expire(time.monotonic())

    # --- events ---

    def _receive(self, message: frames.Frame) -> None:
        if isinstance(message, messages.Credit):
            self._streams.credit(message.count)
        elif isinstance(message, (frames.Data, InputEnds)):
            self._take_input(message)
        elif isinstance(message, (frames.Relayed, *messages.RELAY)):
            if self._coordinator is not None:
                self._coordinator.received(message)
        elif isinstance(message, messages.Forward):
            self._forward(message.signum)
        elif isinstance(message, messages.Stop):
            self._stop(message)
        elif isinstance(message, messages.RequestStacks):
            self._request_stacks(message.all_threads)
        elif isinstance(message, messages.RequestUsage):
            if self._usage is not None:
                self._usage.sample()
        elif isinstance(message, messages.RequestReruns):
            self._request_reruns(message.ranks)
        elif isinstance(message, messages.ReplyToHooks):
            self._reply_to_hooks(message)
        elif isinstance(message, _FOR_DEBUGGERS):
            self._receive_for_debuggers(message)
        elif not isinstance(message, messages.Ping):
            self._receive_before_start(message)

    def _receive_before_start(self, message: Message | frames.Content) -> None:
        if isinstance(message, (messages.StageEntry, frames.Content)):
            self._stage(message)
        elif isinstance(message, messages.Prepare):
            self._prepare(message)
        elif isinstance(message, messages.TryCoordinator):
            self._try_coordinator(message)
        elif isinstance(message, messages.TryPeers):
            time.sleep(message.after_s)
            self._link.send(network.try_peers(message.peers))
        elif isinstance(message, messages.Start):
            self._start(message)
        elif isinstance(message, (TellTime, Survey, CountDevices)):
            self._check(message)
        else:
            raise TypeError(f"no message to an agent: {message!r}")

    def _take_input(self, part: frames.Data | InputEnds) -> None:
        """A piece of the launcher's standard input has come, or its end; or of the terminal's."""
        if isinstance(part, frames.Data) and part.stream == frames.TERMINAL:
            self._receive_for_debuggers(part)
            return
        if self._inputs is None:
            return  # the ranks could not be started
        if isinstance(part, frames.Data):
            self._inputs.feed(part.payload)
        else:
            self._inputs.end()

    def _launcher_lost(self) -> None:
        """The launcher is gone, however it went: end the ranks, which must not wait for it."""
        self._streams.credit(_ENDLESS)
        if self._coordinator is not None:
            self._coordinator.drop()
        self._end_early()

    def _read_signals(self, signums: Iterable[int]) -> None:
        for signum in signums:
            if signum in ENDING:  # a scheduler ends the job (scancel), or the guardian is gone
                self._link.send(messages.Ending(signal.Signals(signum).name))
                self._perform(self._supervisor.ended_by_signal(time.monotonic()))
        self._reap()

    def _end_early(self) -> None:
        self._perform(self._supervisor.abandon(time.monotonic()))
        if not self._pids:
            self._reap()

    def _reap(self) -> None:
        """Handle every child that has ended: status first, then its group, the zombie last."""
        try:
            while (ended := self._ended_child()) is not None:
                if ended.pid in self._pids:
                    self._handle_end(ended)
                elif self._preloading is not None and self._preloading.is_server(ended.pid):
                    continue  # it has ended since it was looked at, which is done once more
                elif self._preloading is not None and self._preloading.is_under_way:
                    return  # it may be a rank, which will be known in a moment
                else:
                    system.reap(ended.pid)
            self._perform(self._supervisor.child_gone())
        except Childless:
            self._perform(self._supervisor.childless())

    def _ended_child(self) -> Ended | None:
        """A child that has ended; the server of --preload is looked at before, and apart."""
        if self._preloading is not None:
            self._preloading.look()
        return system.ended_child()

    def _handle_end(self, ended: Ended) -> None:
        rank = self._pids[ended.pid]
        if self._hooks is not None:
            self._hooks.drain(rank)
        sent = list(self._supervisor.sent[rank])
        self._perform(self._supervisor.exited(rank, ended.status, time.monotonic()))
        del self._pids[ended.pid]
        used = system.reap(ended.pid)
        if self._coordinator is not None:
            self._coordinator.resume()
        failed = ended.status != 0 and -ended.status not in sent
        pid = self._program(rank, ended.pid)
        killer = self._memory.evidence(pid) if failed and self._memory else ""
        hooked = self._hooks is not None and rank in self._hooks.seen
        self._link.send(messages.Exited(rank, ended.status, tuple(sent), killer, *used, hooked))

    def _hooked(self, said: messages.FromHook) -> None:
        failed = said.message
        if isinstance(failed, hook_messages.Listening):
            if self._coordinator is not None:
                self._coordinator.rank_0_listens()
            return
        if isinstance(failed, Returned):
            self._returned(said, failed)
            return
        if not isinstance(failed, hook_messages.Failed):
            self._link.send(said)
            return
        assert self._hooks is not None
        self._hooks.read_debuggers(said.rank)  # it may have given the terminal back just before
        sent = tuple(self._supervisor.sent.get(said.rank, ()))
        self._link.send(messages.FromHook(said.rank, failed, main=said.main, sent=sent))
        if failed.joined:
            self._perform(self._supervisor.failed(said.rank, time.monotonic()))

    def _returned(self, said: messages.FromHook, returned: Returned) -> None:
        """A rank's function has returned, or raised an exception."""
        if self._returns is None:
            from ...features.function.agent import Returns  # as only functions need

            self._returns = Returns(self._folder, self._link.uplink)
        self._returns.add(said, returned)

    def _debugged(self, hook: HookConnection, message: DebuggerMessage | None) -> None:
        """A debugger in a rank says something, or is gone."""
        assert self._hooks is not None
        if self._hooks.terminals is None:  # imported only now: each start would wait for that
            from ...features.debugging.agent import Terminals

            self._hooks.terminals = Terminals(self._loop, self._link)
        whole = self._streams.read_out(hook.rank)  # what it has printed comes before
        self._hooks.terminals.received(hook, message, cut=not whole)

    def _receive_for_debuggers(self, message: Message | frames.Data) -> None:
        terminals = self._hooks.terminals if self._hooks is not None else None
        if terminals is not None:
            terminals.take(message)

    def _is_main(self, pid: int, rank: int) -> bool:
        return self._pids.get(pid) == rank

    # --- what the launcher asks ---

    def _prepare(self, wanted: messages.Prepare) -> None:
        """Find out and hold what the launcher wants to know and have held on this host."""
        if self._staging is not None:
            self._staging.finish()
        try:
            stage = self._staging.folder if self._staging else ""
            self._prepared = Prepared(wanted, stage, self._loop)
        except Unusable as refused:
            self._link.send(messages.Refused(str(refused), refused.status))
            return
        self._link.send(self._prepared.facts)

    def _check(self, wanted: TellTime | Survey | CountDevices) -> None:
        """Answer a question of --check."""
        if isinstance(wanted, TellTime):
            self._link.send(Time(time.time()))
            return
        from ...features.check.agent import survey  # no start of a job need wait for that

        if isinstance(wanted, CountDevices):
            self._link.send(survey.count_devices(wanted))
        else:
            self._prepared, found = survey.survey(wanted, self._loop)
            self._link.send(found)

    def _stage(self, part: messages.StageEntry | frames.Content) -> None:
        """Take a file, or a piece of one, for the staging folder."""
        if self._staging is None:
            from .staging import Staging

            self._staging = Staging(self._folder)
        try:
            if isinstance(part, frames.Content):
                self._staging.write(part.payload)
            else:
                self._staging.begin(part)
        except OSError as error:
            message = f"{self._staging.what}: {error.strerror}"
            self._link.send(messages.Refused(message, exit_status.HOST_LOST))

    def _try_coordinator(self, wanted: messages.TryCoordinator) -> None:
        time.sleep(wanted.after_s)
        tried = network.attempt(wanted.addresses, wanted.port)
        self._link.send(
            messages.CoordinatorTried(
                sources={a.address: a.source for a in tried if a.source},
                errors={a.address: a.error for a in tried if not a.source},
            )
        )

    def _start(self, order: messages.Start) -> None:
        if self._supervisor.stopping:
            return  # somebody has ended this agent meanwhile, and the launcher knows
        assert self._prepared is not None
        self._prepared.stop_listening()
        self._supervisor = supervisor.Supervisor(
            order.grace_s, self._ending_ranks, order.term_grace_s
        )
        self._memory = system.out_of_memory()
        inherited = rank_environ.without_outer_job(os.environ)
        if order.hook:
            for name in rank_environ.misleading(inherited):
                del inherited[name]
            path = os.path.join(self._folder, "hook")
            local = {rank.process_id for rank in order.ranks}
            self._hooks = HookServer(
                path, self._loop, local, self._is_main, self._hooked, self._debugged
            )
            inherited[hook_environ.SOCKET] = path
            self._hooks.wrapped = _wrapped(order)
            if order.private or order.relay:
                inherited[hook_environ.COORDINATOR] = os.path.join(self._folder, "coord")
            if order.relay:
                self._relay(inherited)
        if any(rank.stdin for rank in order.ranks):
            from ...features.stdin.agent import Inputs

            self._inputs = Inputs(self._loop, self._link.send)
        joined = self._joined_pythons
        self._usage = UsageSampler(order.sample_every_s, self._at_work, joined, self._link.send)
        ranks = [(rank, self._environ(rank, order, inherited)) for rank in order.ranks]
        if order.preload:
            self._preload(order, ranks)
        else:
            self._start_afresh(ranks)

    def _start_afresh(self, ranks: Sequence[tuple[messages.RankOrder, dict[str, str]]]) -> None:
        for at in range(0, len(ranks), _TOGETHER):
            if not self._spawn(ranks[at : at + _TOGETHER]):
                self._stop(messages.Stop(signal.SIGKILL, 0))
                return
            if self._hooks is not None:
                self._hooks.accept()

    def _preload(
        self, order: messages.Start, ranks: Sequence[tuple[messages.RankOrder, dict[str, str]]]
    ) -> None:
        """Have the ranks forked, as far as that can be done."""
        from ...features.preload.agent.forking import (  # no other start need wait for that
            Forking,
            Outcome,
        )
        from ...features.preload.agent.preloading import Preloading

        def standard(rank: messages.RankOrder) -> tuple[int, int, int]:
            ends, read = self._pipes(rank)
            self._read_streams(rank.process_id, *read)
            return ends

        def on_end(outcome: Outcome) -> None:
            for report in outcome.reports():
                self._link.send(report)
            self._start_afresh(outcome.afresh)
            self._reap()  # a rank may have been killed before it was one

        self._preloading = Preloading(
            order.preload,
            Forking(ranks, standard, self._started),
            self._loop,
            on_importing=lambda module: self._link.send(Importing(module)),
            on_end=on_end,
        )
        self._preloading.begin(_NO_INPUT, self._files_limit)

    def _relay(self, inherited: dict[str, str]) -> None:
        """Have the ranks of this host and JAX's coordination service meet through the launcher."""
        from ...features.relay.agent import CoordinatorStreams

        inherited[hook_environ.RELAYED] = "1"
        path = inherited[hook_environ.COORDINATOR]
        self._coordinator = CoordinatorStreams(path, self._loop, self._link.uplink)

    def _environ(
        self, rank: messages.RankOrder, order: messages.Start, inherited: dict[str, str]
    ) -> dict[str, str]:
        """The whole environment of a rank."""
        set_here = rank_environ.changes(
            inherited,
            common=order.env if order.hook else rank_environ.of_scheduler(order.env, inherited),
            defaults=order.defaults,
            own=rank.env,
            coordinator_host=order.coordinator_host,
        )
        environ = {**inherited, **set_here}
        return rank_environ.with_hook(environ, self._hook_folder) if order.hook else environ

    def _spawn(self, ranks: Sequence[tuple[messages.RankOrder, dict[str, str]]]) -> bool:
        """Start these ranks; False if one cannot be started, and the launcher has been told why."""
        number = -1
        try:
            for rank, environ in ranks:
                number = rank.process_id
                self._spawn_one(rank, environ)
        except SpawnError as error:
            why = f"{error.what}: {os.strerror(error.errno)}"
            self._link.send(messages.Refused(why, exit_status.of_spawn_error(error.errno)))
            return False
        except OSError as error:  # too many processes, or files
            why = f"rank {number} cannot be started: {ulimits.reason(error)}"
            self._link.send(messages.Refused(why, exit_status.HOST_LOST))
            return False
        return True

    def _spawn_one(self, rank: messages.RankOrder, environ: dict[str, str]) -> None:
        ends, read = self._pipes(rank)
        pid = system.spawn(rank.argv, environ, rank.cwd, ends, rank.cores, self._files_limit)
        for fd in ends:
            os.close(fd)
        self._started(rank.process_id, pid)
        self._read_streams(rank.process_id, *read)

    def _pipes(self, rank: messages.RankOrder) -> tuple[tuple[int, int, int], tuple[int, int]]:
        """What becomes a rank's 0, 1 and 2, to be closed by the caller; and what to read from."""
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        taken = os.dup(_NO_INPUT) if not rank.stdin or self._inputs is None else self._inputs.add()
        return (taken, out_end, err_end), (out, err)

    def _started(self, number: int, pid: int) -> None:
        """A rank's process is there."""
        self._pids[pid] = number
        self._supervisor.started(number)
        self._link.send(messages.Started(number, pid))

    def _read_streams(self, number: int, out: int, err: int) -> None:
        for fd, stream in ((out, frames.STDOUT), (err, frames.STDERR)):
            widen(fd)
            self._streams.add(fd, number, stream)

    def _forward(self, signum: int) -> None:
        """Signal the ranks themselves: a helper in their group may die of what they handle."""
        if signum == PROFILE:
            if self._hooks is not None:
                self._hooks.begin_profile()
            return
        for pid, rank in self._pids.items():
            system.signal_process(self._program(rank, pid), signum)

    def _program(self, rank: int, pid: int) -> int:
        """The process of a rank, or the one below its wrapper if that is known."""
        wrapped = self._hooks.wrapped if self._hooks is not None else None
        return (wrapped and wrapped.pid(rank)) or pid

    def _stop(self, order: messages.Stop) -> None:
        if self._returns is not None:
            self._returns.drop_values()
        now = time.monotonic()
        self._perform(self._supervisor.stop(order.signum, order.grace_s, now, order.patience_s))
        if not self._pids:
            self._reap()  # without children no death will wake us

    def _ending_ranks(self) -> Collection[int]:
        return system.ending(self._pids)

    def _at_work(self) -> Mapping[int, int]:
        """The processes of ranks; the one that imports for them counts as the first one's."""
        importing = self._preloading.importing if self._preloading is not None else {}
        return {**self._pids, **importing}

    def _joined_pythons(self) -> Collection[int]:
        return self._hooks.joined if self._hooks is not None else ()

    def _request_stacks(self, all_threads: bool) -> None:
        hooks = self._hooks.request_stacks(all_threads) if self._hooks is not None else []
        more = self._preloading.request_stacks(all_threads) if self._preloading is not None else []
        self._stacks.begin([*hooks, *more], time.monotonic())

    def _request_reruns(self, ranks: Collection[int]) -> None:
        if self._hooks is not None:
            self._hooks.request_reruns(ranks)

    def _reply_to_hooks(self, message: messages.ReplyToHooks) -> None:
        if self._hooks is not None:
            self._hooks.reply(message.ranks, message.reply)

    def _send_stacks(self, collected: Iterable[messages.Stacks]) -> None:
        """Send the stacks that have come, and of the other ranks what the kernel knows."""
        silent = dict(self._at_work())
        for stacks in collected:
            self._link.send(stacks)
            silent = {pid: rank for pid, rank in silent.items() if rank != stacks.rank}
        for pid, rank in silent.items():
            state, importing = system.describe(pid), pid not in self._pids
            self._link.send(messages.Stacks(rank, pid, "", state=state, importing=importing))
        self._link.send(messages.StacksComplete())

    # --- effects ---

    def _perform(self, effects: list[supervisor.Effect]) -> None:
        if effects and self._preloading is not None:
            self._preloading.abandon()
        for effect in effects:
            if isinstance(effect, supervisor.Leave):
                self._leaving = effect
                self._link.send(messages.NothingLeft())
            elif isinstance(effect, supervisor.NameLeft):
                self._link.send(messages.NotYetGone(_described(system.descendants())))
            elif isinstance(effect, supervisor.Kill):
                self._kill()
            elif isinstance(effect, supervisor.SignalRanks):
                strays = self._strays()  # some of whom only their ranks lead to
                self._signal_ranks(effect.signum, effect.spare)
                self._signal_each(strays, effect.signum)
                self._stragglers += len(strays)

    def _signal_ranks(self, signum: int, spare: frozenset[int] = frozenset()) -> None:
        """Signal the process groups of the ranks."""
        for pid, rank in self._pids.items():
            if rank not in spare:
                system.signal_group(pid, signum)
                system.signal_group(pid, signal.SIGCONT)  # a stopped process acts on nothing

    def _strays(self) -> list[int]:
        """The processes of the job that have left their rank's group."""
        return [pid for pid in system.descendants() if system.group_of(pid) not in self._pids]

    def _signal_each(self, pids: Iterable[int], signum: int) -> None:
        for pid in pids:
            system.signal_process(pid, signum)
            system.signal_process(pid, signal.SIGCONT)

    def _kill(self) -> None:
        left = system.descendants()
        self._signal_ranks(signal.SIGKILL)
        self._signal_each(left, signal.SIGKILL)


def _described(pids: Iterable[int]) -> tuple[str, ...]:
    return tuple(f"pid {pid}: {system.describe(pid)}" for pid in pids)


def _wrapped(order: messages.Start) -> WrappedPrograms | None:
    """The programs of ranks with wrappers; None if there are none."""
    commands = {
        rank.process_id: rank.argv[rank.wrapper_words :]
        for rank in order.ranks
        if rank.wrapper_words
    }
    if not commands:
        return None
    from .wrapped import WrappedPrograms

    return WrappedPrograms(commands)
